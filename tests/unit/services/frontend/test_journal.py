import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.events.windows import WindowCount
from kafka2011.services.frontend.journal import Journal, JournalCorrupt, JournalInUse, JournalState
from tests import ROOT

SOURCE = {"kind": "synthetic", "seed": 1}
CELL = WindowCount("page-view", 10_000, 3, 300)
OTHER = WindowCount("click", 20_000, 1, 90)


def opened(directory: Path, window_ms: int = 1000) -> Journal:
    return Journal(directory, "frontend-1", window_ms)


def summary(state: JournalState) -> dict[str, object]:
    return state.snapshot()


def test_a_new_journal_has_an_instance_and_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path / "a" / "b") as one, opened(tmp_path / "c") as two:
        assert one.state.instance != two.state.instance
        assert one.state.run == ""
        assert one.state.next_sequence == 0


def test_everything_is_there_again_after_a_reopen(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin_run(SOURCE, 5000, bytes(range(8)))
        journal.sent([10, 1], [CELL, OTHER])
        journal.make_events(7000)
        journal.sent([20, 2], [CELL])
        before = summary(journal.state)
    with opened(tmp_path) as journal:
        assert summary(journal.state) == before
        assert journal.state.position == [20, 2]
        assert journal.state.run == "0001020304050607"
        assert journal.state.totals == {"page-view": 6, "click": 1}
        assert [event.counts for event in journal.state.events] == [[OTHER, CELL]]
        assert journal.state.pending.as_list() == [CELL]


def test_a_published_event_is_forgotten_and_its_sequence_never_used_again(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin_run(SOURCE, 0)
        for _ in range(3):
            journal.sent(1, [CELL])
            journal.make_events(1)
        journal.published(1)
        assert [event.sequence for event in journal.state.events] == [2]
        journal.published(2)
    with opened(tmp_path) as journal:
        assert journal.state.events == []
        journal.sent(2, [OTHER])
        assert [event.sequence for event in journal.make_events(2)] == [3]


def test_another_source_starts_at_its_beginning_and_keeps_what_is_to_be_published(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as journal:
        journal.begin_run(SOURCE, 0)
        journal.sent(9, [CELL])
        journal.finished()
        journal.begin_run({"kind": "other"}, 1)
        assert (journal.state.position, journal.state.is_finished) == (None, False)
        assert journal.state.totals == {}
        assert journal.state.pending.as_list() == [CELL]


def test_adopting_a_name_is_a_new_instance(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        instance = journal.state.instance
        journal.adopt("frontend-2", 5000)
    with opened(tmp_path) as journal:
        assert journal.state.instance != instance
        assert (journal.state.server, journal.state.window_ms) == ("frontend-2", 5000)


def test_events_of_many_cells_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka2011.services.frontend.journal.CELLS_PER_EVENT_MAX", 4)
    cells = [WindowCount("t", n * 1000, 1, 1) for n in range(10)]
    with opened(tmp_path) as journal:
        journal.begin_run(SOURCE, 0)
        journal.sent(1, cells)
        events = journal.make_events(1)
        assert [len(event.counts) for event in events] == [4, 4, 2]
        assert [event.sequence for event in events] == [0, 1, 2]
        assert sorted(cell for event in events for cell in event.counts) == cells
        assert not journal.state.pending


def test_compaction_keeps_the_state_and_the_file_small(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.compact_bytes = 2000
        journal.begin_run(SOURCE, 0)
        for number in range(200):
            journal.sent(number, [CELL])
            if number % 10 == 0:
                journal.published(journal.make_events(number)[-1].sequence)
        before = summary(journal.state)
        assert (tmp_path / "journal").stat().st_size < 3000
    with opened(tmp_path) as journal:
        assert summary(journal.state) == before
        assert journal.state.totals == {"page-view": 600}


def test_one_directory_has_one_process(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(JournalInUse, match="in use"):
        opened(tmp_path)
    opened(tmp_path).close()


# --- what a crash leaves -------------------------------------------------------------------------


def records(directory: Path) -> list[bytes]:
    return (directory / "journal").read_bytes().splitlines(keepends=True)


def written(directory: Path) -> list[dict[str, object]]:
    """A journal with every kind of record; returns the state after each."""
    states = []
    with opened(directory) as journal:
        states.append(summary(journal.state))
        journal.begin_run(SOURCE, 0, bytes(8))
        states.append(summary(journal.state))
        for number in range(3):
            journal.sent(number, [CELL])
            states.append(summary(journal.state))
            journal.make_events(number)
            states.append(summary(journal.state))
        journal.published(0)
        states.append(summary(journal.state))
        journal.finished()
        states.append(summary(journal.state))
    return states


def test_a_cut_at_every_byte_leaves_the_whole_records_before_it(tmp_path: Path) -> None:
    states = written(tmp_path)
    content = (tmp_path / "journal").read_bytes()
    ends = [0]
    for line in records(tmp_path):
        ends.append(ends[-1] + len(line))
    assert len(ends) == len(states) + 1
    for cut in range(ends[1], len(content) + 1):
        (tmp_path / "journal").write_bytes(content[:cut])
        with opened(tmp_path) as journal:
            whole = sum(end <= cut for end in ends[1:])
            assert summary(journal.state) == states[whole - 1]
            journal.sent("next", [OTHER])  # and it goes on
        with opened(tmp_path) as journal:
            assert journal.state.position == "next"


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
        assert summary(journal.state) == states[-1]


@pytest.mark.parametrize("index", range(8))
def test_damage_before_the_end_is_refused(tmp_path: Path, index: int) -> None:
    written(tmp_path)
    lines = records(tmp_path)
    damaged = bytearray(lines[index])
    damaged[12] ^= 1
    lines[index] = bytes(damaged)
    (tmp_path / "journal").write_bytes(b"".join(lines))
    with pytest.raises(JournalCorrupt, match="damaged at byte"):
        opened(tmp_path)


def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"my notes\n")
    with pytest.raises(JournalCorrupt):
        opened(tmp_path)
    assert (tmp_path / "journal").read_bytes() == b"my notes\n"


SCRIPT = """
import sys
from pathlib import Path
from kafka2011.events.windows import WindowCount
from kafka2011.services.frontend.journal import Journal

with Journal(Path(sys.argv[1]), "frontend-1", 1000) as journal:
    if not journal.state.run:
        journal.begin_run("source", 0)
    journal.compact_bytes = 400

    def publish(events):
        for event in events:
            print(event.sequence, sum(cell.count for cell in event.counts), flush=True)
            journal.published(event.sequence)

    publish(list(journal.state.events))
    for number in range(journal.state.position or 0, 20):
        journal.sent(number + 1, [WindowCount("t", 0, 1, 1)])
        publish(journal.make_events(number))
    publish(journal.make_events(20))
"""


@pytest.mark.parametrize(
    "failpoint",
    [
        "frontend_before_journal",
        "frontend_after_journal",
        "frontend_before_publish",
        "frontend_after_publish",
        "frontend_before_journal_rename",
    ],
)
def test_killed_at_every_step_it_counts_each_confirmed_message_in_one_event(
    tmp_path: Path, failpoint: str
) -> None:
    """Each process dies at the failpoint; what was printed stands for what was published."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    published: dict[int, int] = {}

    def run(failpoints: str) -> int:
        environment["KAFKA2011_FAILPOINTS"] = failpoints
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            sequence, count = map(int, line.split())
            # A repeat has the same content, or a reader that drops it would lose counts.
            assert published.setdefault(sequence, count) == count
        assert done.returncode in (0, 9), done.stderr
        return done.returncode

    for _ in range(3):
        assert run(f"{failpoint}=exit:9") == 9
    run("")
    with opened(tmp_path) as journal:
        assert journal.state.position == 20
        assert journal.state.events == []
        assert sum(published.values()) == 20
        assert sorted(published) == list(range(len(published)))


def test_records_are_lines_that_people_can_read(tmp_path: Path) -> None:
    written(tmp_path)
    kinds = [json.loads(line[9:])["k"] for line in records(tmp_path)]
    assert kinds == ["state", "run", *["sent", "event"] * 3, "published", "finished"]
