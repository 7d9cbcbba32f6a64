"""Runs what takes longer than the loop may wait: the disk's work, and the check of large sets.

A few threads take jobs of one kind from a queue and hand each back to the loop when it has run.
Flushes, reads, removals of old segments and checks have threads of their own, so that none waits
for another kind. One log has at most one flush at a time: a slow flush holds back its own log.
"""

import contextvars
import errno
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)


class Job(Protocol):
    """Work for a thread; it keeps its error instead of raising it."""

    error: OSError | None

    def run(self) -> None: ...


class WorkerThreads:
    """`count` threads for one kind of job; `done(job)` is called on the loop after each."""

    def __init__(self, loop: Any, kind: str, count: int) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()  # what the log lines of `done` are bound to
        self._is_closed = False
        self._queue: SimpleQueue[tuple[Job, Callable[[Any], None]] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{kind}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def put(self, job: Job, done: Callable[[Any], None]) -> None:
        """Run `job` in a thread; after `close`, here and now."""
        if self._is_closed:
            job.run()
            done(job)
        else:
            self._queue.put((job, done))

    def close(self) -> None:
        """Run what is queued, then end. The last `done` calls come with the loop's next turn."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            job, done = item
            try:
                job.run()
            except Exception as bug:  # what waits for the job learns of it by its error
                _log.exception("internal_error", job=type(job).__name__)
                job.error = OSError(errno.EIO, repr(bug))
            self._loop.call_soon_threadsafe(done, job, context=self._context)
