"""Time that a test moves."""


class ManualClock:
    """A clock that only `advance` moves; starts at `start_ms` (ms since the epoch)."""

    def __init__(self, start_ms: int = 1_300_000_000_000) -> None:
        self.current_ms = start_ms

    def __call__(self) -> int:
        return self.current_ms

    def advance(self, elapsed_ms: int) -> None:
        self.current_ms += elapsed_ms
