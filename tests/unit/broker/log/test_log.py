"""One partition's log: ends, rolls, reads, offsets by time, retention, and who is told of what."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.errors import (
    OffsetOutOfRange,
    PartitionError,
    PartitionOffline,
    StorageFailed,
    StorageFull,
)
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.retention import SegmentSummary, by_age, by_size
from tests.support.clock import ManualClock
from tests.support.faulty_files import Fault, FaultyFileLayer
from tests.support.logs import abandon, contents, entry, manager

E = entry(b"42")  # 12 bytes, the unit of the reference's segment example
assert len(E) == 12


class Recorder:
    """An appender that remembers what it is told."""

    def __init__(self) -> None:
        self.errors: list[PartitionError] = []

    def append_failed(self, error: PartitionError) -> None:
        self.errors.append(error)


def append(log: Log, data: bytes, count: int = 1, appender: Recorder | None = None) -> int:
    end = log.append(data, count, 0, appender)
    log.write_gathered()
    return end


def append_and_flush(log: Log, data: bytes, count: int = 1) -> None:
    log.append(data, count, 0)
    log.flush()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(tmp_path: Path) -> FaultyFileLayer:
    return FaultyFileLayer(tmp_path)


def test_new_log_is_empty_and_starts_at_zero(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs")
    log = logs.get_or_create("t", 3)
    assert (log.start_offset, log.high_watermark, log.written_end, log.log_end) == (0, 0, 0, 0)
    assert (tmp_path / "logs" / "t-3" / "00000000000000000000.kafka").read_bytes() == b""
    assert log.read(0, 100) is None
    logs.close()


def test_three_ends_move_one_after_the_other(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs")
    log = logs.get_or_create("t", 0)
    assert log.append(E, 1, 0) == 12
    assert (log.high_watermark, log.written_end, log.log_end) == (0, 0, 12)
    log.write_gathered()
    assert (log.high_watermark, log.written_end, log.log_end) == (0, 12, 12)
    job = log.begin_flush()
    assert job is not None
    assert log.begin_flush() is None, "one flush at a time"
    append(log, E)
    job.run()
    log.complete_flush(job)
    assert (log.high_watermark, log.written_end, log.log_end) == (12, 24, 24)
    logs.close()


def test_many_sets_of_a_turn_are_one_write(tmp_path: Path, files: FaultyFileLayer) -> None:
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    for _ in range(100):
        log.append(E, 1, 0)
    files.operations.clear()
    log.write_gathered()
    assert files.operations == ["write_at"]
    log.flush()
    assert contents(log) == E * 100
    logs.close()


def test_more_sets_than_one_system_call_takes(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs")
    log = logs.get_or_create("t", 0)
    for _ in range(2500):
        log.append(E, 1, 0)
    log.flush()
    assert contents(log) == E * 2500
    logs.close()


def test_segments_of_the_original_s_own_test(tmp_path: Path) -> None:
    """Size limit 100, twenty 12-byte entries: segments at 0, 108, 216; end 240."""
    logs = manager(tmp_path / "logs", segment_bytes_max=100)
    log = logs.get_or_create("t", 0)
    for _ in range(20):
        append_and_flush(log, E)
    assert [segment.start for segment in log.segments] == [0, 108, 216]
    assert log.high_watermark == 240
    assert log.offsets_before(-1, 10) == [240, 216, 108, 0]
    assert log.offsets_before(-2, 10) == [0]
    assert contents(log) == E * 20
    logs.close()


def test_segments_are_the_same_when_all_sets_come_in_one_turn(tmp_path: Path) -> None:
    """The roll waits for the flush, the sets wait in memory, and the boundaries do not move."""
    logs = manager(tmp_path / "logs", segment_bytes_max=100)
    log = logs.get_or_create("t", 0)
    for number in range(20):
        assert log.append(E, 1, 0) == 12 * (number + 1)
    assert log.is_held
    log.flush()
    assert [segment.start for segment in log.segments] == [0, 108, 216]
    assert contents(log) == E * 20
    assert not log.is_held
    logs.close()


def test_held_sets_are_copied(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs", segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    buffer = bytearray(E)
    for _ in range(5):
        log.append(memoryview(buffer), 1, 0)
        if log.is_held:
            break
    else:
        raise AssertionError("nothing was held")
    log.write_gathered()
    buffer[:] = bytes(12)  # the receive buffer is used again
    log.flush()
    assert contents(log) == E * (log.high_watermark // 12)
    logs.close()


def test_roll_flushes_the_old_segment_before_the_new_one_exists(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    append(log, E)
    append(log, E)
    log.append(E, 1, 0)
    assert log.segment_count == 1
    job = log.begin_flush()
    assert job is not None
    job.run()
    assert files.durable_contents[log.segments[0].path] == E + E
    log.complete_flush(job)
    assert log.segment_count == 2
    logs.close()


def test_age_rolls_by_the_first_append_strictly(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(tmp_path / "logs", clock=clock, roll_age_ms=1000)
    log = logs.get_or_create("t", 0)
    clock.advance(10_000)  # an empty segment has no age
    log.append(E, 1, clock())
    log.flush()
    clock.advance(1000)
    log.append(E, 1, clock())
    log.flush()
    assert log.segment_count == 1
    clock.advance(1)
    log.append(b"", 0, clock())  # even an empty set rolls
    assert log.segment_count == 2
    clock.advance(10_000)
    log.append(E, 1, clock())
    log.flush()
    assert [segment.start for segment in log.segments] == [0, 24]
    logs.close()


def test_age_timer_is_unset_after_a_restart_until_the_next_append(
    tmp_path: Path, clock: ManualClock
) -> None:
    logs = manager(tmp_path / "logs", clock=clock, roll_age_ms=1000)
    append_and_flush(logs.get_or_create("t", 0), E)
    logs.close()
    clock.advance(10_000)
    logs = manager(tmp_path / "logs", clock=clock, roll_age_ms=1000)
    log = logs.get_or_create("t", 0)
    log.append(E, 1, clock())
    log.flush()
    assert log.segment_count == 1
    logs.close()


# --- reading -------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> Log:
    """Segments 0 and 24 (full), 48 (12 bytes flushed, 12 written)."""
    logs = manager(tmp_path / "logs", segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    for _ in range(5):
        append_and_flush(log, E)
    append(log, E)
    assert [segment.start for segment in log.segments] == [0, 24, 48]
    return log


def test_read_stops_at_the_end_of_a_segment(three: Log) -> None:
    region = three.read(12, 10_000)
    assert region is not None
    assert (region.position, region.count) == (12, 12)
    region.release()


def test_read_stops_at_the_watermark(three: Log) -> None:
    region = three.read(48, 10_000)
    assert region is not None
    assert region.count == 12
    region.release()
    assert three.read(60, 10_000) is None


def test_read_of_a_segment_s_start_is_not_the_empty_end_of_the_one_before(three: Log) -> None:
    region = three.read(24, 5)
    assert region is not None
    assert (region.segment.start, region.position, region.count) == (24, 0, 5)
    region.release()


@pytest.mark.parametrize("offset", [-1, -2, 61, 72, 2**63 - 1])
def test_read_outside_is_out_of_range(three: Log, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange):
        three.read(offset, 100)


@pytest.mark.parametrize(("offset", "size_max"), [(0, 0), (0, -100), (60, -1), (60, 100)])
def test_read_of_no_bytes_or_at_the_end_is_nothing(three: Log, offset: int, size_max: int) -> None:
    assert three.read(offset, size_max) is None


def test_messages_out_go_by_the_size_of_what_came_in_or_was_found(
    tmp_path: Path, clock: ManualClock
) -> None:
    logs = manager(tmp_path / "logs", clock=clock)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E + E)
    log.count_out(len(E))
    assert (log.bytes_out, log.messages_out) == (len(E), 0.5), "one set of two counted as one"
    logs.close()
    again = manager(tmp_path / "logs", clock=clock)
    found = again.logs["t", 0]
    found.count_out(len(E) * 2)
    assert found.messages_out == 2, "two entries were found at the start"
    append_and_flush(found, E * 4)
    found.count_out(len(E) * 4)
    assert found.messages_out == 3
    again.close()


def test_region_outlives_its_deleted_segment(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20, retention=by_size(1))
    log = logs.get_or_create("t", 0)
    for _ in range(6):
        append_and_flush(log, E)
    region = log.read(0, 100)
    assert region is not None
    job = log.retire(clock())
    assert job is not None
    job.run()
    assert job.error is None
    assert not region.segment.path.exists()
    assert os.pread(region.fd, region.count, region.position) == E + E
    fd = region.fd
    region.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)
    logs.close()


# --- offsets by time -----------------------------------------------------------------------------


def test_offsets_by_time_are_of_whole_segments(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    times = []
    for _ in range(6):
        append_and_flush(log, E)
        times.append(clock())
        clock.advance(1000)
    assert [segment.start for segment in log.segments] == [0, 24, 48]
    assert log.offsets_before(times[0], 10) == []
    assert log.offsets_before(times[1], 10) == [0]
    assert log.offsets_before(times[3], 10) == [24, 0]
    assert log.offsets_before(times[3], 1) == [24]
    assert log.offsets_before(times[3], 0) == []
    assert log.offsets_before(clock(), 10) == [72, 48, 24, 0]
    assert log.offsets_before(clock() - 1, 10) == [48, 24, 0]
    logs.close()


def test_segment_times_survive_a_restart_in_the_files(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    for _ in range(6):
        append_and_flush(log, E)
        clock.advance(1000)
    before = [segment.time_ms for segment in log.segments]
    logs.close()
    clock.advance(10**9)
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20)
    assert [segment.time_ms for segment in logs.logs["t", 0].segments] == before
    logs.close()


def test_latest_of_an_empty_active_segment_is_its_start(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs", segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    assert log.offsets_before(-1, 10) == [0]
    assert log.offsets_before(-2, 10) == [0]
    logs.close()


# --- retention -----------------------------------------------------------------------------------


def retire(log: Log, now_ms: int) -> int:
    job = log.retire(now_ms)
    if job is None:
        return 0
    job.run()
    log.complete_retirement(job)
    assert job.error is None
    return len(job.removed)


def test_everything_expired_leaves_an_empty_segment_at_the_old_end(
    tmp_path: Path, clock: ManualClock
) -> None:
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20, retention=by_age(1000))
    log = logs.get_or_create("t", 0)
    for _ in range(5):
        append_and_flush(log, E)
    clock.advance(1001)
    assert retire(log, clock()) == 3
    assert (log.start_offset, log.high_watermark) == (60, 60)
    assert sorted(path.name for path in log.directory.iterdir()) == ["00000000000000000060.kafka"]
    assert log.offsets_before(-1, 10) == [60]
    append_and_flush(log, E)
    assert contents(log) == E
    logs.close()
    logs = manager(tmp_path / "logs", clock=clock)
    assert logs.logs["t", 0].start_offset == 60
    logs.close()


def test_an_only_empty_segment_is_kept_and_made_new(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(tmp_path / "logs", clock=clock, retention=by_age(1000))
    log = logs.get_or_create("t", 0)
    clock.advance(5000)
    assert retire(log, clock()) == 0
    assert log.segments[0].time_ms == clock()
    logs.close()


def test_an_unflushed_active_segment_is_not_deleted(tmp_path: Path, clock: ManualClock) -> None:
    logs = manager(tmp_path / "logs", clock=clock, retention=by_age(1000))
    log = logs.get_or_create("t", 0)
    append(log, E)
    clock.advance(5000)
    assert retire(log, clock()) == 0
    log.flush()
    assert contents(log) == E
    logs.close()


def test_new_segment_is_durable_before_the_old_ones_are_removed(
    tmp_path: Path, clock: ManualClock, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files, clock=clock, retention=by_age(1000))
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    clock.advance(5000)
    job = log.retire(clock())
    assert job is not None
    files.operations.clear()
    job.run()
    assert files.operations == ["sync_directory", "remove", "sync_directory"]
    logs.close()


def all_but_the_last(segments: Sequence[SegmentSummary], _now_ms: int) -> int:
    return len(segments) - 1


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_removal_that_failed_is_taken_up_again_before_newer_segments_go(
    tmp_path: Path, clock: ManualClock, files: FaultyFileLayer, nth: int, error: int
) -> None:
    """Else a later round leaves a gap behind it, and the next start takes the partition offline."""
    logs = manager(tmp_path / "logs", files, segment_bytes_max=5, retention=all_but_the_last)
    log = logs.get_or_create("t", 0)
    for _ in range(3):
        append_and_flush(log, E)
    job = log.retire(clock())
    assert job is not None
    files.fault = Fault(nth, error, ("sync_directory", "remove"))
    job.run()
    log.complete_retirement(job)
    assert job.error is not None
    assert len(job.removed) + len(job.segments) == 2
    append_and_flush(log, E)
    files.fault = Fault(2, error, ("remove",))  # the second round removes the oldest only
    job = log.retire(clock())
    assert job is not None
    job.run()
    log.complete_retirement(job)
    abandon(logs)
    logs = manager(tmp_path / "logs", segment_bytes_max=5, retention=all_but_the_last)
    log = logs.logs["t", 0]
    assert log.state is LogState.ONLINE, log.state_reason
    assert contents(log).endswith(E)
    assert log.high_watermark == 4 * len(E)
    retire(log, clock())
    assert [path.name for path in log.directory.iterdir()] == [f"{36:020d}.kafka"]
    logs.close()


def test_one_round_of_retention_at_a_time(tmp_path: Path, clock: ManualClock) -> None:
    """The newer of two that overlap could remove first what the older one has still to remove."""
    logs = manager(tmp_path / "logs", segment_bytes_max=5, retention=all_but_the_last)
    log = logs.get_or_create("t", 0)
    for _ in range(3):
        append_and_flush(log, E)
    first = log.retire(clock())
    assert first is not None
    append_and_flush(log, E)
    assert log.retire(clock()) is None
    first.run()
    log.complete_retirement(first)
    assert retire(log, clock()) == 1
    assert [path.name for path in log.directory.iterdir()] == [f"{36:020d}.kafka"]
    logs.close()


# --- faults --------------------------------------------------------------------------------------


def test_short_writes_go_on_where_they_stopped(tmp_path: Path, files: FaultyFileLayer) -> None:
    """B1: the original starts again at byte 0 after a short write."""
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    files.short_write = lambda size: max(1, size // 3)
    sets = [entry(bytes([number]) * number) for number in range(200)]
    for one in sets:
        log.append(one, 1, 0)
    log.flush()
    assert contents(log) == b"".join(sets)
    logs.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_full_disk_refuses_the_set_and_keeps_the_log(
    tmp_path: Path, files: FaultyFileLayer, error: int
) -> None:
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    told = Recorder()
    files.fault = Fault(1, error, ("write_at",))
    append(log, E * 3, 3, told)
    assert [type(one) for one in told.errors] == [StorageFull]
    assert (log.written_end, log.log_end) == (12, 12)
    assert contents(log) == E, "reads go on"
    append_and_flush(log, E)
    assert contents(log) == E * 2, "writes go on when there is room"
    logs.close()


def test_full_disk_in_the_middle_of_a_turn_keeps_the_whole_sets(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    first, second, third = Recorder(), Recorder(), Recorder()
    taken = iter([17, 0])

    def short(size: int) -> int:
        count = next(taken)
        if count == 0:
            raise OSError(errno.ENOSPC, "full")
        return count

    files.short_write = short
    log.append(E, 1, 0, first)
    log.append(E, 1, 0, second)
    log.append(E, 1, 0, third)
    log.write_gathered()
    files.short_write = None
    assert (first.errors, len(second.errors), len(third.errors)) == ([], 1, 1)
    assert log.segments[0].path.read_bytes() == E, "the half set is cut off again"
    append_and_flush(log, E)
    assert contents(log) == E * 2
    logs.close()


def test_failed_write_makes_the_log_read_only(tmp_path: Path, files: FaultyFileLayer) -> None:
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    told = Recorder()
    files.fault = Fault(1, errno.EIO, ("write_at",))
    append(log, E, 1, told)
    assert [type(one) for one in told.errors] == [StorageFailed]
    assert log.state is LogState.FAILED
    with pytest.raises(StorageFailed):
        log.append(E, 1, 0)
    assert contents(log) == E
    assert logs.close() is False


def test_failed_flush_freezes_the_watermark_for_good(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    """A second flush that succeeds proves nothing (S12)."""
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    files.fault = Fault(1, errno.EIO, ("sync_data",))
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    append(log, E)
    log.when_flushed(24, barrier)
    barrier.seal()
    log.flush()
    assert outcome == [False]
    assert log.state is LogState.FAILED
    assert log.high_watermark == 12
    assert log.begin_flush() is None
    assert contents(log) == E
    assert logs.all_failed
    assert logs.close() is False
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("nth", [1, 2])
def test_no_descriptor_for_a_directory_postpones_the_flush(
    tmp_path: Path, files: FaultyFileLayer, nth: int
) -> None:
    """Descriptors ran out: nothing was asked of the disk yet, so nothing has failed."""
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    log.when_flushed(append(log, E), barrier)
    barrier.seal()
    files.fault = Fault(nth, errno.EMFILE, ("sync_directory",))
    files.operations.clear()
    log.flush()
    assert (log.state, log.high_watermark, outcome) == (LogState.ONLINE, 0, [])
    assert "sync_data" not in files.operations, "nothing is visible before its names are durable"
    files.operations.clear()
    log.flush()
    assert files.operations == ["sync_directory"] * (3 - nth) + ["sync_data"]
    assert outcome == [True]
    assert contents(log) == E
    logs.close()


def test_no_descriptor_until_the_end_is_no_clean_stop(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files)
    log = logs.get_or_create("t", 0)
    append(log, E)
    files.fault = Fault(1, errno.EMFILE, ("sync_directory",), persistent=True)
    assert logs.close() is False
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    logs = manager(tmp_path / "logs")
    assert contents(logs.logs["t", 0]) == E
    logs.close()


def test_a_log_that_fails_does_not_take_the_others_along(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files)
    one, other = logs.get_or_create("t", 0), logs.get_or_create("t", 1)
    files.fault = Fault(1, errno.EIO, ("sync_data",))
    append_and_flush(one, E)
    append_and_flush(other, E)
    assert (one.state, other.state) == (LogState.FAILED, LogState.ONLINE)
    assert contents(other) == E
    assert not logs.all_failed
    logs.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_no_room_for_a_new_segment_refuses_and_tries_again_later(
    tmp_path: Path, files: FaultyFileLayer, error: int
) -> None:
    logs = manager(tmp_path / "logs", files, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E * 2, 2)
    files.fault = Fault(1, error, ("open",))
    with pytest.raises(StorageFull):
        log.append(E, 1, 0)
    append_and_flush(log, E)
    assert [segment.start for segment in log.segments] == [0, 24]
    assert contents(log) == E * 3
    logs.close()


def test_no_room_for_a_new_segment_refuses_the_held_sets(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    append(log, E * 2, 2)
    told = Recorder()
    outcome: list[bool] = []
    end = log.append(E, 1, 0, told)
    barrier = Barrier(outcome.append)
    log.when_written(end, barrier)
    barrier.seal()
    files.fault = Fault(1, errno.ENOSPC, ("open",))
    log.flush()
    assert [type(one) for one in told.errors] == [StorageFull]
    assert outcome == [False]
    assert log.log_end == 24
    append_and_flush(log, E)
    assert contents(log) == E * 3
    logs.close()


@pytest.mark.parametrize("is_flushing", [False, True])
def test_full_disk_while_a_roll_waits_refuses_and_goes_on_when_there_is_room(
    tmp_path: Path, files: FaultyFileLayer, is_flushing: bool
) -> None:
    """The flush that the roll waited for may never come: nothing was written."""
    logs = manager(tmp_path / "logs", files, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    append(log, E)
    job = log.begin_flush()
    assert job is not None
    if not is_flushing:
        job.run()
        log.complete_flush(job)
    first, held = Recorder(), Recorder()
    log.append(E, 1, 0, first)
    log.append(E, 1, 0, held)
    assert log.is_held
    files.fault = Fault(1, errno.ENOSPC, ("write_at",))
    log.write_gathered()
    assert [len(told.errors) for told in (first, held)] == [1, 1]
    if is_flushing:
        job.run()
        log.complete_flush(job)
    for _ in range(3):
        append_and_flush(log, E)
    assert not log.is_held
    assert contents(log) == E * 4
    assert [segment.start for segment in log.segments] == [0, 24]
    logs.close()


def test_a_failed_write_leaves_no_lease_on_the_segment_that_a_roll_retires(
    tmp_path: Path, files: FaultyFileLayer, clock: ManualClock
) -> None:
    """Else the old file stays open for ever, and the new one is closed under a fetch of it: the
    descriptor's number may then be another file's."""
    logs = manager(
        tmp_path / "logs", files, clock=clock, retention=by_age(1000), open_segments_max=2
    )
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    files.fault = Fault(1, errno.ENOSPC, ("write_at",))
    append(log, E)
    old = log.segments[0]
    assert old.users == 0
    clock.advance(2000)
    job = log.retire(clock())
    assert job is not None
    job.run()
    assert old.fd < 0, "the removed file is let go"
    append_and_flush(log, E)
    active = log.segments[-1]
    assert active.users == 0
    region = log.read(len(E), 100)
    assert region is not None
    for partition in range(1, 6):
        append_and_flush(logs.get_or_create("t", partition), E)
    assert os.pread(region.fd, region.count, region.position) == E
    assert files.paths[region.fd] == active.path
    region.release()
    logs.close()
    assert files.paths == {}


def test_a_roll_lets_go_of_the_old_segment_whatever_was_pinned(
    tmp_path: Path, files: FaultyFileLayer
) -> None:
    logs = manager(tmp_path / "logs", files, segment_bytes_max=5)
    log = logs.get_or_create("t", 0)
    for number in range(6):
        files.fault = Fault(1, errno.ENOSPC, ("write_at",)) if number % 2 else None
        append(log, E)
        log.flush()
    assert [segment.users for segment in log.segments] == [0] * log.segment_count
    logs.close()


def test_offline_partition_neither_reads_nor_writes(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / "00000000000000000000.kafka").write_bytes(E[:-1] + b"!" + E)
    logs = manager(root)
    log = logs.logs["t", 0]
    assert log.state is LogState.OFFLINE
    with pytest.raises(PartitionOffline):
        log.read(0, 100)
    with pytest.raises(PartitionOffline):
        log.append(E, 1, 0)
    with pytest.raises(PartitionOffline):
        log.offsets_before(-1, 1)
    assert log.retire(10**15) is None
    logs.close()
    assert (root / "t-0" / "00000000000000000000.kafka").read_bytes() == E[:-1] + b"!" + E


# --- barriers ------------------------------------------------------------------------------------


def test_barrier_over_two_logs_waits_for_both(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs")
    one, other = logs.get_or_create("t", 0), logs.get_or_create("t", 1)
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    one.when_flushed(append(one, E), barrier)
    other.when_flushed(append(other, E), barrier)
    assert not barrier.seal()
    one.flush()
    assert outcome == []
    other.flush()
    assert outcome == [True]
    logs.close()


def test_barrier_over_what_is_flushed_already_is_no_barrier(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs")
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    log.when_flushed(12, barrier)
    assert barrier.seal()
    assert outcome == [True]
    logs.close()


def test_cancelled_barrier_stays_silent(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs")
    log = logs.get_or_create("t", 0)
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    log.when_flushed(append(log, E), barrier)
    barrier.seal()
    barrier.cancel()
    log.flush()
    assert outcome == []
    logs.close()


# --- descriptors ---------------------------------------------------------------------------------


def test_open_files_stay_bounded_over_many_segments(tmp_path: Path) -> None:
    files = FaultyFileLayer(tmp_path)
    logs = manager(tmp_path / "logs", files, segment_bytes_max=5, open_segments_max=4)
    log = logs.get_or_create("t", 0)
    for _ in range(50):
        append_and_flush(log, E)
    assert log.segment_count == 50
    assert contents(log) == E * 50
    assert len(files.paths) <= 4
    logs.close()
    assert files.paths == {}


def test_a_leased_segment_is_never_closed_under_its_reader(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs", segment_bytes_max=5, open_segments_max=2)
    log = logs.get_or_create("t", 0)
    for number in range(10):
        append_and_flush(log, entry(b"%02d" % number))
    regions = [log.read(12 * number, 12) for number in range(10)]
    for number, region in enumerate(regions):
        assert region is not None
        assert os.pread(region.fd, 12, region.position) == entry(b"%02d" % number)
    for region in regions:
        assert region is not None
        region.release()
    logs.close()


def test_crash_leaves_everything_written(tmp_path: Path) -> None:
    logs = manager(tmp_path / "logs", segment_bytes_max=50)
    log = logs.get_or_create("t", 0)
    for _ in range(4):
        append(log, E)
    abandon(logs)
    again: LogManager = manager(tmp_path / "logs")
    assert contents(again.logs["t", 0]) == E * 4
    again.close()
