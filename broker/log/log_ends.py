"""The ends of one log, what waits for each, and which use needs which of them.

    start <= watermark <= flushed <= written <= log end

*written* is in the page cache, *flushed* is on this disk, and what is below the *watermark* is
confirmed. A broker that is no replica confirms by flushing: its watermark follows. A replica's is
moved by the replication: it is the lowest flushed end of the in-sync set, and may lag for as long
as another machine is away. So each use has to name the right one:

    use                                                    end
    bytes that a fetch gets; a wait for data               watermark
    the barrier (Offsets(-1) after sends)                  watermark
    offsets by time, the latest one among them             watermark; the latest not below the floor
    a fetch above it: empty instead of error 1             up to the floor
    retention: the sizes, and what may go                  watermark: the start must not pass it
    0.7's pause by count or time; hanging up               flushed: this disk, no other
    is a flush due; may a segment be rolled                flushed
    up to where a log that failed may still be read        watermark, which may rise to flushed
    `.kafka2011_flushed`; what a follower acknowledges     flushed
    `.kafka2011_ends` of a clean stop; sizes of files      written, which is flushed by then
    what a leader sends its followers                      written: both disks flush in parallel
    where the next set goes                                log end (`broker.log.tail`)

The *floor* is where a new leader's log ended when it began. The leader before may have served what
is below it, so an offset between watermark and floor is not out of range, but not confirmed yet.
"""

from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.offset_waiters import OffsetWaiters, Waiter


class LogEnds:
    """The ends of one log, and what waits for each. Loop's thread only."""

    __slots__ = (
        "_confirm_waiters",
        "_data_waiters",
        "_flush_waiters",
        "_write_waiters",
        "floor",
        "flushed",
        "is_confirmed_by_flush",
        "watermark",
        "written",
    )

    def __init__(self, end: int, watermark: int | None = None) -> None:
        """All is flushed up to `end`. `watermark` None: flushed always means confirmed."""
        self.is_confirmed_by_flush = watermark is None
        self.written = self.flushed = end
        self.watermark = end if watermark is None else watermark
        self.floor = 0
        self._write_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self._confirm_waiters = OffsetWaiters()
        self._data_waiters = OffsetWaiters()

    @property
    def is_flush_wanted(self) -> bool:
        """Whether bytes are written that no finished flush covers."""
        return self.written > self.flushed

    @property
    def is_flush_awaited(self) -> bool:
        """Whether a connection waits for a flush, or for what a flush may confirm."""
        return bool(self._flush_waiters) or bool(self._confirm_waiters)

    # --- moving --------------------------------------------------------------------------------

    def move_written(self, end: int) -> None:
        self.written = end
        self._write_waiters.reached(end)

    def move_flushed(self, end: int) -> None:
        self.flushed = end
        self._flush_waiters.reached(end)
        if self.is_confirmed_by_flush:
            self.move_watermark(end)

    def move_watermark(self, end: int) -> None:
        """Raise the watermark to `end`, but not above what is flushed here; it never falls."""
        end = min(end, self.flushed)
        if end > self.watermark:
            self.watermark = end
            self._confirm_waiters.reached(end)
            self._data_waiters.reached(end)

    def cut(self, end: int) -> None:
        """End the log at `end`. What waited has failed already."""
        self.restore(end, min(self.watermark, end))

    def restore(self, end: int, watermark: int) -> None:
        """Set the ends anew: all is flushed up to `end`, and nothing waits."""
        self.written = self.flushed = end
        self.watermark = watermark
        self.floor = 0

    # --- waiting -------------------------------------------------------------------------------

    def when_written(self, offset: int, barrier: Barrier, is_online: bool) -> None:
        if self.written < offset:
            self._wait(self._write_waiters, offset, barrier, is_online)

    def when_flushed(self, offset: int, barrier: Barrier, is_online: bool) -> None:
        if self.flushed < offset:
            self._wait(self._flush_waiters, offset, barrier, is_online)

    def when_confirmed(self, offset: int, barrier: Barrier, is_online: bool) -> None:
        if self.watermark < offset:
            self._wait(self._confirm_waiters, offset, barrier, is_online)

    def _wait(self, waiters: OffsetWaiters, offset: int, barrier: Barrier, is_online: bool) -> None:
        barrier.expect(waiters)
        if is_online:
            waiters.add(offset, barrier)
        else:
            barrier.fail()

    def when_readable_behind(self, offset: int, waiter: Waiter, is_online: bool) -> None:
        if self.watermark > offset:
            waiter.arrive()
        elif is_online:
            self._data_waiters.add(offset + 1, waiter)
        else:
            waiter.fail()

    def forget_data_waiter(self, waiter: Waiter) -> None:
        self._data_waiters.remove(waiter)

    def refuse_beyond(self, offset: int) -> None:
        """Fail what waits for more than `offset`, but no reader: it was not kept."""
        for waiters in (self._write_waiters, self._flush_waiters, self._confirm_waiters):
            waiters.drop_beyond(offset)

    def freeze(self) -> None:
        """Fail what waits for more than is flushed: no flush follows."""
        self.refuse_beyond(self.flushed)
        self._data_waiters.drop_beyond(self.flushed)

    def stop_confirming(self) -> None:
        """Fail what waits for the watermark: nothing more is confirmed."""
        self._confirm_waiters.drop_beyond(self.watermark)
        self._data_waiters.drop_beyond(self.watermark)
