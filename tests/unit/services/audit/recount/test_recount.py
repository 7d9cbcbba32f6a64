"""The recount from segment files names exactly what was taken away or added, nothing else."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import Codec
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.recount.counting import RecountPlan, recount
from kafka2011.services.audit.recount.guid_comparison import GuidTally
from kafka2011.services.audit.recount.segment_files import (
    LogDirectory,
    log_roots,
    partition_directories,
    read_partition,
)
from kafka2011.services.audit.recount.sources import DiskSource
from kafka2011.services.audit.report import Json
from kafka2011.services.audit.restarts import Restart
from tests.unit.services.audit.samples import (
    SERVER,
    T0,
    WINDOW_MS,
    entries_of,
    event,
    report,
    write_log,
)

COUNT = 60  # messages, evenly over three windows


def time_of(number: int) -> int:
    return T0 + (number % 3) * WINDOW_MS


class Deployment:
    """Segment files of one live and one offline broker, and their recount."""

    def __init__(self, root: Path) -> None:
        self.live = LogDirectory("live", "broker-1", root / "live")
        self.offline = LogDirectory("offline", "broker-11", root / "offline")
        counts = [(PAGE_VIEW, T0 + n * WINDOW_MS, COUNT // 3) for n in range(3)]
        write_log(self.live.path, AUDIT, 0, message_set.encode([report(0, counts)]))
        views = [event(n, time_of(n)) for n in range(COUNT)]
        write_log(self.live.path, PAGE_VIEW, 0, message_set.encode(views[::2]))
        write_log(self.live.path, PAGE_VIEW, 1, message_set.encode(views[1::2]))
        # The mirror made other partitions of them, and two segments.
        write_log(
            self.offline.path,
            PAGE_VIEW,
            0,
            message_set.encode(views[: COUNT // 2]),
            message_set.encode_compressed(views[COUNT // 2 : COUNT // 2 + 5], Codec.GZIP)
            + message_set.encode(views[COUNT // 2 + 5 :]),
        )

    def segment(self, tier: LogDirectory, partition: int = 0, number: int = 0) -> Path:
        return sorted((tier.path / f"{PAGE_VIEW}-{partition}").iterdir())[number]

    def recount(self, restarts: Sequence[Restart] = ()) -> Json:
        sources = [DiskSource(self.live), DiskSource(self.offline)]
        plan = RecountPlan(tiers=("live", "offline"), sources=sources, restarts=restarts)
        return recount(plan, now_ms=T0)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def verdicts(found: Json) -> dict[tuple[int, str], str]:
    """(number of the window, tier) -> verdict, of those that are not complete."""
    return {
        ((cell["window_start_ms"] - T0) // WINDOW_MS, tier): judged["verdict"]
        for cell in found["cells"]
        for tier, judged in cell["tiers"].items()
        if judged["verdict"] != "complete"
    }


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(entries_of(path.read_bytes()))))


def test_everything_there_balances(deployment: Deployment) -> None:
    found = deployment.recount()
    assert verdicts(found) == {}
    assert found["exit_status"] == 0
    assert found["totals"]["produced"] == COUNT
    assert [found["totals"]["tiers"][tier]["counted"] for tier in ("live", "offline")] == [60, 60]
    assert found["window_ms"] == WINDOW_MS
    assert found["notes"] == []


@pytest.mark.parametrize("number", [0, 1, 17, 29])
def test_one_entry_removed_by_hand_changes_exactly_one_cell(
    deployment: Deployment, number: int
) -> None:
    path = deployment.segment(deployment.offline)
    edit(path, lambda entries: entries[:number] + entries[number + 1 :])
    found = deployment.recount()
    assert verdicts(found) == {(number % 3, "offline"): "missing 1"}
    assert found["exit_status"] == 1
    assert any("the next segment starts at" in note for note in found["notes"])


@pytest.mark.parametrize("tiers", [("live",), ("live", "offline")])
def test_a_message_is_missing_in_exactly_the_tiers_that_do_not_have_it(
    deployment: Deployment, tiers: tuple[str, ...]
) -> None:
    for tier in tiers:
        edit(deployment.segment(getattr(deployment, tier)), lambda entries: entries[1:])
    assert verdicts(deployment.recount()) == {(0, tier): "missing 1" for tier in tiers}


def test_a_copy_does_not_hide_a_lost_message(deployment: Deployment) -> None:
    # Numbers 0 and 3 belong to the same window: one goes, the other is there twice.
    edit(deployment.segment(deployment.offline), lambda entries: [entries[3], *entries[1:]])
    found = deployment.recount()
    assert verdicts(found) == {(0, "offline"): "missing 1, extra 1"}
    (judged,) = [c["tiers"]["offline"] for c in found["cells"] if c["window_start_ms"] == T0]
    assert (judged["counted"], judged["expected"], judged["distinct"]) == (20, 20, 19)


def test_copies_after_a_restart_are_redelivered_and_balance(deployment: Deployment) -> None:
    edit(deployment.segment(deployment.offline), lambda entries: entries + entries[:6])
    restarts = [Restart("mirror-1", T0 + WINDOW_MS)]
    found = deployment.recount(restarts)
    assert verdicts(found) == {(n, "offline"): "redelivered 2" for n in range(3)}
    assert found["exit_status"] == 0
    assert found["restarts"] == [{"name": "mirror-1", "time_ms": T0 + WINDOW_MS}]
    assert deployment.recount()["exit_status"] == 1


def test_unreported_messages_are_extra(deployment: Deployment) -> None:
    path = deployment.segment(deployment.live)
    path.write_bytes(path.read_bytes() + message_set.encode([event(999, T0)]))
    assert verdicts(deployment.recount()) == {
        (0, "live"): "extra 1",
        (0, "offline"): "missing 1",
    }


@given(data=st.data())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_k_removed_and_copied_entries_are_named_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    numbers = st.lists(st.integers(0, COUNT // 2 - 1), max_size=12, unique=True)
    removed, copied = data.draw(numbers), data.draw(numbers)
    copied = [number for number in copied if number not in removed]
    edit(
        deployment.segment(deployment.offline),
        lambda entries: [
            entry
            for number, entry in enumerate(entries)
            for _ in range(0 if number in removed else 2 if number in copied else 1)
        ],
    )
    missing = Counter(number % 3 for number in removed)
    extra = Counter(number % 3 for number in copied)
    expected = {}
    for window in {*missing, *extra}:
        words = [f"missing {missing[window]}"] if missing[window] else []
        words += [f"extra {extra[window]}"] if extra[window] else []
        expected[(window, "offline")] = ", ".join(words)
    assert verdicts(deployment.recount()) == expected


# --- faults of the files ------------------------------------------------------------------------


def test_a_torn_end_of_the_newest_segment_is_what_recovery_would_cut_off(
    deployment: Deployment,
) -> None:
    path = deployment.segment(deployment.live)
    path.write_bytes(path.read_bytes() + message_set.encode([event(999)])[:-1])
    found = deployment.recount()
    assert verdicts(found) == {}
    assert found["notes"] == []


def test_a_damaged_entry_is_named_and_missing(deployment: Deployment) -> None:
    path = deployment.segment(deployment.offline)
    raw = bytearray(path.read_bytes())
    raw[len(message_set.encode([event(0)])) - 1] ^= 1
    path.write_bytes(raw)
    found = deployment.recount()
    assert verdicts(found) == {(0, "offline"): "missing 1"}
    assert any("the entry at offset 0 is damaged" in note for note in found["notes"])


def test_a_lost_monitoring_event_is_noted_and_makes_messages_extra(deployment: Deployment) -> None:
    path = next((deployment.live.path / f"{AUDIT}-0").iterdir())
    counts = [(PAGE_VIEW, T0, 20)]
    path.write_bytes(message_set.encode([report(1, counts)]))
    found = deployment.recount()
    assert verdicts(found)[(1, "live")] == "extra 20"
    assert any("monitoring events 0 to 0" in note for note in found["notes"])


def test_a_repeated_monitoring_event_counts_once(deployment: Deployment) -> None:
    path = next((deployment.live.path / f"{AUDIT}-0").iterdir())
    path.write_bytes(path.read_bytes() * 2)
    assert verdicts(deployment.recount()) == {}


def test_retired_segments_are_noted(tmp_path: Path) -> None:
    write_log(tmp_path, PAGE_VIEW, 0, message_set.encode([event(1)]), start=4096)
    notes: list[str] = []
    (files,) = partition_directories(tmp_path)
    (payloads,) = read_partition(files, "live broker-1", notes.append)
    assert payloads == [event(1)]
    assert notes == ["live broker-1 page-view-0: the bytes before offset 4096 are gone (retention)"]


def test_segments_larger_than_a_chunk_are_read_whole(tmp_path: Path) -> None:
    large = b"x" * (5 * 1024 * 1024)
    write_log(tmp_path, PAGE_VIEW, 0, message_set.encode([b"a", large, b"b", large[:-1], b"c"]))
    (files,) = partition_directories(tmp_path)
    found = [payload for piece in read_partition(files, "", print) for payload in piece]
    assert [len(payload) for payload in found] == [1, len(large), 1, len(large) - 1, 1]


def test_log_directories_are_found_below_and_quarantine_is_not(tmp_path: Path) -> None:
    write_log(tmp_path / "broker-1" / "logs", "a-b", 3, b"")
    write_log(tmp_path / "broker-1" / "quarantine", "a-b", 3, b"")
    write_log(tmp_path / "broker-1-quarantine", "a-b", 3, b"")
    assert log_roots(tmp_path) == [tmp_path / "broker-1" / "logs"]
    (files,) = partition_directories(tmp_path / "broker-1" / "logs")
    assert (files.topic, files.partition) == ("a-b", 3)


# --- the tally ----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes_max", [20, 1000, 10**9])
def test_the_tally_is_the_same_in_memory_and_on_disk(memory_bytes_max: int) -> None:
    with GuidTally(2, WINDOW_MS, memory_bytes_max=memory_bytes_max) as tally:
        for start in range(0, 1000, 50):
            tally.add_payloads(0, "t", [event(n, T0) for n in range(start, start + 50)])
        tally.add_payloads(1, "t", [event(n, T0) for n in range(10, 1000)])
        tally.add_payloads(1, "t", [event(10, T0), event(11, T0), b"no event"])
        found = tally.compare()
        key = CellKey("t", T0, SERVER)
        live, offline = found[key, 0], found[key, 1]
        assert (live.counted, live.distinct, live.lost, live.seen) == (1000, 1000, 0, 1000)
        assert (offline.counted, offline.distinct, offline.lost) == (992, 990, 10)
        assert offline.seen == 1000
        assert found[CellKey("t", -1, "unreadable-header"), 1].counted == 1
