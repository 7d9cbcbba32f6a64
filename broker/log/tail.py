"""The write side of a log: sets are gathered, written and flushed, and segments rolled.

Appends are gathered and written by one `write_gathered` per loop turn. A flush is three steps, so
that the loop never waits for the disk: `begin_flush` on the loop, `FlushJob.run` in any thread,
`complete_flush` on the loop.

A new segment is created only when the old one is flushed to its end, so a segment that has a
successor is whole on the disk. Appends that come while a roll waits for that flush are held in
memory, and their connections read no further until they are written.

Which states may coexist between two calls, while the log is online:

    state            means                                        holds only while
    _gathered        sets to write at the end of this turn        not _held, or before them
    _held            sets that wait in memory                     _roll_pending or is_unopened
    _roll_pending    a new segment waits for a flush              _gathered, flushing, flush_wanted
    is_unopened      a replica's new log: not to be written yet   not _gathered
    flushing         a job is out; it has a lease of its own      flush_wanted
    _pinned          a lease for the flush to come                flush_wanted

Only a finished flush ends `_roll_pending`, or a write that finds no room, or the end of a replica's
leadership: these two refuse what is held as well. A log that has failed has nothing gathered or
held and no roll pending.

Everything here except `FlushJob.run` belongs to one thread.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka2011.broker.log import suspect_cache
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.disk_jobs import NO_DESCRIPTOR, FlushJob
from kafka2011.broker.log.errors import (
    PartitionError,
    PartitionOffline,
    StorageFailed,
    StorageFull,
)
from kafka2011.broker.log.file_layer import Buffer, FileLayer
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.log_ends import LogEnds
from kafka2011.broker.log.log_settings import Appender, LogObserver, LogSettings, LogState
from kafka2011.broker.log.segment import OpenFiles, Segment, segment_name
from kafka2011.broker.log.segment_list import SegmentList
from kafka2011.broker.log.writing import write_all
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.failpoints import failpoint

# The disk says that there is no room: refuse the bytes, keep the log.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# More than any time or count: for what never happens.
NEVER = 2**63


@dataclass(frozen=True, slots=True)
class CopiedFrom:
    """The leader's segment that bytes were copied from: its start, and its last write."""

    segment_start: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """A set that waits in memory; `copied` is set if a follower took it from its leader."""

    message_set: bytes
    message_count: int
    appender: Appender | None
    copied: CopiedFrom | None = None


class LogTail:
    """The write side of `Log`; the module's docstring explains it."""

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
        watermark: int | None = None,
    ) -> None:
        """`segments` are whole, in order, without gaps, at least one. `watermark` is what a replica
        knows to be confirmed; None where flushed means confirmed."""
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.directory = directory
        self.settings = settings
        self.state = LogState.ONLINE
        self.state_reason = ""
        self.observer: LogObserver | None = None
        self.held_changed: Callable[[int], None] | None = None
        self._files = files
        self._open_files = open_files
        self._clock = clock
        self._file_times = file_times
        self._unsynced_directories = list(unsynced_directories)

        self._segments = SegmentList(segments)
        self._active = segments[-1]
        self.ends = LogEnds(self._active.end, watermark)
        self.log_end = self._active.end  # of all that was taken over, written or not
        self.last_set_offset = self._active.start  # where the last appended set begins

        self._gathered: list[Buffer] = []
        self._appenders: list[Appender | None] = []
        self._message_counts: list[int] = []
        self._gathered_end = self.log_end
        self._held: list[Held] = []
        self._held_bytes = 0  # as last reported by `held_changed`
        self._roll_pending = False
        self._roll_at_ms = NEVER
        self._roll_limit = self._active.start + settings.segment_bytes_max
        self._copied_ms: int | None = None  # the leader's time for what is gathered
        self.is_unopened = False

        self.flushing = False
        self._pinned = False
        self.messages_since_flush_began = 0  # what the count trigger looks at
        self.last_flush_ms = clock()
        self.flush_interval_messages = settings.flush_interval_messages or NEVER

        self.messages_in = 0  # counted when written
        self.bytes_in = 0

    # --- ends ----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The end of what is confirmed, and can be read."""
        return self.ends.watermark

    @property
    def flushed_end(self) -> int:
        """The end of what is on the disk."""
        return self.ends.flushed

    @property
    def written_end(self) -> int:
        """The end of what is written."""
        return self.ends.written

    @property
    def is_online(self) -> bool:
        return self.state is LogState.ONLINE

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
        that. They are durable, and visible, once `high_watermark` has reached the returned offset.
        If `is_held` is true afterwards, append nothing more before `when_written`.

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
                    self._held.append(Held(bytes(message_set), message_count, appender))
                    self.log_end += size
                    self._count_held()
                return self.log_end
        if size:
            self._gathered.append(message_set)
            self._appenders.append(appender)
            self._message_counts.append(message_count)
            end = self._gathered_end + size
            self._gathered_end = self.log_end = end
            self.messages_since_flush_began += message_count
        return self.log_end

    @property
    def room_bytes(self) -> int:
        """How much can be appended before a set makes a new segment due."""
        return self._roll_limit - self._gathered_end

    @property
    def is_held(self) -> bool:
        """Whether sets wait in memory for a new segment, or for the log to be opened."""
        return bool(self._held)

    @property
    def has_gathered(self) -> bool:
        """Whether `write_gathered` has something to write."""
        return bool(self._gathered)

    @property
    def has_flush_waiters(self) -> bool:
        """Whether a connection waits for a flush of this log."""
        return self.ends.is_flush_awaited

    @property
    def roll_waits(self) -> bool:
        """Whether a new segment waits for the flush of the active one."""
        return self._roll_pending

    def _count_held(self) -> None:
        """Report what is held: it lies between what is gathered and the log end."""
        size = self.log_end - self._gathered_end
        before, self._held_bytes = self._held_bytes, size
        if size != before and self.held_changed is not None:
            self.held_changed(size - before)

    def _check_writable(self) -> None:
        if self.state is LogState.FAILED:
            raise StorageFailed(f"{self.name} is read-only: {self.state_reason}")
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")

    def _ready_after_roll(self) -> bool:
        """Roll at once if nothing is in the way; else return False, to roll later."""
        if self._roll_pending or self.is_unopened:
            return False
        if self._gathered or self.flushing or self.flush_wanted:
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
            if error.errno in NO_ROOM | NO_DESCRIPTOR:
                raise StorageFull(f"no new segment for {self.name}: {error.strerror}") from error
            self._fail(f"cannot create {new.path}: {error.strerror}")
            raise StorageFailed(self.state_reason) from error
        self._keep_time_of_active()
        new.file_ms = old.file_ms
        self._unsynced_directories.append(self.directory)
        self._segments.add(new)
        self._unpin()
        self._make_active(new)
        failpoint("after_roll")

    def _make_active(self, segment: Segment) -> None:
        self._active = segment
        self.last_set_offset = segment.start
        self._roll_limit = segment.start + self.settings.segment_bytes_max
        self._roll_at_ms = NEVER

    def _adopt(self, segment: Segment) -> None:
        try:
            fd = self._open_files.lease(segment)
            self._open_files.release(segment)
            size = self._files.size(fd)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise StorageFull(f"no new segment for {self.name}: {error.strerror}") from error
            self._fail(f"cannot open {segment.path}: {error.strerror}")
            raise StorageFailed(self.state_reason) from error
        if size:
            self._fail(f"{segment.path} exists and is not empty")
            raise StorageFailed(self.state_reason)

    @property
    def _is_written_to(self) -> bool:
        """Whether this process wrote to the active segment."""
        return self._roll_at_ms != NEVER

    def _keep_time_of_active(self) -> None:
        """As `_keep_time`, if this process wrote to the active segment: otherwise the time in its
        file is better than what this process's clock makes of it."""
        if self._is_written_to:
            self._keep_time(self._active)

    def _settle_file_time(self, segment: Segment) -> None:
        """Take into account what was done to the wall clock since the last write."""
        segment.file_ms = self._file_times.to_file(segment.time_ms, segment.file_ms)

    def _keep_time(self, segment: Segment) -> None:
        """Leave the time of the last write in the file's modification time, which survives."""
        self._settle_file_time(segment)
        try:
            fd = self._open_files.lease(segment)
            try:
                self._files.set_modified_ms(fd, segment.file_ms)
            finally:
                self._open_files.release(segment)
        except OSError:
            pass  # the kernel's own time of the last write stands; only the clocks differ

    def write_gathered(self) -> None:
        """Write what was gathered since the last call. Never raises: the appenders of what
        was not kept are called."""
        buffers = self._gathered
        if not buffers:
            return
        appenders, counts = self._appenders, self._message_counts
        self._gathered, self._appenders, self._message_counts = [], [], []
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
            kept_sets, written = self._keep_whole_sets(segment, buffers, appenders, written, error)
            del counts[kept_sets:]
        else:
            self.last_set_offset = segment.end + written - len(buffers[-1])
        if not written:
            if not self.flush_wanted:
                self._unpin()  # no flush will come to do it
            return
        if self._roll_at_ms == NEVER:  # first append into this segment, or since the start
            self._roll_at_ms = now_ms + self.settings.roll_age_ms
        if self._copied_ms is None:
            segment.time_ms = max(segment.time_ms, now_ms)
        else:  # an empty segment's time is this process's own
            segment.time_ms = max(segment.time_ms * bool(segment.size), self._copied_ms)
        segment.file_ms = self._file_times.to_file(segment.time_ms, now_ms=now_ms)
        segment.size += written
        self.bytes_in += written
        self.messages_in += sum(counts)
        failpoint("after_append_before_watermark")
        self.ends.move_written(segment.end)
        if self.observer is not None:
            self.observer.log_written(self)

    def _keep_whole_sets(
        self,
        segment: Segment,
        buffers: list[Buffer],
        appenders: list[Appender | None],
        written: int,
        error: OSError,
    ) -> tuple[int, int]:
        """After a failed write, keep the sets that are whole and call the others' appenders.
        Returns how many are kept, and their bytes."""
        kept_bytes = kept_sets = 0
        for buffer in buffers:
            if kept_bytes + len(buffer) > written:
                break
            kept_bytes += len(buffer)
            kept_sets += 1
        out_of_room = error.errno in NO_ROOM | NO_DESCRIPTOR
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
        refused = [*appenders[kept_sets:], *(held.appender for held in self._held)]
        self._held.clear()
        self._count_held()
        # Nothing waits for the new segment any more, and there may be no flush left to end the
        # wait: whether a roll is due is decided anew before the next set.
        self._roll_pending = False
        if not out_of_room:
            self._fail(f"write failed: {error.strerror}")
            failed = StorageFailed(f"{self.name} is read-only: {self.state_reason}")
        else:
            self.ends.refuse_beyond(self.log_end)
        refuse(refused, self.topic, failed)
        return kept_sets, kept_bytes

    # --- flushing ------------------------------------------------------------------------------

    @property
    def flush_wanted(self) -> bool:
        """Whether bytes are written that no finished flush covers."""
        return self.ends.is_flush_wanted

    def begin_flush(self) -> FlushJob | None:
        """The job that flushes what is written, and what is gathered, by now; None when there is
        nothing to do or one runs. `run` it anywhere, then `complete_flush` it on this thread."""
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
        """Move the flushed end, or freeze it when the flush failed: then nothing is known of the
        bytes above it, and a second flush that succeeds would prove nothing. A postponed one
        changes nothing: begin another later."""
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
        self.last_flush_ms = self._clock()
        if job.target == self.written_end:
            self._unpin()
        self.ends.move_flushed(job.target)
        if self.observer is not None:
            self.observer.log_flushed(self)
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
            self._count_held()
            self.ends.refuse_beyond(self.log_end)
            refuse((one.appender for one in held), self.topic, error)
            return
        self._take(held)

    def _take(self, held: list[Held]) -> None:
        """Append what was held."""
        self.log_end = self._gathered_end
        now_ms = self._clock()
        for one in held:
            self._take_held(one, now_ms)
        self._count_held()

    def _take_held(self, held: Held, now_ms: int) -> None:
        self.append(held.message_set, held.message_count, now_ms, held.appender)

    def when_flushed(self, offset: int, barrier: Barrier) -> None:
        """Make `barrier` wait until what is below `offset` is on this disk."""
        self.ends.when_flushed(offset, barrier, self.is_online)

    def when_confirmed(self, offset: int, barrier: Barrier) -> None:
        """Make `barrier` wait until the watermark has reached `offset`."""
        self.ends.when_confirmed(offset, barrier, self.is_online)

    def when_written(self, offset: int, barrier: Barrier) -> None:
        """Make `barrier` wait until the written end has reached `offset`."""
        self.ends.when_written(offset, barrier, self.is_online)

    def _fail(self, reason: str) -> None:
        """Freeze this log: reads up to the watermark, no writes, until a restart."""
        self.state = LogState.FAILED
        self.state_reason = reason
        suspect_cache.mark(self._files, self.directory.parent)
        self.log_end = self._gathered_end = self.written_end
        refused = [*self._appenders, *(held.appender for held in self._held)]
        self._gathered, self._appenders, self._message_counts = [], [], []
        self._held.clear()
        self._count_held()
        self._roll_pending = False
        self.ends.freeze()
        if self.observer is not None:
            self.observer.log_failed(self)
        refuse(refused, self.topic, StorageFailed(f"{self.name} is read-only: {reason}"))


def refuse(appenders: Iterable[Appender | None], topic: str, error: PartitionError) -> None:
    """Call the appenders of what was not kept."""
    for appender in appenders:
        if appender is not None:
            appender.append_failed(topic, error)
