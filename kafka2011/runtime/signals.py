"""Turns SIGTERM and SIGINT into an event that a process waits for.

The first signal asks for a clean stop; a later one ends the process at once with status 130, for
the operator whose clean stop takes too long (fault C2). Signals that come together are one ask:
`timeout`, shells and supervisors often tell the process and its group, so that it hears twice.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

FORCED_STATUS = 130
ONE_ASK_S = 0.5  # nobody presses Ctrl-C twice within it and means two things


def stop_event(forced: Callable[[], None] | None = None) -> threading.Event:
    """Install the handlers (main thread only) and return the event that the first signal sets.

    `forced` is called before a later signal ends the process: what nobody will clean up is told.
    """
    event = threading.Event()
    first_s = 0.0

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if not event.is_set():
            first_s = now_s
            event.set()
        elif now_s - first_s > ONE_ASK_S:
            try:
                if forced is not None:
                    forced()
            finally:
                os._exit(FORCED_STATUS)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return event
