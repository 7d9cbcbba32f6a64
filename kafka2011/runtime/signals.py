"""Turns SIGTERM and SIGINT into an event that a process waits for.

The first signal starts a clean stop; a later one ends the process at once with status 130, in case
the clean stop takes too long. Signals within ONE_REQUEST_S are one request: `timeout`, shells and
supervisors often signal both the process and its group.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

FORCED_STATUS = 130
ONE_REQUEST_S = 0.5  # shorter than the pause between two presses of Ctrl-C on purpose


def stop_event(forced: Callable[[], None] | None = None) -> threading.Event:
    """Install the handlers (main thread only) and return the event that the first signal sets.

    `forced` is called before a later signal ends the process, to report what is left behind.
    """
    event = threading.Event()
    first_s = 0.0

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if not event.is_set():
            first_s = now_s
            event.set()
        elif now_s - first_s > ONE_REQUEST_S:
            try:
                if forced is not None:
                    forced()
            finally:
                os._exit(FORCED_STATUS)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return event
