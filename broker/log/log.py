"""The log of one partition: ordered segments, an end, and the watermark that fetches stop at.

`broker.log.log_ends` has its ends, what each is for and what waits for it; `broker.log.tail`
appends, rolls and flushes; `broker.log.replica_tail` adds what replicas need. This module reads
and removes: reads, offsets by time, retention.

Everything here belongs to one thread, except the jobs' `run`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka2011.broker.log.disk_jobs import Retirement
from kafka2011.broker.log.errors import OffsetNotInLog, PartitionError, PartitionOffline
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.log_settings import Appender, LogObserver, LogSettings, LogState
from kafka2011.broker.log.offset_waiters import Waiter
from kafka2011.broker.log.replica_tail import ReplicaTail
from kafka2011.broker.log.retention import SegmentSummary
from kafka2011.broker.log.segment import OpenFiles, Segment, segment_name
from kafka2011.runtime.clock import Clock

__all__ = ["Appender", "Log", "LogObserver", "LogSettings", "LogState", "WrittenPiece"]


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """Bytes for a follower, and the start and time of their segment. Release the region."""

    region: FileRegion
    segment_start: int
    time_ms: int


class Log(ReplicaTail):
    """The log of one partition. See `broker.log.log_ends` for the rules of its ends."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.marked_end = self.marked_watermark = 0  # as in the last marks
        self.is_retiring = False
        self._unremoved: list[Segment] = []  # retired, but a round failed before their files went
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

        None when there are none: at the watermark, between it and the floor, or with a size of 0.
        The offset need not be an entry's. Raises OffsetNotInLog, PartitionOffline, and OSError
        when the file cannot be opened; the region must be released.
        """
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")
        ends = self.ends
        watermark = ends.watermark
        if not self._segments.start <= offset <= watermark:
            if watermark < offset <= ends.floor:
                return None
            raise OffsetNotInLog(
                f"{self.name}: offset {offset} is not in {self._segments.start} to {watermark}"
            )
        return self._region(offset, size_max, watermark)

    def read_written(self, offset: int, size_max: int) -> WrittenPiece | None:
        """The bytes from `offset` on for a follower: at most `size_max`, of one segment, written
        and maybe not flushed. None when there are none. Raises as `read` does."""
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")
        if not self._segments.start <= offset <= self.written_end:
            raise OffsetNotInLog(
                f"{self.name}: offset {offset} is not in {self._segments.start} to "
                f"{self.written_end}"
            )
        region = self._region(offset, size_max, self.written_end)
        if region is None:
            return None
        return WrittenPiece(region, region.segment.start, region.segment.time_ms)

    def _region(self, offset: int, size_max: int, end: int) -> FileRegion | None:
        segment = self._active
        if offset < segment.start:
            segment = self._segments.holding(offset)
            end = min(end, segment.end)
        count = min(size_max, end - offset)
        if count <= 0:
            return None
        fd = self._open_files.lease(segment)
        return FileRegion(self._open_files, segment, fd, offset - segment.start, count)

    def when_readable_behind(self, offset: int, waiter: Waiter) -> None:
        """Have `waiter` arrive once bytes from `offset` on can be read, at once if they are there,
        or fail if the log fails or is closed first. This asks for no flush."""
        self.ends.when_readable_behind(offset, waiter, self.is_online)

    def forget_data_waiter(self, waiter: Waiter) -> None:
        """Call `waiter` no more; nothing happens when it does not wait."""
        self.ends.forget_data_waiter(waiter)

    def sample(self, message_count: int, size_bytes: int) -> None:
        """Take recovery's counts, for the mean message size until something is appended."""
        self._sampled_messages, self._sampled_bytes = message_count, size_bytes

    def count_out(self, size_bytes: int) -> None:
        """Count bytes sent to a fetch. They are not parsed, so their messages are estimated by
        the mean size of those that came in."""
        self.bytes_out += size_bytes
        if self.bytes_in:
            self.messages_out += size_bytes * self.messages_in / self.bytes_in
        elif self._sampled_bytes:
            self.messages_out += size_bytes * self._sampled_messages / self._sampled_bytes

    def offsets_before(self, time_ms: int, count_max: int) -> list[int]:
        """Offsets in descending order by segment times, which are the wall clock's; `time_ms` may
        be LATEST or EARLIEST. Raises PartitionOffline."""
        if self.state is LogState.OFFLINE:
            raise PartitionOffline(f"{self.name} is offline: {self.state_reason}")
        if self._is_written_to:
            self._settle_file_time(self._active)
        return self._segments.offsets_before(
            time_ms, count_max, self.high_watermark, self._file_times
        )

    # --- retention and closing -----------------------------------------------------------------

    def retire(self, now_ms: int, limit: int | None = None) -> Retirement | None:
        """Take the segments that the policy drops out of the log. The returned job removes their
        files: run it in any thread, then hand it to `complete_retirement`. None when there is
        nothing to do, or a job runs already: two could leave a gap.

        `limit` is a replica's: only segments that end there or before go, and the one with the
        last confirmed message stays, so that in every copy a segment begins where the log does.
        """
        if self.state is not LogState.ONLINE or self.is_retiring:
            return None
        watermark = self.high_watermark
        # Where the watermark lags, the start must not pass it.
        segments = [one for one in self._segments.all() if one.start <= watermark]
        summaries = [
            SegmentSummary(one.start, min(one.end, watermark) - one.start, one.time_ms)
            for one in segments
        ]
        count = self.settings.retention(summaries, now_ms)
        if limit is not None:
            count = min(count, sum(one.end <= limit and one.end < watermark for one in segments))
        elif count >= len(segments):
            count = len(segments) - 1
            if watermark == self.written_end:
                count = self._make_active_retirable(now_ms)
        return self._begin_retirement(count)

    def retire_below(self, offset: int) -> Retirement | None:
        """As `retire`, for the whole segments below `offset`, which the leader has dropped."""
        if self.state is not LogState.ONLINE or self.is_retiring:
            return None
        offset = min(offset, self.high_watermark)
        return self._begin_retirement(sum(one.end <= offset for one in self.segments[:-1]))

    def _begin_retirement(self, count: int) -> Retirement | None:
        if count > 0:
            gone = self._segments.take_oldest(count)
            for segment in gone:
                self._open_files.forget(segment)
            self._unremoved += gone
        if not self._unremoved:
            return None
        self.is_retiring = True
        gone, self._unremoved = self._unremoved, []
        return Retirement(gone, self.directory, self._files)

    def complete_retirement(self, job: Retirement) -> None:
        """Take back a finished job. Files that an error left go first in the next round."""
        self.is_retiring = False
        self._unremoved = job.segments

    def _make_active_retirable(self, now_ms: int) -> int:
        """Put an empty segment after the active one if need be; returns how many may go."""
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
        self.ends.stop_confirming()
        self._unpin()
        if self.state is not LogState.OFFLINE:
            self._keep_time_of_active()
        for segment in self._segments.all():
            self._open_files.forget(segment)
