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
from queue import SimpleQueue
from types import FrameType

FORCED_STATUS = 130
ONE_REQUEST_S = 0.5  # shorter than the pause between two presses of Ctrl-C on purpose


def stop_event(forced: Callable[[], None] | None = None) -> threading.Event:
    """Install the handlers (main thread only) and return the event that the first signal sets.

    `forced` is called before a later signal ends the process, to report what is left behind.

    A handler runs in the main thread between any two steps of it, also while that looks at the
    event and holds the event's lock: setting it there would wait for that lock for ever. So a
    handler only writes down when it ran, by the one `put` that may interrupt itself, and a thread
    does the rest.
    """
    event = threading.Event()
    times_s: SimpleQueue[float] = SimpleQueue()

    def act() -> None:
        first_s = times_s.get()
        event.set()
        while times_s.get() - first_s <= ONE_REQUEST_S:
            pass
        try:
            if forced is not None:
                forced()
        finally:
            os._exit(FORCED_STATUS)

    def handle(_signal: int, _frame: FrameType | None) -> None:
        times_s.put(time.monotonic())

    threading.Thread(target=act, name="signals", daemon=True).start()
    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return event
