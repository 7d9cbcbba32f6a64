"""Rates of counters and histories of values. Pure: time is passed in."""

from collections import deque
from dataclasses import dataclass, field
from typing import overload

RATE_WINDOW_MS = 5_000


class Rates:
    """Rates of counters over the last seconds. A counter that decreased was restarted."""

    def __init__(self, window_ms: int = RATE_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._seen: dict[str, deque[tuple[int, float]]] = {}

    def note(self, key: str, value: float, now_ms: int) -> float | None:
        """Record a counter and return its rate per second; None until two values are known."""
        seen = self._seen.setdefault(key, deque())
        if seen and value < seen[-1][1]:
            seen.clear()
        seen.append((now_ms, value))
        while len(seen) > 2 and seen[1][0] <= now_ms - self._window_ms:
            seen.popleft()
        return self.rate(key)

    def rate(self, key: str) -> float | None:
        seen = self._seen.get(key)
        if not seen or seen[-1][0] <= seen[0][0]:
            return None
        return (seen[-1][1] - seen[0][1]) * 1000 / (seen[-1][0] - seen[0][0])

    def forget(self, now_ms: int) -> None:
        """Drop what has not been noted for a while: the sum of keys stays bounded."""
        old = now_ms - 4 * self._window_ms
        for key in [key for key, seen in self._seen.items() if seen[-1][0] < old]:
            del self._seen[key]


@dataclass
class History:
    """Points of one or more lines over time, thinned to `step_ms`, kept for `keep_ms`."""

    keep_ms: int
    step_ms: int
    points: deque[tuple[int, dict[str, float | None]]] = field(default_factory=deque)
    _rows: dict[str, dict[str, float | None]] | None = None

    def note(self, now_ms: int, values: dict[str, float | None]) -> None:
        if self.points and now_ms - self.points[-1][0] < self.step_ms:
            return
        self.points.append((now_ms, values))
        while self.points and self.points[0][0] < now_ms - self.keep_ms:
            self.points.popleft()
        self._rows = None

    def rows(self) -> dict[str, dict[str, float | None]]:
        """By time; the very same object until a point is noted, which makes comparing it cheap."""
        if self._rows is None:
            self._rows = {str(at_ms): values for at_ms, values in self.points}
        return self._rows


def behind_ms(lag_bytes: float | None, bytes_per_s: float) -> float | None:
    """How long it takes to read the lag at the rate at which bytes arrive; None when unknown."""
    if lag_bytes is None:
        return None
    if lag_bytes <= 0:
        return 0.0
    return lag_bytes * 1000 / bytes_per_s if bytes_per_s > 1 else None


@overload
def rounded(value: float) -> float: ...
@overload
def rounded(value: float | None) -> float | None: ...
def rounded(value: float | None) -> float | None:
    """Three significant digits: a picture needs no more, and unchanged rows need not be sent. None,
    what is not known, stays it."""
    if value is None:
        return None
    return float(f"{value:.3g}") if value else 0.0
