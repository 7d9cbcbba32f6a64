"""The log of one partition: ordered segments, an end, and the watermark that fetches stop at.

Three ends, in order: `high_watermark` (flushed, visible) <= `written_end` (in the page cache)
<= `log_end` (taken over, written at the end of this loop turn). Appends are gathered and written
by one `write_gathered` per loop turn. A flush is three steps, so that the loop never waits for
the disk: `begin_flush` on the loop, `FlushJob.run` in any thread, `complete_flush` on the loop.

A new segment is created only when the old one is flushed to its end, so a segment that has a
successor is whole on the disk. Appends that come while a roll waits for that flush are held in
memory, and their connections read no further until they are written.

What may be at the same time, between two calls, while the log is online:

    state            means                                        holds only while
    _gathered        sets to write at the end of this turn        not _held, or before them
    _held            sets of the segment that is to come          _roll_pending
    _roll_pending    a new segment waits for a flush              _gathered, flushing, flush_wanted
    flushing         a job is out; it has a lease of its own      flush_wanted
    _pinned          a lease for the flush to come                flush_wanted

Nothing but a finished flush ends `_roll_pending`, but for a write that found no room: it refuses
what is held as well. A log that has failed has nothing gathered or held and no roll pending.

Everything here but `FlushJob.run` belongs to one thread.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from kafka2011.broker.log import suspect_cache
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.disk_jobs import FlushJob, Retirement
from kafka2011.broker.log.errors import (
    OffsetOutOfRange,
    PartitionError,
    PartitionOffline,
    StorageFailed,
    StorageFull,
)
from kafka2011.broker.log.file_layer import Buffer, FileLayer
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.offset_waiters import OffsetWaiters, Waiter
from kafka2011.broker.log.retention import RetentionPolicy, SegmentSummary
from kafka2011.broker.log.segment import OpenFiles, Segment, segment_name
from kafka2011.broker.log.segment_list import SegmentList
from kafka2011.broker.log.writing import write_all
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.failpoints import failpoint

# The disk says that there is no room: refuse the bytes, keep the log.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# More than any time or count: what does not happen.
NEVER = 2**63


class LogState(Enum):
    ONLINE = "online"
    FAILED = "failed"  # a write or flush failed: readable up to the frozen watermark
    OFFLINE = "offline"  # recovery found damage: neither readable nor writable


class Appender(Protocol):
    """The origin of a message set; it is called when the set was not kept."""

    def append_failed(self, error: PartitionError) -> None: ...


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of one topic's logs. `flush_interval_messages` None means group commit."""

    segment_bytes_max: int
    roll_age_ms: int
    flush_interval_messages: int | None
    flush_interval_ms: int
    retention: RetentionPolicy


class Log:
    """One partition. See the module's text for the rules of its three ends."""

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: Path,
        segments: list[Segment],
        settings: LogSettings,
        *,
        files: FileLayer,
        open_files: OpenFiles,
        clock: Clock,
        file_times: FileTimes,
        unsynced_directories: Sequence[Path] = (),
    ) -> None:
        """`segments` are whole, in order, without gaps, and not empty as a list."""
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self.state = LogState.ONLINE
        self.state_reason = ""
        self._files = files
        self._open_files = open_files
        self._clock = clock
        self._file_times = file_times
        self._unsynced_directories = list(unsynced_directories)

        self._segments = SegmentList(segments)
        self._active = segments[-1]
        self.high_watermark = self.written_end = self.log_end = self._active.end
        self.marked_end = 0  # the watermark when the flushed ends were last collected
        self.last_set_offset = self._active.start  # where the last appended set begins

        self._gathered: list[Buffer] = []
        self._appenders: list[Appender | None] = []
        self._gathered_end = self.log_end
        self._held: list[tuple[bytes, int, Appender | None]] = []
        self._roll_pending = False
        self._roll_at_ms = NEVER
        self._roll_limit = self._active.start + settings.segment_bytes_max

        self.flushing = False
        self._pinned = False
        self.messages_since_flush_began = 0  # what the count trigger looks at
        self.last_flush_ms = clock()
        self.flush_interval_messages = settings.flush_interval_messages or NEVER
        self._flush_waiters = OffsetWaiters()
        self._write_waiters = OffsetWaiters()
        self._data_waiters = OffsetWaiters()

        self._is_retiring = False
        self._unremoved: list[Segment] = []  # retired, but a round failed before their files went

        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_out = 0.0
        self._sampled_messages = self._sampled_bytes = 0

    @classmethod
    def offline(
        cls,
        topic: str,
        partition: int,
        directory: Path,
        reason: str,
        settings: LogSettings,
        *,
        files: FileLayer,
        open_files: OpenFiles,
        clock: Clock,
        file_times: FileTimes,
    ) -> "Log":
        """A partition whose files must not be touched (see `PartitionOffline`)."""
        nothing = Segment(directory / segment_name(0), 0, 0, 0)
        log = cls(
            topic,
            partition,
            directory,
            [nothing],
            settings,
            files=files,
            open_files=open_files,
            clock=clock,
            file_times=file_times,
        )
        log.state = LogState.OFFLINE
        log.state_reason = reason
        return log

    # --- appending -----------------------------------------------------------------------------

    def append(
        self,
        message_set: Buffer,
        message_count: int,
        now_ms: int,
        appender: Appender | None = None,
    ) -> int:
        """Take over a validated set of whole entries; returns the log end after it.

        The bytes are written by the next `write_gathered`, so `message_set` must not change before
        that. They are durable, and visible, once `high_watermark` has passed the returned offset.
        When `is_held` is true afterwards, hand in nothing more before `when_written`.

        Raises:
          StorageFailed, PartitionOffline: nothing was taken; close the connection.
          StorageFull: no room for a new segment; nothing was taken; close the connection.
        """
        size = len(message_set)
        if (
            self._gathered_end > self._roll_limit
            or self._roll_pending
            or now_ms > self._roll_at_ms
            or self.state is not LogState.ONLINE
        ):
            self._check_writable()
            if not self._ready_after_roll():
                if size:
                    self._held.append((bytes(message_set), message_count, appender))
                    self.log_end += size
                return self.log_end
        if size:
            self._gathered.append(message_set)
            self._appenders.append(appender)
            end = self._gathered_end + size
            self._gathered_end = self.log_end = end
            self.messages_since_flush_began += message_count
            self.messages_in += message_count
        return self.log_end

    @property
    def room_bytes(self) -> int:
        """How much can be appended before a set makes a new segment due."""
        return self._roll_limit - self._gathered_end

    @property
    def is_held(self) -> bool:
        """Whether sets wait in memory for a new segment."""
        return bool(self._held)

    @property
    def has_gathered(self) -> bool:
        """Whether `write_gathered` has something to write."""
        return bool(self._gathered)

    @property
    def has_flush_waiters(self) -> bool:
        """Whether a connection waits for a flush of this log."""
        return bool(self._flush_waiters)

    @property
    def roll_waits(self) -> bool:
        """Whether a new segment waits for the flush of the active one."""
        return self._roll_pending

    def _check_writable(self) -> None:
        if self.state is LogState.FAILED:
            raise StorageFailed(f"{self.name} is read-only: {self.state_reason}")
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def _ready_after_roll(self) -> bool:
        """Roll at once when nothing is in the way; else ask for it and return False."""
        if self._roll_pending:
            return False
        if self._gathered or self.flushing or self.written_end > self.high_watermark:
            self._roll_pending = True
            return False
        self._roll()
        return True

    def _roll(self) -> None:
        """Start a new active segment at the end of the flushed one. Raises PartitionError."""
        old = self._active
        new = Segment(
            self.directory / segment_name(self.written_end), self.written_end, 0, old.time_ms
        )
        try:
            failpoint("before_roll")
            self._open_files.create(new)
        except FileExistsError:
            # Left by an unclean stop between creation and use; only an empty one can be ours.
            self._adopt(new)
        except OSError as error:
            if error.errno in NO_ROOM or error.errno in (errno.EMFILE, errno.ENFILE):
                raise StorageFull(f"no new segment for {self.name}: {error.strerror}") from error
            self._fail(f"cannot create {new.path}: {error.strerror}")
            raise StorageFailed(self.state_reason) from error
        self._keep_time_of_active()
        self._unsynced_directories.append(self.directory)
        self._segments.add(new)
        self._unpin()
        self._active = new
        self.last_set_offset = new.start
        self._roll_limit = new.start + self.settings.segment_bytes_max
        self._roll_at_ms = NEVER
        failpoint("after_roll")

    def _adopt(self, segment: Segment) -> None:
        try:
            fd = self._open_files.lease(segment)
            self._open_files.release(segment)
            size = self._files.size(fd)
        except OSError as error:
            self._fail(f"cannot open {segment.path}: {error.strerror}")
            raise StorageFailed(self.state_reason) from error
        if size:
            self._fail(f"{segment.path} exists and is not empty")
            raise StorageFailed(self.state_reason)

    def _keep_time_of_active(self) -> None:
        """Nothing is left in the file of a segment that this process wrote nothing to: its time
        there is better than what this process's clock makes of it."""
        if self._roll_at_ms != NEVER:
            self._keep_time(self._active)

    def _keep_time(self, segment: Segment) -> None:
        """Leave the time of the last write in the file's modification time, which survives."""
        try:
            fd = self._open_files.lease(segment)
            try:
                self._files.set_modified_ms(fd, self._file_times.to_file(segment.time_ms))
            finally:
                self._open_files.release(segment)
        except OSError:
            pass  # the kernel's own time of the last write stands, which is the same but for clocks

    def write_gathered(self) -> None:
        """Write what was gathered since the last call. Never raises: the appenders of what
        was not kept are called."""
        buffers = self._gathered
        if not buffers:
            return
        appenders, self._gathered, self._appenders = self._appenders, [], []
        segment = self._active
        written, error = 0, None
        try:
            if not self._pinned:
                self._open_files.lease(segment)
                self._pinned = True
        except OSError as failed:
            error = failed
        if error is None:
            failpoint("before_write")
            written, error = write_all(self._files, segment.fd, buffers, segment.size)
        now_ms = self._clock()
        if error is not None:
            written = self._keep_whole_sets(segment, buffers, appenders, written, error)
        else:
            self.last_set_offset = segment.end + written - len(buffers[-1])
        if not written:
            if not self.flush_wanted:
                self._unpin()  # no flush will come that would
            return
        if self._roll_at_ms == NEVER:  # first append into this segment, or since the start
            self._roll_at_ms = now_ms + self.settings.roll_age_ms
        segment.size += written
        segment.time_ms = max(segment.time_ms, now_ms)
        self.written_end = segment.end
        self.bytes_in += written
        failpoint("after_append_before_watermark")
        self._write_waiters.reached(self.written_end)

    def _keep_whole_sets(
        self,
        segment: Segment,
        buffers: list[Buffer],
        appenders: list[Appender | None],
        written: int,
        error: OSError,
    ) -> int:
        """After a write that failed: keep the sets that are whole, tell the others' appenders."""
        kept_bytes = kept_sets = 0
        for buffer in buffers:
            if kept_bytes + len(buffer) > written:
                break
            kept_bytes += len(buffer)
            kept_sets += 1
        out_of_room = error.errno in NO_ROOM or error.errno in (errno.EMFILE, errno.ENFILE)
        failed: PartitionError
        if out_of_room:
            failed = StorageFull(f"{self.name}: {error.strerror}")
            try:
                if written > kept_bytes:
                    self._files.truncate(segment.fd, segment.size + kept_bytes)
            except OSError as second:
                out_of_room = False
                error = second
        self._gathered_end = segment.end + kept_bytes
        self.log_end = self._gathered_end
        refused = [*appenders[kept_sets:], *(held[2] for held in self._held)]
        self._held.clear()
        # Nothing waits for the new segment any more, and no flush may be left that would end the
        # waiting: whether one is due is decided anew before the next set.
        self._roll_pending = False
        if not out_of_room:
            self._fail(f"write failed: {error.strerror}")
            failed = StorageFailed(f"{self.name} is read-only: {self.state_reason}")
        else:
            self._drop_waiters_beyond(self.log_end)
        for appender in refused:
            if appender is not None:
                appender.append_failed(failed)
        return kept_bytes

    # --- flushing ------------------------------------------------------------------------------

    @property
    def flush_wanted(self) -> bool:
        """Whether bytes are written that no finished flush covers."""
        return self.written_end > self.high_watermark

    def begin_flush(self) -> FlushJob | None:
        """The job of flushing what is written by now; None when there is nothing to do or one
        runs already. `run` it anywhere, then hand it to `complete_flush` on this thread."""
        if self.flushing or self.state is not LogState.ONLINE:
            return None
        self.write_gathered()
        if not self.flush_wanted or self.state is not LogState.ONLINE:
            return None
        self.flushing = True
        self.messages_since_flush_began = 0
        directories, self._unsynced_directories = self._unsynced_directories, []
        self._open_files.lease(self._active)  # pinned, so this opens nothing
        return FlushJob(self._active, self.written_end, self._files, directories)

    def complete_flush(self, job: FlushJob) -> None:
        """Move the watermark, or freeze it when the flush failed: then nothing is known of the
        bytes above it, and a second flush that succeeds would prove nothing. One that was
        postponed changes nothing: begin another later."""
        self.flushing = False
        self._open_files.release(job.segment)
        if job.is_postponed:
            self._unsynced_directories = job.directories + self._unsynced_directories
            return
        if job.error is not None:
            self._fail(f"flush failed: {job.error.strerror}")
            return
        if self.state is not LogState.ONLINE:
            return
        self.high_watermark = job.target
        self.last_flush_ms = self._clock()
        if self.high_watermark == self.written_end:
            self._unpin()
        self._flush_waiters.reached(self.high_watermark)
        self._data_waiters.reached(self.high_watermark)
        if self._roll_pending and not self._gathered and not self.flush_wanted:
            self._roll_and_take_held()

    def flush(self) -> None:
        """Write and flush everything in this thread: for shutdown and for tests. Afterwards
        `flush_wanted` is true only when there was no descriptor for it, or the log has failed."""
        while self.state is LogState.ONLINE:
            self.write_gathered()
            job = self.begin_flush()
            if job is None:
                return
            job.run()
            self.complete_flush(job)
            if job.is_postponed:
                return

    def _unpin(self) -> None:
        if self._pinned:
            self._pinned = False
            self._open_files.release(self._active)

    def _roll_and_take_held(self) -> None:
        self._roll_pending = False
        held, self._held = self._held, []
        try:
            self._roll()
        except PartitionError as error:
            self.log_end = self._gathered_end
            self._drop_waiters_beyond(self.log_end)
            for _, _, appender in held:
                if appender is not None:
                    appender.append_failed(error)
            return
        self.log_end = self._gathered_end
        now_ms = self._clock()
        for message_set, count, appender in held:
            self.append(message_set, count, now_ms, appender)

    def when_flushed(self, offset: int, barrier: Barrier) -> None:
        """Make `barrier` wait until the watermark has passed `offset`."""
        if self.high_watermark < offset:
            barrier.expect()
            if self.state is not LogState.ONLINE:
                barrier.fail()
            else:
                self._flush_waiters.add(offset, barrier)

    def when_written(self, offset: int, barrier: Barrier) -> None:
        """Make `barrier` wait until the written end has passed `offset`."""
        if self.written_end < offset:
            barrier.expect()
            if self.state is not LogState.ONLINE:
                barrier.fail()
            else:
                self._write_waiters.add(offset, barrier)

    def when_readable_behind(self, offset: int, waiter: Waiter) -> None:
        """Have `waiter` arrive once bytes behind `offset` can be read, at once when they are there.
        It asks for no flush. It fails when the log fails or is closed first."""
        if self.high_watermark > offset:
            waiter.arrive()
        elif self.state is not LogState.ONLINE:
            waiter.fail()
        else:
            self._data_waiters.add(offset + 1, waiter)

    def forget_data_waiter(self, waiter: Waiter) -> None:
        """`waiter` is called no more. Nothing happens when it does not wait."""
        self._data_waiters.remove(waiter)

    def _drop_waiters_beyond(self, offset: int) -> None:
        self._flush_waiters.drop_beyond(offset)
        self._write_waiters.drop_beyond(offset)

    def _fail(self, reason: str) -> None:
        """Freeze this log: reads up to the watermark, no writes, until a restart."""
        self.state = LogState.FAILED
        self.state_reason = reason
        suspect_cache.mark(self._files, self.directory.parent)
        self.log_end = self._gathered_end = self.written_end
        refused = [*self._appenders, *(held[2] for held in self._held)]
        self._gathered, self._appenders = [], []
        self._held.clear()
        self._roll_pending = False
        self._drop_waiters_beyond(self.high_watermark)
        self._data_waiters.drop_beyond(self.high_watermark)
        for appender in refused:
            if appender is not None:
                appender.append_failed(StorageFailed(f"{self.name} is read-only: {reason}"))

    # --- reading -------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self._segments.start

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments.all()

    @property
    def last_write_ms(self) -> int:
        """When the newest segment was written to."""
        return self._active.time_ms

    @property
    def size_bytes(self) -> int:
        return self.written_end - self._segments.start

    def read(self, offset: int, size_max: int) -> FileRegion | None:
        """The bytes from `offset` on: at most `size_max`, of one segment, below the watermark.

        None when there are none: at the watermark, or with a size of 0. The offset need not be an
        entry's. Raises OffsetOutOfRange, PartitionOffline, and OSError when the file cannot be
        opened; the region must be released.
        """
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")
        watermark = self.high_watermark
        if not self._segments.start <= offset <= watermark:
            raise OffsetOutOfRange(
                f"{self.name}: offset {offset} is not in {self._segments.start} to {watermark}"
            )
        segment = self._active
        if offset < segment.start:
            segment = self._segments.holding(offset)
            limit = segment.end
        else:
            limit = watermark
        count = min(size_max, limit - offset)
        if count <= 0:
            return None
        fd = self._open_files.lease(segment)
        return FileRegion(self._open_files, segment, fd, offset - segment.start, count)

    def sample(self, message_count: int, size_bytes: int) -> None:
        """What recovery counted: how large messages are, as long as nothing was appended."""
        self._sampled_messages, self._sampled_bytes = message_count, size_bytes

    def count_out(self, size_bytes: int) -> None:
        """Count bytes sent to a fetch. They are not parsed, so their messages are counted by the
        mean size of those that came in."""
        self.bytes_out += size_bytes
        if self.bytes_in:
            self.messages_out += size_bytes * self.messages_in / self.bytes_in
        elif self._sampled_bytes:
            self.messages_out += size_bytes * self._sampled_messages / self._sampled_bytes

    def offsets_before(self, time_ms: int, count_max: int) -> list[int]:
        """Offsets in descending order by segment times; `time_ms` may be LATEST or
        EARLIEST. Raises PartitionOffline."""
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")
        return self._segments.offsets_before(time_ms, count_max, self.high_watermark, self._clock())

    # --- retention and closing -----------------------------------------------------------------

    def retire(self, now_ms: int) -> Retirement | None:
        """Take the segments that the policy lets go out of the log; the files are removed by the
        returned job, in any thread, which is then handed to `complete_retirement`. None when there
        is nothing to do, or a job runs already: two could leave a gap."""
        if self.state is not LogState.ONLINE or self._is_retiring:
            return None
        summaries = [
            SegmentSummary(
                segment.start,
                min(segment.end, self.high_watermark) - segment.start,
                segment.time_ms,
            )
            for segment in self._segments.all()
        ]
        count = self.settings.retention(summaries, now_ms)
        if count >= len(self._segments):
            count = self._make_active_retirable(now_ms)
        if count > 0:
            gone = self._segments.take_oldest(count)
            for segment in gone:
                self._open_files.forget(segment)
            self._unremoved += gone
        if not self._unremoved:
            return None
        self._is_retiring = True
        gone, self._unremoved = self._unremoved, []
        return Retirement(gone, self.directory, self._files)

    def complete_retirement(self, job: Retirement) -> None:
        """What an error left on the disk comes first in the next round: the oldest goes first."""
        self._is_retiring = False
        self._unremoved = job.segments

    def _make_active_retirable(self, now_ms: int) -> int:
        """The active segment may go as well, once an empty one stands behind it."""
        if self._active.size == 0:
            self._active.time_ms = now_ms
            self._keep_time(self._active)
        elif not (self._gathered or self._roll_pending or self.flushing or self.flush_wanted):
            try:
                self._roll()
            except PartitionError:
                pass  # no room for an empty file: the active segment stays until the next round
        return len(self._segments) - 1

    def close(self) -> None:
        """Flush and close. The log is unusable afterwards."""
        self.flush()
        self._data_waiters.drop_beyond(self.high_watermark)
        self._unpin()
        if self.state is not LogState.OFFLINE:
            self._keep_time_of_active()
        for segment in self._segments.all():
            self._open_files.forget(segment)
