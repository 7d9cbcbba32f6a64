"""Turns SIGTERM and SIGINT into an event that a process waits for.

The first signal asks for a clean stop; a second one ends the process at once with status 130,
for the operator whose clean stop takes too long (fault C2).
"""

import os
import signal
import threading
from types import FrameType

FORCED_STATUS = 130


def stop_event() -> threading.Event:
    """Install the handlers (main thread only) and return the event that the first signal sets."""
    event = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if event.is_set():
            os._exit(FORCED_STATUS)
        event.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return event
