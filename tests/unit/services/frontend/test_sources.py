import os
from pathlib import Path
from typing import Any

import pytest

from kafka2011.events.codec import decode
from kafka2011.producer.counting.journal import Journal
from kafka2011.services.frontend.sources import AccessLogSource, Batch, NoEvents, SyntheticSource
from kafka2011.services.frontend.start import Start, must_adopt, start_of
from tests.support.clock import ManualClock

OF_A_RUN = {"run_id": bytes(8), "server": "s", "service": "v"}
LINE = b'h - - [17/May/2015:10:05:03 +0000] "GET /%d HTTP/1.1" 200 5\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """1,300 lines."""
    path = tmp_path / "access.log"
    path.write_bytes(b"".join(LINE % number for number in range(1300)))
    return path


def access_log(path: Path, **settings: Any) -> AccessLogSource:
    return AccessLogSource(path, **{"clock": ManualClock(), **OF_A_RUN, **settings})


def synthetic(clock: ManualClock, **settings: Any) -> SyntheticSource:
    known = {"seed": 1, "rate": 100, "count_max": 50, "start_ms": 1000, "clock": clock}
    return SyntheticSource(**{**known, **OF_A_RUN, **settings})


def next_of(source: AccessLogSource | SyntheticSource) -> Batch:
    batch = source.next_batch()
    assert batch is not None
    return batch


def batches(source: AccessLogSource | SyntheticSource) -> list[Batch]:
    """Those that are left."""
    found = list(iter(source.next_batch, None))
    source.close()
    return found


def paths(batch: Batch) -> list[str]:
    return [decode(payload)[1]["path"] for _, _, payload in batch.events]


@pytest.mark.parametrize("kind", ["access log", "synthetic"])
def test_a_source_goes_on_behind_any_batch_with_the_same_events(log: Path, kind: str) -> None:
    def left(position: object) -> list[Batch]:
        if kind == "access log":
            return batches(access_log(log, position=position))
        return batches(synthetic(ManualClock(10**9), count_max=1300, position=position))

    whole = left(position=None)
    assert [len(batch.events) for batch in whole] == [500, 500, 300]
    for number, batch in enumerate(whole, start=1):
        assert left(batch.position) == whole[number:]
    if kind == "access log":
        found = [path for batch in whole for path in paths(batch)]
        assert found == [f"/{number}" for number in range(1300)]


def times_of(found: list[Batch]) -> list[int]:
    return [time_ms for batch in found for _, time_ms, _ in batch.events]


@pytest.mark.parametrize(
    ("catch_up_ms", "sent_max", "resent"),
    [(-1, 0, 1300), (5_000, 0, 0), (5_000, 7, 7), (5_000, 700, 700), (10**10, 0, 1300)],
    ids=["no limit", "after a clean stop", "after a kill", "more than a batch", "not that late"],
)
def test_after_a_pause_synthetic_activity_goes_on_from_now(
    catch_up_ms: int, sent_max: int, resent: int
) -> None:
    """Only what may have been sent before keeps its time, or it would be counted twice."""
    clock = ManualClock(10**9)
    before = synthetic(clock, start_ms=10**9 - 1, count_max=1300)
    position = next_of(before).position
    clock.advance(3_600_000)
    settings = {"count_max": 1300, "catch_up_ms": catch_up_ms, "sent_max": sent_max}
    late = synthetic(clock, start_ms=0, position=position, **settings)
    found = []
    while resent and len(times_of(found)) < min(resent, 1299):
        found.append(next_of(late))
    assert times_of(found) == [10**9 - 1 + number * 10 for number in range(1, resent + 1)][:1299]
    if resent >= 1299:
        assert late.next_batch() is None
        return
    shift = next_of(late)
    assert (shift.events, shift.is_to_be_stored) == ([], True)
    # Whichever process makes the next event: at this moment, and from there on at the rate.
    for source in (late, synthetic(clock, start_ms=0, position=shift.position, **settings)):
        assert next_of(source).events[0][1] == clock()
        clock.advance(10)
        assert times_of([next_of(source)]) == [clock()]
        clock.advance(-10)


def test_a_rate_paces_the_lines(log: Path) -> None:
    clock = ManualClock(1000)
    source = access_log(log, clock=clock, rate=10)
    sent = 0
    for _ in range(25):  # 2.5 s
        while events := next_of(source).events:
            sent += len(events)
        clock.advance(100)
    assert sent == 25
    source.close()


def test_another_file_under_the_same_name_is_another_source(log: Path, tmp_path: Path) -> None:
    before = AccessLogSource.descriptor(log)
    assert AccessLogSource.descriptor(log) == before
    (tmp_path / "new").write_bytes(LINE)
    os.replace(tmp_path / "new", log)
    assert AccessLogSource.descriptor(log) != before
    size = log.stat().st_size
    assert [AccessLogSource.can_continue(log, at) for at in ([size + 1, 7], [size, 1], None)] == [
        *(False, True, True)
    ]


@pytest.mark.parametrize("count", [600, 1300, 4000])
@pytest.mark.parametrize("batches_read", [1, 3])
def test_a_file_that_was_written_anew_in_place_is_another_source(
    log: Path, count: int, batches_read: int
) -> None:
    source = access_log(log)
    position = [next_of(source).position for _ in range(batches_read)][-1]
    source.close()
    descriptor = AccessLogSource.descriptor(log)
    with log.open("ab") as file:
        file.write(LINE % 1300)
    assert AccessLogSource.can_continue(log, position)  # it has grown
    log.write_bytes(b"".join(LINE.replace(b" 5", b" 67") % number for number in range(count)))
    assert AccessLogSource.descriptor(log) == descriptor
    assert not AccessLogSource.can_continue(log, position)


def test_a_position_of_a_version_that_kept_no_anchor_is_gone_on_from(log: Path) -> None:
    whole = batches(access_log(log))
    offset, number, _ = whole[0].position
    assert AccessLogSource.can_continue(log, [offset, number])
    assert batches(access_log(log, position=[offset, number])) == whole[1:]


def test_synthetic_events_come_when_they_are_due_and_late_ones_at_once() -> None:
    clock = ManualClock(1000)
    source = synthetic(clock)
    assert len(next_of(source).events) == 1
    assert next_of(source) == Batch([], [1, 1000], wait_ms=10)
    clock.advance(95)
    times = [time_ms for _, time_ms, _ in next_of(source).events]
    assert times == [1000 + 10 * n for n in range(1, 10)]
    clock.advance(10_000)
    assert [len(batch.events) for batch in batches(source)] == [40]


def test_without_a_limit_it_never_ends() -> None:
    source = synthetic(ManualClock(10**9), count_max=None)
    assert all(len(next_of(source).events) == 500 for _ in range(5))


def test_what_a_start_goes_on_with(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", 1000) as journal:
        state = journal.state
        assert start_of(state, "log", True) is Start.NEW
        journal.begin_run("log", 0)
        assert start_of(state, "log", True) is Start.CONTINUE
        assert start_of(state, "log", False) is Start.NEW
        assert start_of(state, "another log", True) is Start.NEW
        journal.finished()
        assert start_of(state, "log", True) is Start.NOTHING_LEFT
        assert start_of(state, "another log", True) is Start.NEW
        assert not must_adopt(state, "s", 1000)
        assert must_adopt(state, "t", 1000)
        assert must_adopt(state, "s", 2000)


def test_a_source_without_events_waits_and_has_no_end() -> None:
    source = NoEvents()
    for _ in range(3):
        batch = source.next_batch()
        assert not batch.events
        assert batch.wait_ms > 0
