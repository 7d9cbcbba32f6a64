"""Time as an injected function, so that a test moves it by hours at once.

`Clock` is any callable that returns milliseconds since the Unix epoch: `now_ms` in a process, a
`ManualClock` (tests/support/clock.py) in unit tests.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]

TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


def now_ms() -> int:
    """Milliseconds since the Unix epoch by the system's wall clock."""
    return time.time_ns() // 1_000_000


def has_passed(interval_ms: int, since_ms: int, now_ms: int) -> bool:
    """Whether `interval_ms` have passed since a moment; also if that is in the future: the clock
    was ahead then, and nothing must wait until it is there again."""
    return not 0 <= now_ms - since_ms < interval_ms


def utc_text(time_ms: int) -> str:
    """`2011-06-12 10:20:30 UTC` for milliseconds since the epoch, up to the year 9999."""
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
