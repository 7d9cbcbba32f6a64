"""Turns SIGTERM, SIGINT and SIGHUP into an event that a process waits for.

The first signal starts a clean stop; a later SIGTERM or SIGINT ends the process at once with status
130, in case the clean stop takes too long. Signals within ONE_REQUEST_S are one request: `timeout`,
shells and supervisors often signal both the process and its group. SIGHUP says that the terminal is
gone, as when a connection breaks; a process that was started to ignore it (nohup) goes on.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

FORCED_STATUS = 130
ONE_REQUEST_S = 0.5  # shorter than the pause between two presses of Ctrl-C on purpose
HANDLED = 0  # no signal has this number


def on_stop(handle: Callable[[int, FrameType | None], object]) -> None:
    """Have `handle` called for each of the signals (main thread only)."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)


def stop_event(forced: Callable[[], None] | None = None) -> threading.Event:
    """Install the handlers (main thread only) and return the event that the first signal sets.

    `forced` is called before a later signal ends the process, to report what is left behind.

    A handler runs in the main thread between any two of its steps, even while it looks at the
    event and holds the event's lock: setting it there would wait for that lock for ever. So a
    handler only writes a byte, and a thread that reads bytes does the rest.

    The kernel may give a signal to another thread (to a stopped process it often does), which
    does not wake a main thread that waits for a lock: no handler would run. So the interpreter
    writes a byte too, the signal's number, in whatever thread the signal arrived. It sets the
    event and counts for nothing else, since the handler's byte follows.
    """
    event = threading.Event()
    # Never closed: the interpreter writes to it even after other handlers were installed, and the
    # number of a closed one could be another file's by then.
    received, send = os.pipe()
    os.set_blocking(send, False)

    def act() -> None:
        first_s: float | None = None
        while True:
            arrived = os.read(received, 64)
            event.set()
            if HANDLED not in arrived:
                continue
            now_s = time.monotonic()
            if first_s is None:
                first_s = now_s
            elif now_s - first_s > ONE_REQUEST_S:
                break
        try:
            if forced is not None:
                forced()
        finally:
            os._exit(FORCED_STATUS)

    def handle(number: int, _frame: FrameType | None) -> None:
        try:
            os.write(send, bytes([number if number == signal.SIGHUP else HANDLED]))
        except BlockingIOError:
            pass  # hundreds of signals are waiting to be read: one more says nothing new

    threading.Thread(target=act, name="signals", daemon=True).start()
    # A loop of uvloop in the main thread takes this over: it wakes for every signal by itself.
    signal.set_wakeup_fd(send, warn_on_full_buffer=False)
    on_stop(handle)
    return event
