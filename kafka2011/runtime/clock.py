"""Time as an injected function, so that a test moves it by hours at once.

`Clock` is any callable that returns milliseconds since the Unix epoch: `now_ms` in a process, a
`ManualClock` (tests/support/clock.py) in unit tests.
"""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    """Milliseconds since the Unix epoch by the system's wall clock."""
    return time.time_ns() // 1_000_000
