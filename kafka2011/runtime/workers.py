"""Threads that do not end silently.

When an exception ends a plain thread, Python prints it, and the process goes on without what the
thread did. A `Worker` logs it (`worker_failed`) and counts it; then its target runs again after a
pause, or, with `restarts=False`, its owner ends the process or makes the next call raise. Meanwhile
`failing` names it: /healthz of a process (`runtime.metrics`) answers 503 then.
"""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable

from kafka2011.runtime.logs import get_logger

RESTART_FIRST_S = 0.1
RESTART_LONGEST_S = 30.0
RECENT_S = 60.0  # a worker that runs again is named as failing for so long
NAMES_MAX = 100  # of workers that failed; further ones are counted as OTHER
OTHER = "other"

log = get_logger(__name__)

_lock = threading.Lock()
_failures: Counter[str] = Counter()
_failed: "weakref.WeakSet[Worker]" = weakref.WeakSet()


def restart_pause_s(failures: int) -> float:
    """The pause after so many failures in a row: it doubles, up to RESTART_LONGEST_S."""
    return float(min(RESTART_FIRST_S * 2 ** min(failures - 1, 16), RESTART_LONGEST_S))


def failure_counts() -> dict[str, int]:
    """How often each worker of this process failed, by its name."""
    with _lock:
        return dict(_failures)


def failing() -> list[str]:
    """The workers that ended by a failure and were not joined since, or failed a moment ago."""
    with _lock:
        return sorted({worker.name for worker in _failed if worker.is_failing})


class Worker:
    """A daemon thread that runs `target` until it returns.

    `on_failure` is called in the thread after each failure, with the exception.
    """

    def __init__(
        self,
        target: Callable[[], object],
        name: str,
        *,
        restarts: bool,
        on_failure: Callable[[BaseException], object] = lambda _error: None,
    ) -> None:
        self.name = name
        self._target = target
        self._restarts = restarts
        self._on_failure = on_failure
        self._failed_at_s = float("-inf")
        self._ended_by_failure = False
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end, which the owner has asked of `target`: it is not run again.

        Does nothing before `start` and in the thread itself.
        """
        self._is_ending.set()
        if self._thread.ident is not None and not self.is_current:
            self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    @property
    def is_failing(self) -> bool:
        if self._is_ending.is_set():
            return False
        return self._ended_by_failure or time.monotonic() < self._failed_at_s + RECENT_S

    def _run(self) -> None:
        in_a_row = 0
        while True:
            began_s = time.monotonic()
            try:
                self._target()
                return
            except BaseException as error:
                self._failed_at_s = time.monotonic()
                is_new = self._failed_at_s - began_s > RESTART_LONGEST_S
                in_a_row = 1 if is_new else in_a_row + 1
                is_over = not self._restarts or self._is_ending.is_set()
                self._report(error, is_over)
                if is_over:
                    return
            if self._is_ending.wait(restart_pause_s(in_a_row)):
                return

    def _report(self, error: BaseException, is_over: bool) -> None:
        log.exception("worker_failed", worker=self.name, restarts=not is_over)
        with _lock:
            self._ended_by_failure = is_over
            _failed.add(self)
            is_known = self.name in _failures or len(_failures) < NAMES_MAX
            _failures[self.name if is_known else OTHER] += 1
        try:
            self._on_failure(error)
        except Exception:
            log.exception("failure_not_handled", worker=self.name)
