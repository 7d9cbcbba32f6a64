"""The end of a replica's log: copies of a leader's, a new log that waits to be opened, cuts.

A follower's segments begin where its leader's do, and have its times, so that the directories of
a set are equal byte for byte. Nothing here is used by a broker that is no replica.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

from kafka2011.broker.log.cutting import CutKind, LogCut, kept_segments
from kafka2011.broker.log.errors import CopyMisplaced, StorageFailed
from kafka2011.broker.log.file_layer import Buffer
from kafka2011.broker.log.log_settings import Appender, LogState
from kafka2011.broker.log.segment import Segment, segment_name
from kafka2011.broker.log.segment_list import SegmentList
from kafka2011.broker.log.tail import CopiedFrom, Held, LogTail, refuse


class ReplicaTail(LogTail):
    """What `Log` is to the replication of it."""

    # State, its reason, end and watermark before a cut that is under way.
    _uncut: tuple[LogState, str, int, int]

    def append_copied(
        self,
        offset: int,
        entries: Buffer,
        message_count: int,
        copied: CopiedFrom,
        appender: Appender | None = None,
    ) -> None:
        """Take over a follower's copy of whole entries that its leader has at `offset`, in a
        segment that begins where the leader's does. No entries: the leader has rolled there.

        As `append` otherwise. Raises CopyMisplaced as well: nothing was taken, join again.
        """
        self._check_writable()
        start = copied.segment_start
        last = self._held[-1].copied if self._held else None
        if offset != self.log_end:
            raise CopyMisplaced(f"{self.name}: a copy for {offset} of a log up to {self.log_end}")
        if start != (last.segment_start if last else self._active.start):
            if start == offset:
                is_ready = self._ready_after_roll()
            else:
                self._go_back_to(start)
                is_ready = True
        else:
            is_ready = not self._roll_pending
        if not is_ready:
            self._held.append(Held(bytes(entries), message_count, appender, copied))
            self.log_end += len(entries)
            self._count_held()
        elif entries:
            self._gathered.append(entries)
            self._appenders.append(appender)
            self._message_counts.append(message_count)
            self._gathered_end = self.log_end = offset + len(entries)
            self._copied_ms = copied.time_ms
            self.messages_since_flush_began += message_count

    def _go_back_to(self, start: int) -> None:
        """Append to the segment before the active one, which is empty: another leader has not
        rolled there. Recovery knows an empty segment whose removal is not durable yet."""
        empty, before = self._active, self._segments.before_last
        if (
            empty.size
            or before is None
            or before.start != start
            or self._gathered_end != empty.start
        ):
            raise CopyMisplaced(f"{self.name}: no segment here begins at {start}")
        try:
            self._files.remove(empty.path)
        except OSError as error:
            self._fail(f"cannot remove {empty.path}: {error.strerror}")
            raise StorageFailed(self.state_reason) from error
        self._unpin()
        self._open_files.forget(empty)
        self._unsynced_directories.append(self.directory)
        self._segments.drop_last()
        self._make_active(before)

    def hold_until_opened(self) -> None:
        """A replica's new log: what is appended is held until `open_for_appends`."""
        self.is_unopened = True
        self._roll_limit = -1  # so that each append looks

    def open_for_appends(self) -> None:
        """The log's lineage is durable: take what was held."""
        if self.is_unopened:
            self.is_unopened = False
            self._roll_limit = self._active.start + self.settings.segment_bytes_max
            held, self._held = self._held, []
            self._take(held)

    def lead_from(self, floor: int) -> None:
        """This process leads from here on: readers get nothing, and no error, up to `floor`. The
        lineage is durable, also of a log that was made in an earlier leadership and not opened."""
        self.ends.floor = floor
        self._copied_ms = None
        self.open_for_appends()

    def stop_leading(self) -> None:
        """Nothing more is confirmed by this process, and nothing more is written for its clients:
        what waits for a new segment, or to be opened, would come to stand among what the next
        leader sends."""
        self.ends.floor = 0
        held, self._held = self._held, []
        refused = [*self._appenders, *(one.appender for one in held)]
        self._gathered, self._appenders, self._message_counts = [], [], []
        self._roll_pending = False  # whether one is due is decided anew
        self.log_end = self._gathered_end = self.written_end
        self._count_held()
        self.ends.refuse_beyond(self.log_end)
        refuse(refused, StorageFailed(f"{self.name}: this broker leads no more"))
        self.ends.stop_confirming()

    # --- cuts ----------------------------------------------------------------------------------

    def begin_cut(self, kind: CutKind, offset: int) -> LogCut:
        """Take the log out of use until `complete_cut`. Everything is flushed, and it has not
        failed; one that recovery took offline may begin anew or be set aside."""
        assert self.state is not LogState.FAILED
        assert not self.has_gathered
        assert not self.is_held
        assert not self.flush_wanted  # so that no flush runs either
        self._uncut = (self.state, self.state_reason, self.log_end, self.high_watermark)
        self.state, self.state_reason = LogState.OFFLINE, "it is being cut"
        self.ends.freeze()
        if kind is CutKind.SHORTER:
            assert self._segments.start <= offset <= self.flushed_end
            self.ends.cut(offset)
        # Copies: the log's own are not to be read in a thread.
        segments = tuple(copy.copy(segment) for segment in self._segments.all())
        return LogCut(kind, self.directory, offset, segments)

    def abandon_cut(self) -> None:
        """It was not begun: the log is as it was."""
        self.state, self.state_reason, end, watermark = self._uncut
        self.ends.restore(end, watermark)

    def fail_cut(self, reason: str) -> None:
        """It was begun: only a start finds out what is there."""
        self._fail(f"cannot be cut: {reason}")

    def complete_cut(self, cut: LogCut) -> None:
        """It is durable: go on at its offset."""
        if cut.kind is CutKind.SHORTER:
            kept = list(kept_segments(self._segments.all(), cut.offset))
            kept[-1].size = cut.offset - kept[-1].start
            self._go_on(kept, min(self.high_watermark, cut.offset))
        else:
            path = self.directory / segment_name(cut.offset)
            self.begin_again(Segment(path, cut.offset, 0, self._clock()), ())

    def begin_again(self, segment: Segment, unsynced_directories: Sequence[Path]) -> None:
        """The log is empty, and begins with this segment."""
        self._unsynced_directories = list(unsynced_directories)
        self._go_on([segment], segment.start)

    def _go_on(self, segments: list[Segment], watermark: int) -> None:
        for segment in self._segments.all():
            if segment not in segments:
                self._open_files.forget(segment)
        self.state, self.state_reason = LogState.ONLINE, ""
        self.is_unopened = False
        self._segments = SegmentList(segments)
        self._make_active(segments[-1])
        end = segments[-1].end
        self.ends.restore(end, watermark)
        self.log_end = self._gathered_end = end

    def _take_held(self, held: Held, now_ms: int) -> None:
        if held.copied is None:
            super()._take_held(held, now_ms)
        else:
            self.append_copied(
                self.log_end, held.message_set, held.message_count, held.copied, held.appender
            )
