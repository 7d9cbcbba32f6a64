"""A clock for ages: it follows the wall clock but never jumps with it.

Retention and rolling ask how long ago something was written. A wall clock that is set wrong for a
minute must not delete a week of log, so this one advances with the machine's own timer
and gives way to the wall clock by at most a tenth of the time that passes. At its start it believes
the wall clock; `file_times` has what the files say of a clock that went back meanwhile.
"""

import time
from collections.abc import Callable

from kafka2011.runtime.clock import Clock, now_ms

SLEW_DIVISOR = 10


def boot_ms() -> int:
    """Milliseconds that also pass while the machine sleeps; not moved by setting the clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class SlewedClock:
    """Milliseconds since the epoch, as a `Clock`."""

    def __init__(self, wall: Clock = now_ms, timer: Callable[[], int] = boot_ms) -> None:
        self._wall = wall
        self._timer = timer
        self._now_ms = wall()
        self._timer_ms = timer()

    def __call__(self) -> int:
        timer_ms = self._timer()
        elapsed_ms = max(0, timer_ms - self._timer_ms)
        # Whole steps of the slew only, so that a clock asked every millisecond moves as well.
        if elapsed_ms < SLEW_DIVISOR:
            return self._now_ms + elapsed_ms
        self._timer_ms = timer_ms
        expected_ms = self._now_ms + elapsed_ms
        give_ms = elapsed_ms // SLEW_DIVISOR
        difference_ms = self._wall() - expected_ms
        self._now_ms = expected_ms + max(-give_ms, min(give_ms, difference_ms))
        return self._now_ms
