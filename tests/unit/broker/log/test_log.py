"""One partition's log: ends, rolls, reads, offsets by time, retention, faults and barriers."""

import errno
import os
from collections.abc import Sequence

import pytest

from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.errors import (
    PartitionError,
    PartitionOffline,
    StorageFailed,
    StorageFull,
)
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from kafka2011.broker.log.retention import SegmentSummary, by_age, by_size, each_in_turn
from tests.support.logs import contents, entry
from tests.unit.broker.data_directory import DataDirectory, append, append_and_flush, some

E = entry(b"42")  # 12 bytes: an entry is 10 bytes more than its payload
assert len(E) == 12


class Recorder:
    """An appender with the kinds of the errors that it was called with."""

    def __init__(self) -> None:
        self.errors: list[type[PartitionError]] = []

    def append_failed(self, topic: str, error: PartitionError) -> None:
        assert topic == "t"
        self.errors.append(type(error))


def ends(log: Log) -> tuple[int, int, int]:
    return log.high_watermark, log.written_end, log.log_end


def starts(log: Log) -> list[int]:
    return [segment.start for segment in log.segments]


def bytes_of(region: FileRegion) -> bytes:
    return os.pread(region.fd, region.count, region.position)


def barrier_behind(*offsets: tuple[Log, int]) -> list[bool]:
    """How a barrier behind these offsets ended: empty before it has."""
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    for log, offset in offsets:
        log.when_flushed(offset, barrier)
    assert barrier.seal() == bool(outcome)
    return outcome


def test_three_ends_move_one_after_the_other(disk: DataDirectory) -> None:
    log = disk.log()
    assert (log.start_offset, *ends(log)) == (0, 0, 0, 0)
    assert log.read(0, 100) is None
    assert log.offsets_before(-1, 10) == log.offsets_before(-2, 10) == [0]
    assert log.append(E, 1, 0) == 12
    assert ends(log) == (0, 0, 12)
    log.write_gathered()
    assert ends(log) == (0, 12, 12)
    job = some(log.begin_flush())
    assert log.begin_flush() is None, "one flush at a time"
    append(log, E)
    job.run()
    log.complete_flush(job)
    assert ends(log) == (12, 24, 24)


@pytest.mark.parametrize(("sets", "writes"), [(100, 1), (2500, 3)])
def test_all_sets_of_a_turn_are_one_write_of_at_most_1024_buffers(
    disk: DataDirectory, sets: int, writes: int
) -> None:
    log = disk.log()
    for _ in range(sets):
        log.append(E, 1, 0)
    disk.operations()
    log.write_gathered()
    assert disk.operations() == ["write_at"] * writes
    log.flush()
    assert contents(log) == E * sets


@pytest.mark.parametrize("turns", [1, 20], ids=["in one turn", "with a flush after each"])
def test_segments_of_the_original_s_own_test(disk: DataDirectory, turns: int) -> None:
    """Size limit 100, twenty 12-byte entries: segments at 0, 108, 216; end 240. In one turn the
    roll waits for the flush, the sets wait in memory, and the boundaries do not move."""
    log = disk.log(segment_bytes_max=100)
    for number in range(20):
        assert log.append(E, 1, 0) == 12 * (number + 1)
        if turns == 20:
            log.flush()
    assert log.is_held == (turns == 1)
    log.flush()
    assert not log.is_held
    assert starts(log) == [0, 108, 216]
    assert log.high_watermark == 240
    assert log.offsets_before(-1, 10) == [240, 216, 108, 0]
    assert log.offsets_before(-2, 10) == [0]
    assert contents(log) == E * 20


def test_held_sets_are_copied(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=20)
    buffer = bytearray(E)
    while not log.is_held:
        log.append(memoryview(buffer), 1, 0)
        assert log.log_end < 100, "nothing was held"
    log.write_gathered()
    buffer[:] = bytes(12)  # the receive buffer is used again
    log.flush()
    assert contents(log) == E * (log.high_watermark // 12)


def test_roll_flushes_the_old_segment_before_the_new_one_exists(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=20)
    append(log, E)
    append(log, E)
    log.append(E, 1, 0)
    assert log.segment_count == 1
    job = some(log.begin_flush())
    job.run()
    assert disk.files.durable_contents[log.segments[0].path] == E + E
    log.complete_flush(job)
    assert log.segment_count == 2


def test_age_rolls_by_the_first_append_strictly(disk: DataDirectory) -> None:
    def append_after(pause_ms: int, data: bytes) -> int:
        disk.clock.advance(pause_ms)
        log.append(data, 1, disk.clock())
        log.flush()
        return log.segment_count

    log = disk.log(roll_age_ms=1000)
    assert append_after(10_000, E) == 1, "an empty segment has no age"
    assert append_after(1000, E) == 1
    assert append_after(1, b"") == 2, "even an empty set rolls"
    assert append_after(10_000, E) == 2
    assert starts(log) == [0, 24]
    disk.clock.advance(10_000)
    log = disk.log(roll_age_ms=1000)
    assert append_after(0, E) == 2, "the timer is unset after a restart"


# --- reading -------------------------------------------------------------------------------------


def test_messages_out_go_by_the_size_of_what_came_in_or_was_found(disk: DataDirectory) -> None:
    log = disk.log()
    append_and_flush(log, E + E)
    log.count_out(len(E))
    assert (log.bytes_out, log.messages_out) == (len(E), 0.5), "one set of two counted as one"
    found = disk.log()
    found.count_out(len(E) * 2)
    assert found.messages_out == 2, "two entries were found at the start"
    append_and_flush(found, E * 4)
    found.count_out(len(E) * 4)
    assert found.messages_out == 3


def test_region_outlives_its_deleted_segment(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=20, retention=all_but_the_last)
    append_and_flush(log, *[E] * 6)
    region = some(log.read(0, 100))
    assert retire(log, disk.clock()) == 2
    assert not region.segment.path.exists()
    assert bytes_of(region) == E + E
    fd = region.fd
    region.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


# --- offsets by time -----------------------------------------------------------------------------


def test_offsets_by_time_are_of_whole_segments_also_after_a_restart(disk: DataDirectory) -> None:
    began = disk.clock()
    log = disk.log(segment_bytes_max=20)
    for _ in range(6):
        append_and_flush(log, E)
        disk.clock.advance(1000)
    assert starts(log) == [0, 24, 48]
    rows = [  # time, maximum, offsets
        (began, 10, []),
        (began + 1000, 10, [0]),
        (began + 3000, 10, [24, 0]),
        (began + 3000, 1, [24]),
        (began + 3000, 0, []),
        (began + 6000, 10, [72, 48, 24, 0]),
        (began + 5999, 10, [48, 24, 0]),
    ]
    assert [log.offsets_before(time_ms, count) for time_ms, count, _ in rows] == [
        found for *_, found in rows
    ]
    times = [segment.time_ms for segment in log.segments]
    disk.close()
    disk.clock.advance(10**9)
    assert [segment.time_ms for segment in disk.log().segments] == times, "kept in the files"


# --- retention -----------------------------------------------------------------------------------


def retire(log: Log, now_ms: int) -> int:
    """A whole round of retention. Returns how many segments it removed."""
    job = log.retire(now_ms)
    if job is None:
        return 0
    job.run()
    log.complete_retirement(job)
    assert job.error is None
    return len(job.removed)


def all_but_the_last(segments: Sequence[SegmentSummary], _now_ms: int) -> int:
    return len(segments) - 1


def test_everything_expired_leaves_an_empty_segment_at_the_old_end(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=20, retention=by_age(1000))
    append_and_flush(log, *[E] * 5)
    disk.clock.advance(1001)
    assert retire(log, disk.clock()) == 3
    assert (log.start_offset, log.high_watermark) == (60, 60)
    assert disk.names() == ["00000000000000000060.kafka"]
    assert log.offsets_before(-1, 10) == [60]
    append_and_flush(log, E)
    assert contents(log) == E
    assert disk.log().start_offset == 60


def test_an_only_empty_segment_is_kept_and_made_new(disk: DataDirectory) -> None:
    log = disk.log(retention=by_age(1000))
    disk.clock.advance(5000)
    assert retire(log, disk.clock()) == 0
    assert log.segments[0].time_ms == disk.clock()


def test_an_unflushed_active_segment_is_not_deleted(disk: DataDirectory) -> None:
    log = disk.log(retention=by_age(1000))
    append(log, E)
    disk.clock.advance(5000)
    assert retire(log, disk.clock()) == 0
    log.flush()
    assert contents(log) == E


def test_new_segment_is_durable_before_the_old_ones_are_removed(disk: DataDirectory) -> None:
    log = disk.log(retention=by_age(1000))
    append_and_flush(log, E)
    disk.clock.advance(5000)
    job = some(log.retire(disk.clock()))
    disk.operations()
    job.run()
    assert disk.operations() == ["sync_directory", "remove", "sync_directory"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_removal_that_failed_is_taken_up_again_before_newer_segments_go(
    disk: DataDirectory, nth: int, error: int
) -> None:
    """Else a later round leaves a gap behind it, and the next start takes the partition offline."""
    log = disk.log(segment_bytes_max=5, retention=all_but_the_last)
    append_and_flush(log, *[E] * 3)
    job = some(log.retire(disk.clock()))
    disk.fail(error, "sync_directory", "remove", nth=nth)
    job.run()
    log.complete_retirement(job)
    assert job.error is not None
    assert len(job.removed) + len(job.segments) == 2
    append_and_flush(log, E)
    disk.fail(error, "remove", nth=2)  # the second round removes the oldest only
    job = some(log.retire(disk.clock()))
    job.run()
    log.complete_retirement(job)
    disk.crash()
    log = disk.log(segment_bytes_max=5, retention=all_but_the_last)
    assert log.state is LogState.ONLINE, log.state_reason
    assert contents(log).endswith(E)
    assert log.high_watermark == 4 * len(E)
    retire(log, disk.clock())
    assert disk.names() == [f"{36:020d}.kafka"]


def test_one_round_of_retention_at_a_time(disk: DataDirectory) -> None:
    """The newer of two that overlap could remove first what the older one has still to remove."""
    log = disk.log(segment_bytes_max=5, retention=all_but_the_last)
    append_and_flush(log, *[E] * 3)
    first = some(log.retire(disk.clock()))
    append_and_flush(log, E)
    assert log.retire(disk.clock()) is None
    first.run()
    log.complete_retirement(first)
    assert retire(log, disk.clock()) == 1
    assert disk.names() == [f"{36:020d}.kafka"]


# --- faults --------------------------------------------------------------------------------------


def test_short_writes_go_on_where_they_stopped(disk: DataDirectory) -> None:
    """B1: the original starts again at byte 0 after a short write."""
    log = disk.log()
    disk.files.short_write = lambda size: max(1, size // 3)
    sets = [entry(bytes([number]) * number) for number in range(200)]
    for one in sets:
        log.append(one, 1, 0)
    log.flush()
    assert contents(log) == b"".join(sets)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE])
def test_full_disk_refuses_the_set_and_keeps_the_log(disk: DataDirectory, error: int) -> None:
    log = disk.log()
    append_and_flush(log, E)
    appender = Recorder()
    disk.fail(error, "write_at")
    append(log, E * 3, 3, appender)
    assert appender.errors == [StorageFull]
    assert ends(log) == (12, 12, 12)
    assert contents(log) == E, "reads go on"
    append_and_flush(log, E)
    assert contents(log) == E * 2, "writes go on when there is room"


@pytest.mark.parametrize(
    ("kind", "refused"), [("write_at", [StorageFailed]), ("sync_data", [])], ids=["write", "flush"]
)
def test_failed_write_or_flush_makes_the_log_read_only_for_good(
    disk: DataDirectory, kind: str, refused: list[type[PartitionError]]
) -> None:
    """A second flush that succeeds proves nothing (S12)."""
    logs = disk.open()
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    appender = Recorder()
    disk.fail(errno.EIO, kind)
    outcome = barrier_behind((log, log.append(E, 1, 0, appender)))
    log.flush()
    assert (appender.errors, outcome) == (refused, [False])
    assert (log.state, log.high_watermark) == (LogState.FAILED, 12)
    assert log.begin_flush() is None
    with pytest.raises(StorageFailed):
        log.append(E, 1, 0)
    assert contents(log) == E
    assert logs.all_failed
    assert not disk.close()
    assert not (disk.root / ".kafka_cleanshutdown").exists()


def test_full_disk_in_the_middle_of_a_turn_keeps_the_whole_sets(disk: DataDirectory) -> None:
    taken = iter([17])

    def short(size: int) -> int:
        for count in taken:
            return count
        raise OSError(errno.ENOSPC, "full")

    log = disk.log()
    disk.files.short_write = short
    appenders = [Recorder() for _ in range(3)]
    for appender in appenders:
        log.append(E, 1, 0, appender)
    log.write_gathered()
    disk.files.short_write = None
    assert [one.errors for one in appenders] == [[], [StorageFull], [StorageFull]]
    assert log.segments[0].path.read_bytes() == E, "the half set is cut off again"
    append_and_flush(log, E)
    assert contents(log) == E * 2


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_messages_in_are_those_that_were_written(disk: DataDirectory, error: int) -> None:
    """Messages out are counted by their mean size."""
    log = disk.log()
    append_and_flush(log, E)
    taken = iter([2 * len(E) + 5])

    def short(size: int) -> int:
        del size
        for count in taken:
            return count
        raise OSError(error, "no more")

    disk.files.short_write = short
    for _ in range(4):
        log.append(E, 1, 0)
    log.write_gathered()
    disk.files.short_write = None
    assert (log.messages_in, log.bytes_in) == (3, 3 * len(E)), "two of the four were whole"
    log.count_out(len(E))
    assert log.messages_out == 1


@pytest.mark.parametrize("nth", [1, 2])
def test_no_descriptor_for_a_directory_postpones_the_flush(disk: DataDirectory, nth: int) -> None:
    """Descriptors ran out: nothing was asked of the disk yet, so nothing has failed."""
    log = disk.log()
    outcome = barrier_behind((log, append(log, E)))
    disk.fail(errno.EMFILE, "sync_directory", nth=nth)
    disk.operations()
    log.flush()
    assert (log.state, log.high_watermark, outcome) == (LogState.ONLINE, 0, [])
    assert "sync_data" not in disk.operations(), "nothing is visible before its names are durable"
    log.flush()
    assert disk.operations() == ["sync_directory"] * (3 - nth) + ["sync_data"]
    assert outcome == [True]
    assert contents(log) == E


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_no_room_for_a_new_segment_refuses_and_tries_again_later(
    disk: DataDirectory, error: int
) -> None:
    log = disk.log(segment_bytes_max=20)
    append_and_flush(log, E * 2)
    disk.fail(error, "open")
    with pytest.raises(StorageFull):
        log.append(E, 1, 0)
    append_and_flush(log, E)
    assert starts(log) == [0, 24]
    assert contents(log) == E * 3


def test_no_descriptor_for_a_segment_that_an_earlier_process_left_refuses_and_tries_again(
    disk: DataDirectory,
) -> None:
    """It stopped between creation and use."""
    log = disk.log(segment_bytes_max=20)
    append_and_flush(log, E * 2)
    disk.put(b"", 24)
    disk.fail(errno.EMFILE, "open", nth=2)  # behind the attempt to create it
    with pytest.raises(StorageFull):
        log.append(E, 1, 0)
    append_and_flush(log, E)
    assert (log.state, starts(log), contents(log)) == (LogState.ONLINE, [0, 24], E * 3)


def test_no_room_for_a_new_segment_refuses_the_held_sets(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=20)
    append(log, E * 2, 2)
    appender = Recorder()
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    log.when_written(log.append(E, 1, 0, appender), barrier)
    barrier.seal()
    disk.fail(errno.ENOSPC, "open")
    log.flush()
    assert appender.errors == [StorageFull]
    assert outcome == [False]
    assert log.log_end == 24
    append_and_flush(log, E)
    assert contents(log) == E * 3


@pytest.mark.parametrize("is_flushing", [False, True])
def test_full_disk_while_a_roll_waits_refuses_and_goes_on_when_there_is_room(
    disk: DataDirectory, is_flushing: bool
) -> None:
    """The flush that the roll waited for may never come: nothing was written."""
    log = disk.log(segment_bytes_max=20)
    append(log, E)
    job = some(log.begin_flush())
    if not is_flushing:
        job.run()
        log.complete_flush(job)
    first, held = Recorder(), Recorder()
    log.append(E, 1, 0, first)
    log.append(E, 1, 0, held)
    assert log.is_held
    disk.fail(errno.ENOSPC, "write_at")
    log.write_gathered()
    assert first.errors == held.errors == [StorageFull]
    if is_flushing:
        job.run()
        log.complete_flush(job)
    append_and_flush(log, *[E] * 3)
    assert not log.is_held
    assert contents(log) == E * 4
    assert starts(log) == [0, 24]


def test_a_failed_write_leaves_no_lease_on_the_segment_that_a_roll_retires(
    disk: DataDirectory,
) -> None:
    """Else the old file stays open for ever, and the new one is closed under a fetch of it: the
    descriptor's number may then be another file's."""
    logs = disk.open(retention=by_age(1000), open_segments_max=2)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    disk.fail(errno.ENOSPC, "write_at")
    append(log, E)
    old = log.segments[0]
    assert old.users == 0
    disk.clock.advance(2000)
    some(log.retire(disk.clock())).run()
    assert old.fd < 0, "the removed file is let go"
    append_and_flush(log, E)
    active = log.segments[-1]
    assert active.users == 0
    region = some(log.read(len(E), 100))
    for partition in range(1, 6):
        append_and_flush(logs.get_or_create("t", partition), E)
    assert bytes_of(region) == E
    assert disk.files.paths[region.fd] == active.path
    region.release()


def test_offline_partition_neither_reads_nor_writes(disk: DataDirectory) -> None:
    path = disk.put(E[:-1] + b"!" + E)
    log = disk.log()
    assert log.state is LogState.OFFLINE
    with pytest.raises(PartitionOffline):
        log.read(0, 100)
    with pytest.raises(PartitionOffline):
        log.append(E, 1, 0)
    with pytest.raises(PartitionOffline):
        log.offsets_before(-1, 1)
    assert log.retire(10**15) is None
    disk.close()
    assert path.read_bytes() == E[:-1] + b"!" + E


# --- barriers ------------------------------------------------------------------------------------


def test_barrier_over_two_logs_waits_for_both(disk: DataDirectory) -> None:
    logs = disk.open()
    one, other = logs.get_or_create("t", 0), logs.get_or_create("t", 1)
    outcome = barrier_behind((one, append(one, E)), (other, append(other, E)))
    one.flush()
    assert outcome == []
    other.flush()
    assert outcome == [True]
    assert barrier_behind((one, 12), (other, 12)) == [True], "all is flushed already"


# --- descriptors ---------------------------------------------------------------------------------


def test_open_files_stay_bounded_over_many_segments(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=5, open_segments_max=4)
    append_and_flush(log, *[E] * 50)
    assert log.segment_count == 50
    assert contents(log) == E * 50
    assert len(disk.files.paths) <= 4


def test_a_leased_segment_is_never_closed_under_its_reader(disk: DataDirectory) -> None:
    log = disk.log(segment_bytes_max=5, open_segments_max=2)
    sets = [entry(b"%02d" % number) for number in range(10)]
    append_and_flush(log, *sets)
    regions = [some(log.read(12 * number, 12)) for number in range(10)]
    assert [bytes_of(region) for region in regions] == sets
    for region in regions:
        region.release()


def test_what_was_open_beyond_the_limit_is_closed_when_it_is_let_go(disk: DataDirectory) -> None:
    """By reads of many segments at once, and by writes to many logs before their flushes. Else the
    peak stays for good, and a broker that has come to its descriptor limit accepts no more."""
    logs = disk.open(segment_bytes_max=5, open_segments_max=3)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, *[E] * 10)
    regions = [some(log.read(len(E) * number, 100)) for number in range(10)]
    others = [logs.get_or_create("t", number) for number in range(1, 10)]
    for other in others:
        append(other, E)
    assert len(disk.files.paths) == len(logs.open_files) == 19
    for region in regions:
        region.release()
    assert len(logs.open_files) == 9
    for other in others:
        other.flush()
    assert len(disk.files.paths) == len(logs.open_files) == 3
    assert contents(log) == E * 10


def test_a_region_gives_its_descriptor_back_only_when_too_many_are_open(
    disk: DataDirectory,
) -> None:
    log = disk.log(segment_bytes_max=5, open_segments_max=2, retention=all_but_the_last)
    append_and_flush(log, *[E] * 5)
    regions = [some(log.read(len(E) * number, 100)) for number in range(4)]
    for region in regions:
        region.yield_room()
    assert [region.fd >= 0 for region in regions] == [False, False, True, True]
    regions[0].open()
    assert bytes_of(regions[0]) == E
    retire(log, disk.clock())
    with pytest.raises(FileNotFoundError):
        regions[1].open()
    assert bytes_of(regions[2]) == E, "its descriptor is kept"
    for region in regions:
        region.release()
    assert len(disk.manager.open_files) <= 2


def test_retention_counts_what_is_confirmed_and_keeps_what_is_not(disk: DataDirectory) -> None:
    """A replica's, in three segments: the start never passes the watermark."""
    retention = each_in_turn(by_age(1000), by_size(3 * len(E)))
    log = disk.log(segment_bytes_max=20, retention=retention, replica=ReplicaIdentity(1, "a"))
    log.open_for_appends()
    append_and_flush(log, *[E] * 6)
    assert starts(log) == [0, 24, 48]
    log.ends.move_watermark(36)
    assert log.retire(disk.clock()) is None, "three messages are confirmed, and are to stay"
    disk.clock.advance(2000)
    job = some(log.retire(disk.clock()))
    job.run()
    log.complete_retirement(job)
    assert (log.start_offset, log.high_watermark) == (24, 36)
    log.ends.move_watermark(72)
    assert log.retire(disk.clock()) is not None
    assert log.start_offset == 72


def replicated(disk: DataDirectory) -> Log:
    """Three segments of two messages each, all confirmed, and due by their age."""
    log = disk.log(segment_bytes_max=20, retention=by_age(1000), replica=ReplicaIdentity(1, "a"))
    log.open_for_appends()
    append_and_flush(log, *[E] * 6)
    log.ends.move_watermark(72)
    disk.clock.advance(2000)
    return log


@pytest.mark.parametrize(
    ("limit", "start"), [(0, 0), (23, 0), (24, 24), (47, 24), (48, 48), (72, 48)]
)
def test_a_leader_keeps_what_followers_need_and_the_last_that_is_confirmed(
    disk: DataDirectory, limit: int, start: int
) -> None:
    """The segment that is left begins in every copy: none of them has other bytes there."""
    log = replicated(disk)
    log.retire(disk.clock(), limit)
    assert log.start_offset == start


@pytest.mark.parametrize(
    ("offset", "watermark", "start"), [(24, 72, 24), (47, 72, 24), (72, 72, 48), (48, 30, 24)]
)
def test_a_follower_removes_what_its_leader_has_let_go(
    disk: DataDirectory, offset: int, watermark: int, start: int
) -> None:
    replicated(disk).close()
    log = disk.log(retention=by_size(10**9), replica=ReplicaIdentity(1, "a"))
    log.ends.watermark = watermark
    job = some(log.retire_below(offset))
    assert log.retire_below(offset) is None, "one at a time"
    job.run()
    log.complete_retirement(job)
    assert log.start_offset == start
    assert disk.names()[0] == f"{start:020d}.kafka"
