"""Decides when the logs' flushed ends are written to disk (`kafka2011.broker.log.flushed_mark`).

Right after a flush when the last mark is a second old or much was flushed since, else when that
second has passed; now and then without a flush as well, to renew the time in the mark.
"""

from collections.abc import Callable
from typing import Any

from kafka2011.broker.log.flushed_mark import MarkJob
from kafka2011.broker.log.log_manager import LogManager

INTERVAL_S = 1.0
FLUSHED_BYTES_MAX = 8 * 1024 * 1024  # without a mark, besides those flushed while one is written
IDLE_INTERVAL_S = 600.0


class MarkSchedule:
    """Has marks written, one at a time. `run(job, done)` runs a job beside the loop, then calls
    `done(job)` on it."""

    def __init__(
        self, logs: LogManager, loop: Any, run: Callable[[MarkJob, Callable[[Any], None]], None]
    ) -> None:
        self._logs = logs
        self._loop = loop
        self._run = run
        self._is_running = False
        self._is_writing = False
        self._unmarked_bytes = 0
        self._has_moved = False
        self._marked_at_s = -INTERVAL_S
        self._timer: Any = None

    def start(self) -> None:
        """Begin, on the loop that runs or will run."""
        self._is_running = True
        self._mark_in(IDLE_INTERVAL_S)

    def stop(self) -> None:
        """Begin no further mark; closing the logs leaves the last one."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def flushed(self, size_bytes: int) -> None:
        """Count flushed bytes that no mark covers yet."""
        self._unmarked_bytes += size_bytes
        if size_bytes:
            self.moved()

    def moved(self) -> None:
        """Note that an end has moved since the last mark."""
        self._has_moved = True
        if self._is_running and not self._is_writing:
            self._mark_when_due()

    def _mark_when_due(self) -> None:
        since_s = self._loop.time() - self._marked_at_s
        if since_s >= INTERVAL_S or self._unmarked_bytes >= FLUSHED_BYTES_MAX:
            self._mark()
        elif self._has_moved:
            self._mark_in(INTERVAL_S - since_s)
        else:
            self._mark_in(IDLE_INTERVAL_S)

    def _mark_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._mark)

    def _mark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_writing = True
        self._unmarked_bytes = 0
        self._has_moved = False
        self._run(self._logs.begin_marking(), self._marked)

    def _marked(self, job: MarkJob) -> None:
        self._logs.complete_marking(job)
        self._is_writing = False
        self._marked_at_s = self._loop.time()
        if self._is_running:
            self._mark_when_due()
