"""The end of a replica's log: bytes copied from a leader, appends held in a new log, cuts.

A follower's segments begin where its leader's do, and have its times, so that the directories of
a set are equal byte for byte. Nothing here is used by a broker that is no replica.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

from kafka2011.broker.log.cutting import CutKind, LogCut, kept_segments
from kafka2011.broker.log.errors import CopyMisplaced, LeadsNoMore, StorageFailed
from kafka2011.broker.log.file_layer import Buffer
from kafka2011.broker.log.log_settings import Appender, LogState
from kafka2011.broker.log.segment import Segment, segment_name
from kafka2011.broker.log.segment_list import SegmentList
from kafka2011.broker.log.tail import CopiedFrom, Held, LogTail, refuse


class ReplicaTail(LogTail):
    """What replication uses of `Log`."""

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
        """Append whole entries copied from the leader's log at `offset`, in a segment that begins
        where the leader's does. No entries: the leader has rolled there.

        Otherwise as `append`. Raises CopyMisplaced as well: nothing was taken, join again.
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
        """Drop the active segment, which is empty, and append to the one before it: another leader
        has not rolled there. Recovery handles a removal that is not durable yet."""
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
        """Hold what is appended to a replica's new log until `open_for_appends`."""
        self.is_unopened = True
        self._roll_limit = -1  # so that each append checks

    def open_for_appends(self) -> None:
        """Append what was held: the log's lineage is durable."""
        if self.is_unopened:
            self.is_unopened = False
            self._roll_limit = self._active.start + self.settings.segment_bytes_max
            held, self._held = self._held, []
            self._take(held)

    def lead_from(self, floor: int) -> None:
        """Begin to lead: up to `floor` readers get nothing, and no error. The lineage is durable,
        even of a log that was made in an earlier leadership and not opened."""
        self.ends.floor = floor
        self._copied_ms = None
        self.open_for_appends()

    def stop_leading(self) -> None:
        """Confirm nothing more, and refuse the clients' appends that are not written yet: those
        that wait for a new segment, or for the log to be opened, would end up among what the
        next leader sends."""
        self.ends.floor = 0
        held, self._held = self._held, []
        refused = [*self._appenders, *(one.appender for one in held)]
        self._gathered, self._appenders, self._message_counts = [], [], []
        self._roll_pending = False  # whether a roll is due is decided anew
        self.log_end = self._gathered_end = self.written_end
        self._count_held()
        self.ends.refuse_beyond(self.log_end)
        refuse(refused, self.topic, LeadsNoMore(f"{self.name}: this broker no longer leads"))
        self.ends.stop_confirming()

    # --- cuts ----------------------------------------------------------------------------------

    def begin_cut(self, kind: CutKind, offset: int) -> LogCut:
        """Take the log out of use until `complete_cut`. All must be flushed, and it must not have
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
        """Restore the log: the cut was not begun."""
        self.state, self.state_reason, end, watermark = self._uncut
        self.ends.restore(end, watermark)

    def fail_cut(self, reason: str) -> None:
        """Fail the log: the cut was begun, and only a restart finds out what is there."""
        self._fail(f"cannot be cut: {reason}")

    def complete_cut(self, cut: LogCut) -> None:
        """Go on at the offset of the cut, which is durable."""
        if cut.kind is CutKind.SHORTER:
            kept = list(kept_segments(self._segments.all(), cut.offset))
            kept[-1].size = cut.offset - kept[-1].start
            self._go_on(kept, min(self.high_watermark, cut.offset))
        else:
            path = self.directory / segment_name(cut.offset)
            self.begin_again(Segment(path, cut.offset, 0, self._clock()), ())

    def begin_again(self, segment: Segment, unsynced_directories: Sequence[Path]) -> None:
        """Go on as an empty log that begins with `segment`."""
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
