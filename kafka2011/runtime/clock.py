"""Time as an injected function, so that a test moves it by hours at once.

`Clock` is any callable that returns milliseconds since the Unix epoch. Production code receives
`now_ms`; unit tests pass a `ManualClock`.
"""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    """Milliseconds since the Unix epoch by the system's wall clock."""
    return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that only `advance` moves; starts at `start_ms` (ms since the epoch)."""

    def __init__(self, start_ms: int = 1_300_000_000_000) -> None:
        self.current_ms = start_ms

    def __call__(self) -> int:
        return self.current_ms

    def advance(self, elapsed_ms: int) -> None:
        self.current_ms += elapsed_ms
