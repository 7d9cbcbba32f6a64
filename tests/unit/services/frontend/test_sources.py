import os
from pathlib import Path

from kafka2011.events.codec import decode
from kafka2011.services.frontend.core import Start, must_adopt, start_of
from kafka2011.services.frontend.journal import Journal
from kafka2011.services.frontend.sources import (
    BATCH_EVENTS_MAX,
    AccessLogSource,
    Source,
    SyntheticSource,
)
from tests.support.clock import ManualClock

RUN = bytes(8)
LINE = b'h - - [17/May/2015:10:05:03 +0000] "GET /%d HTTP/1.1" 200 5\n'


def log_of(directory: Path, count: int) -> Path:
    path = directory / "access.log"
    path.write_bytes(b"".join(LINE % number for number in range(count)))
    return path


def access_log(path: Path, position: object = None, **options: object) -> AccessLogSource:
    clock = options.pop("clock", None) or ManualClock()
    return AccessLogSource(
        path, run_id=RUN, server="s", service="v", clock=clock, position=position, **options
    )  # type: ignore[arg-type]


def paths_of(events: list[tuple[str, int, bytes]]) -> list[str]:
    return [decode(payload)[1]["path"] for _, _, payload in events]


def drained(source: Source) -> list[tuple[str, int, bytes]]:
    found = []
    while (batch := source.next_batch()) is not None:
        found += batch.events
    source.close()
    return found


def test_a_log_is_sent_to_its_end_in_bounded_batches(tmp_path: Path) -> None:
    source = access_log(log_of(tmp_path, 1300))
    batches = []
    while (batch := source.next_batch()) is not None:
        batches.append(batch)
    source.close()
    assert [path for batch in batches for path in paths_of(batch.events)] == [
        f"/{number}" for number in range(1300)
    ]
    assert max(len(batch.events) for batch in batches) <= BATCH_EVENTS_MAX


def test_it_goes_on_behind_any_batch_with_the_same_guids(tmp_path: Path) -> None:
    path = log_of(tmp_path, 1300)
    whole = [payload for _, _, payload in drained(access_log(path))]
    source = access_log(path)
    first = source.next_batch()
    assert first is not None
    source.close()
    rest = drained(access_log(path, first.position))
    assert [p for _, _, p in first.events] + [p for _, _, p in rest] == whole


def test_followed_it_waits_at_the_end_and_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = log_of(tmp_path, 1)
    source = access_log(path, follow=True)
    batch = source.next_batch()
    assert batch is not None
    assert paths_of(batch.events) == ["/0"]
    batch = source.next_batch()
    assert batch is not None
    assert (batch.events, batch.wait_ms > 0) == ([], True)
    with path.open("ab") as file:
        file.write((LINE % 1)[:-1])
        file.flush()
        assert source.next_batch().events == []  # type: ignore[union-attr]
        file.write(b"\n")
    batch = source.next_batch()
    assert batch is not None
    assert paths_of(batch.events) == ["/1"]
    source.close()


def test_a_rate_paces_the_lines(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    source = access_log(log_of(tmp_path, 100), clock=clock, rate=10)
    sent = 0
    for _ in range(25):  # 2.5 s
        while (batch := source.next_batch()) is not None and batch.events:
            sent += len(batch.events)
        clock.advance(100)
    assert sent == 25
    source.close()


def test_another_file_under_the_same_name_is_another_source(tmp_path: Path) -> None:
    path = log_of(tmp_path, 1)
    before = AccessLogSource.descriptor(path)
    assert AccessLogSource.descriptor(path) == before
    new = tmp_path / "new"
    new.write_bytes(path.read_bytes())
    os.replace(new, path)
    assert AccessLogSource.descriptor(path) != before
    assert not AccessLogSource.can_continue(path, [10_000, 7])
    assert AccessLogSource.can_continue(path, [path.stat().st_size, 1])
    assert AccessLogSource.can_continue(path, None)


def synthetic(
    clock: ManualClock, position: object = None, count: int | None = 50
) -> SyntheticSource:
    return SyntheticSource(
        seed=1,
        rate=100,
        count_max=count,
        run_id=RUN,
        start_ms=1000,
        server="s",
        service="v",
        clock=clock,
        position=position,
    )


def test_synthetic_events_come_when_they_are_due_and_late_ones_at_once() -> None:
    clock = ManualClock(1000)
    source = synthetic(clock)
    assert len(source.next_batch().events) == 1  # type: ignore[union-attr]
    batch = source.next_batch()
    assert batch is not None
    assert (batch.events, batch.wait_ms) == ([], 10)
    clock.advance(95)
    batch = source.next_batch()
    assert batch is not None
    assert [time_ms for _, time_ms, _ in batch.events] == [1000 + 10 * n for n in range(1, 10)]
    clock.advance(10_000)
    assert len(source.next_batch().events) == 40  # type: ignore[union-attr]
    assert source.next_batch() is None


def test_synthetic_goes_on_behind_its_position_with_the_same_events() -> None:
    clock = ManualClock(100_000)
    whole = drained(synthetic(clock))
    assert len(whole) == 50
    assert drained(synthetic(clock, position=20)) == whole[20:]


def test_without_a_limit_it_never_ends() -> None:
    source = synthetic(ManualClock(10**9), count=None)
    assert all(len(source.next_batch().events) == BATCH_EVENTS_MAX for _ in range(5))  # type: ignore[union-attr]


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
