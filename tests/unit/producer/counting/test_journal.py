import itertools
import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.events.header import NAME_BYTES_MAX
from kafka2011.events.windows import WindowCount
from kafka2011.producer.counting.journal import Journal, JournalCorrupt, JournalInUse, JournalState
from kafka2011.producer.counting.reports import monitoring_payload
from tests.support.synced import Synced

SOURCE = {"kind": "synthetic", "seed": 1}
CELL = WindowCount("page-view", 10_000, 3, 300)
OTHER = WindowCount("click", 20_000, 1, 90)
BYTES_MAX = 1_000_000  # of a payload


def opened(directory: Path) -> Journal:
    return Journal(directory, "frontend-1", 1000)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with a run that has begun."""
    with opened(tmp_path) as found:
        found.begin_run(SOURCE, 5000, bytes(range(8)))
        yield found


def reopened(journal: Journal, directory: Path) -> JournalState:
    journal.close()
    with opened(directory) as again:
        return again.state


def test_everything_is_there_again_after_a_reopen(journal: Journal, tmp_path: Path) -> None:
    journal.sent([10, 1], [CELL, OTHER])
    journal.make_events(7000, BYTES_MAX)
    journal.sent([20, 2], [CELL])
    state = reopened(journal, tmp_path)
    assert state.snapshot() == journal.state.snapshot()
    assert (state.position, state.run, state.start_ms) == ([20, 2], "0001020304050607", 5000)
    assert state.totals == {"page-view": 6, "click": 1}
    assert [event.counts for event in state.events] == [[OTHER, CELL]]
    assert state.pending.as_list() == [CELL]


def test_a_published_event_is_forgotten_and_its_sequence_never_used_again(
    journal: Journal, tmp_path: Path
) -> None:
    for _ in range(3):
        journal.sent(1, [CELL])
        journal.make_events(1, BYTES_MAX)
    journal.published(1)
    assert [event.sequence for event in journal.state.events] == [2]
    journal.published(2)
    assert reopened(journal, tmp_path).events == []
    with opened(tmp_path) as again:
        again.sent(2, [OTHER])
        assert [event.sequence for event in again.make_events(2, BYTES_MAX)] == [3]


def test_another_source_starts_over_and_keeps_what_is_to_be_published(journal: Journal) -> None:
    journal.sent(9, [CELL])
    journal.finished()
    journal.begin_run({"kind": "other"}, 1)
    state = journal.state
    assert (state.position, state.is_finished, state.totals) == (None, False, {})
    assert state.pending.as_list() == [CELL]


def test_adopting_a_name_is_a_new_instance(journal: Journal, tmp_path: Path) -> None:
    instance = journal.state.instance
    journal.adopt("frontend-2", 5000)
    state = reopened(journal, tmp_path)
    assert state.instance != instance
    assert (state.server, state.window_ms) == ("frontend-2", 5000)


def test_events_of_many_cells_are_cut(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka2011.producer.counting.journal.CELLS_PER_EVENT_MAX", 4)
    cells = [WindowCount("t", n * 1000, 1, 1) for n in range(10)]
    journal.sent(1, cells)
    events = journal.make_events(1, BYTES_MAX)
    assert [(event.sequence, len(event.counts)) for event in events] == [(0, 4), (1, 4), (2, 2)]
    assert sorted(cell for event in events for cell in event.counts) == cells
    assert not journal.state.pending


@pytest.mark.parametrize(
    ("topic", "bytes_max", "count"),
    [
        ("t", 0, 20),
        ("t", 1_200, 5),
        ("t" * 250, 1_200, 20),
        ("t" * 250, 5_000, 2),
        ("\u4e16" * 250, 5_000, 4),
        ("\u4e16" * 250, BYTES_MAX, 1),
    ],
)
def test_no_event_is_above_the_largest_payload(
    journal: Journal, topic: str, bytes_max: int, count: int
) -> None:
    """It was refused at each attempt, and all that came behind it."""
    journal.adopt("s" * NAME_BYTES_MAX, 1000)
    cells = [WindowCount(f"{topic}-{n:02}", 2**50, 2**30, 2**61) for n in range(20)]
    journal.sent(1, cells)
    events = journal.make_events(2**50, bytes_max)
    found = [monitoring_payload(journal.state, one, "s" * NAME_BYTES_MAX) for one in events]
    assert max(map(len, found)) <= max(bytes_max, 1_200), "a single cell goes in any case"
    assert len(events) == count
    assert [cell for one in events for cell in one.counts] == cells


def test_compaction_keeps_the_state_and_the_file_small(journal: Journal, tmp_path: Path) -> None:
    journal.compact_bytes = 2000
    for number in range(200):
        journal.sent(number, [CELL])
        if number % 10 == 0:
            journal.published(journal.make_events(number, BYTES_MAX)[-1].sequence)
    assert (tmp_path / "journal").stat().st_size < 3000
    state = reopened(journal, tmp_path)
    assert state.snapshot() == journal.state.snapshot()
    assert state.totals == {"page-view": 600}


def test_one_directory_which_is_made_has_one_process(tmp_path: Path) -> None:
    with opened(tmp_path / "a/b") as journal, pytest.raises(JournalInUse, match="in use"):
        opened(tmp_path / "a/b")
    assert (journal.state.run, journal.state.next_sequence) == ("", 0)
    opened(tmp_path / "a/b").close()


def test_a_directory_that_was_made_outlives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch)
    opened(tmp_path / "a/b").close()
    made = [tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/journal"]
    assert [synced.has_name(one) for one in made] == [True] * 3


# --- what a crash leaves -------------------------------------------------------------------------


def written(directory: Path) -> list[dict[str, object]]:
    """A journal with every kind of record; returns the state after each."""
    with opened(directory) as journal:
        states = [journal.state.snapshot()]
        for write, *arguments in [
            (journal.begin_run, SOURCE, 0, bytes(8)),
            *[(journal.sent, 7, [CELL]), (journal.make_events, 8, BYTES_MAX)] * 3,
            (journal.published, 0),
            (journal.finished,),
        ]:
            write(*arguments)
            states.append(journal.state.snapshot())
    return states


def records(directory: Path) -> list[bytes]:
    return (directory / "journal").read_bytes().splitlines(keepends=True)


def test_records_are_lines_that_people_can_read(tmp_path: Path) -> None:
    written(tmp_path)
    kinds = [json.loads(line[9:])["k"] for line in records(tmp_path)]
    assert kinds == ["state", "run", *["sent", "event"] * 3, "published", "finished"]


def test_a_cut_at_every_byte_leaves_the_whole_records_before_it(tmp_path: Path) -> None:
    states = written(tmp_path)
    ends = list(itertools.accumulate(len(line) for line in records(tmp_path)))
    assert len(ends) == len(states)
    content = (tmp_path / "journal").read_bytes()
    for cut in range(ends[0], len(content) + 1):
        (tmp_path / "journal").write_bytes(content[:cut])
        with opened(tmp_path) as journal:
            assert journal.state.snapshot() == states[bisect_right(ends, cut) - 1]
            journal.sent("next", [OTHER])  # and it goes on
        assert reopened(journal, tmp_path).position == "next"


@given(tail=st.binary(min_size=1, max_size=40))
@settings(max_examples=50)
def test_a_torn_ending_of_any_bytes_without_line_end_is_removed(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    states = written(directory)
    with (directory / "journal").open("ab") as file:
        file.write(tail.replace(b"\n", b" "))
    with opened(directory) as journal:
        assert journal.state.snapshot() == states[-1]


@pytest.mark.parametrize("index", range(8))
def test_damage_before_the_end_is_refused(tmp_path: Path, index: int) -> None:
    written(tmp_path)
    lines = records(tmp_path)
    lines[index] = lines[index][:12] + bytes([lines[index][12] ^ 1]) + lines[index][13:]
    (tmp_path / "journal").write_bytes(b"".join(lines))
    with pytest.raises(JournalCorrupt, match="damaged at byte"):
        opened(tmp_path)


def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"my notes\n")
    with pytest.raises(JournalCorrupt):
        opened(tmp_path)
    assert (tmp_path / "journal").read_bytes() == b"my notes\n"


class Died(BaseException):
    """Raised where the process would be killed: no record is half written then."""


def send_and_publish(directory: Path, published: dict[int, int]) -> None:
    """Counts twenty messages, one a batch, and notes the count of each event that goes out."""
    with opened(directory) as journal:
        if not journal.state.run:
            journal.begin_run(SOURCE, 0)
        journal.compact_bytes = 400
        for number in range(journal.state.position or 0, 21):
            for event in list(journal.state.events) or journal.make_events(number, BYTES_MAX):
                count = sum(cell.count for cell in event.counts)
                # A repeat has the same content, or a reader that drops it would lose counts.
                assert published.setdefault(event.sequence, count) == count
                journal.published(event.sequence)
            if number < 20:
                journal.sent(number + 1, [WindowCount("t", 0, 1, 1)])


@pytest.mark.parametrize(
    "step",
    ["before_journal", "after_journal", "before_publish", "after_publish", "before_journal_rename"],
)
def test_killed_at_every_step_it_counts_each_confirmed_message_in_one_event(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str) -> None:
        if name == f"counts_{step}":
            raise Died

    published: dict[int, int] = {}
    with monkeypatch.context() as patch:
        patch.setattr("kafka2011.producer.counting.journal.failpoint", die)
        for _ in range(3):
            with pytest.raises(Died):
                send_and_publish(tmp_path, published)
    send_and_publish(tmp_path, published)
    with opened(tmp_path) as journal:
        assert (journal.state.position, journal.state.events) == (20, [])
    assert sum(published.values()) == 20
    assert sorted(published) == list(range(len(published)))
