"""The end of a replica's log: a leader's copy is appended, or a new log waits to be opened.

A follower's segments begin where its leader's do, and have its times, so that the directories of
a set are equal byte for byte. Nothing here is used by a broker that is no replica.
"""

from kafka2011.broker.log.errors import CopyMisplaced, StorageFailed
from kafka2011.broker.log.file_layer import Buffer
from kafka2011.broker.log.tail import CopiedFrom, Held, LogTail, refuse


class ReplicaTail(LogTail):
    """What `Log` is to the replication of it."""

    def append_copied(
        self, offset: int, entries: Buffer, message_count: int, copied: CopiedFrom
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
            self._held.append(Held(bytes(entries), message_count, None, copied))
            self.log_end += len(entries)
        elif entries:
            self._gathered.append(entries)
            self._appenders.append(None)
            self._gathered_end = self.log_end = offset + len(entries)
            self._copied_ms = copied.time_ms
            self.messages_since_flush_began += message_count
            self.messages_in += message_count

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
        """This process leads from here on: readers get nothing, and no error, up to `floor`."""
        self.ends.floor = floor
        self._copied_ms = None

    def stop_leading(self) -> None:
        """Nothing more is confirmed by this process, and what waits to be opened is not kept."""
        self.ends.floor = 0
        if self.is_unopened:
            held, self._held = self._held, []
            self.log_end = self._gathered_end
            self.ends.refuse_beyond(self.log_end)
            refuse(held, StorageFailed(f"{self.name}: this broker leads no more"))
        self.ends.stop_confirming()

    def _take_held(self, held: Held, now_ms: int) -> None:
        if held.copied is None:
            super()._take_held(held, now_ms)
        else:
            self.append_copied(self.log_end, held.message_set, held.message_count, held.copied)
