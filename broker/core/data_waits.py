"""Waits for data that a reader has not seen: until it is durable, or until a deadline.

A long-poll fetch starts one over all its partitions. A wait costs nothing while nothing happens,
asks for no flush, and is gone from every log when it ends.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kafka2011.broker.core.errors import TooManyWaits
from kafka2011.broker.log.log import Log


class Waited(Enum):
    """How a wait ended."""

    DATA = "data"  # at least one log has bytes from its offset on
    NEW_LOG = "new log"  # some partition got its first log
    DEADLINE = "deadline"
    FAILED = "failed"  # a log failed, is offline or was closed: reading it says what is wrong


class DataWaits:
    """The waits of all readers, for at most `logs_max` logs together."""

    def __init__(self, loop: Any, logs_max: int) -> None:
        self._loop = loop
        self._logs_max = logs_max
        self.log_count = 0
        self.for_new_log: set[DataWait] = set()

    def start(
        self,
        behind: Mapping[Log, int],
        deadline_s: float,
        done: Callable[[Waited], None],
        *,
        or_new_log: bool = False,
    ) -> "DataWait":
        """Call `done` once, from the loop and never before this returns: when one of the logs has
        bytes from its offset on or fails, or at `deadline_s` by the loop's clock. With `or_new_log`
        also when a partition gets its first log: data for one that has none begin there.

        Raises TooManyWaits: nothing was started.
        """
        if self.log_count + len(behind) > self._logs_max:
            raise TooManyWaits(f"{self.log_count} logs are already waited for")
        wait = DataWait(self, self._loop, tuple(behind), done)
        self.log_count += len(behind)
        if or_new_log:
            self.for_new_log.add(wait)
        for log, offset in behind.items():
            log.when_readable_behind(offset, wait)
            if wait.is_over:
                return wait
        wait.expire_at(deadline_s)
        return wait

    def log_created(self) -> None:
        """A partition got its first log."""
        for wait in list(self.for_new_log):
            wait.meet_new_log()


class DataWait:
    """One wait. `cancel` it when its reader is gone."""

    __slots__ = ("_done", "_logs", "_loop", "_timer", "_waits", "is_over")

    def __init__(
        self, waits: DataWaits, loop: Any, logs: tuple[Log, ...], done: Callable[[Waited], None]
    ) -> None:
        self.is_over = False
        self._waits = waits
        self._loop = loop
        self._logs = logs
        self._done: Callable[[Waited], None] | None = done
        self._timer: Any = None

    def expire_at(self, deadline_s: float) -> None:
        self._timer = self._loop.call_at(deadline_s, self._end, Waited.DEADLINE)

    def arrive(self) -> None:
        self._end(Waited.DATA)

    def meet_new_log(self) -> None:
        self._end(Waited.NEW_LOG)

    def fail(self) -> None:
        self._end(Waited.FAILED)

    def cancel(self) -> None:
        """`done` is not called any more, even if the wait has just ended. Idempotent."""
        self._done = None
        self._leave()

    def _end(self, how: Waited) -> None:
        if not self.is_over:
            self._leave()
            self._loop.call_soon(self._call, how)

    def _leave(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._waits.log_count -= len(self._logs)
        self._waits.for_new_log.discard(self)
        for log in self._logs:
            log.forget_data_waiter(self)
        if self._timer is not None:
            self._timer.cancel()

    def _call(self, how: Waited) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(how)
