"""Waiting for several logs at once without a thread: a counter that calls back."""

from collections.abc import Callable

from kafka2011.broker.log.offset_waiters import OffsetWaiters


class Barrier:
    """Calls `done(True)` when everything expected has arrived, `done(False)` at the first failure.

    Usage: `log.when_flushed(offset, barrier)` for each log, then `seal()`; `done` is called at
    most once, and not before `seal` (so never from inside `when_flushed`).
    """

    __slots__ = ("_done", "_expected", "_failed", "_sealed", "_waits_in")

    def __init__(self, done: Callable[[bool], None]) -> None:
        self._done: Callable[[bool], None] | None = done
        self._expected = 0
        self._failed = False
        self._sealed = False
        self._waits_in: list[OffsetWaiters] = []

    def expect(self, waiters: OffsetWaiters) -> None:
        """Wait for one more arrival, from `waiters`."""
        self._expected += 1
        self._waits_in.append(waiters)

    def arrive(self) -> None:
        self._expected -= 1
        self._settle()

    def fail(self) -> None:
        self._failed = True
        self._settle()

    def seal(self) -> bool:
        """Declare that everything expected is named. True when it has all arrived, or failed,
        already: `done` has then been called."""
        self._sealed = True
        self._settle()
        return self._done is None

    def cancel(self) -> None:
        """Never call `done`, and leave nothing behind in the logs: what it waited for may not come
        for days, and clients ask again and again."""
        self._done = None
        for waiters in self._waits_in:
            waiters.remove(self)

    def _settle(self) -> None:
        if self._sealed and self._done is not None and (self._failed or self._expected == 0):
            done, self._done = self._done, None
            done(not self._failed)
