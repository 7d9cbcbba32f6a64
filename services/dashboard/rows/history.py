"""Histories of values, and ages of bytes. Pure: time is passed in."""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import overload

ARRIVALS_MAX = 1_000  # times that are kept; above this every second one is dropped


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
        """Points by time; the same object until a point is noted, which makes comparing cheap."""
        if self._rows is None:
            self._rows = {str(at_ms): values for at_ms, values in self.points}
        return self._rows


class Arrivals:
    """When a datacenter's brokers received their bytes, for the age of those that are not read."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._total = 0.0
        self._came: list[tuple[int, float]] = []  # time, and all that had come by then

    def note(self, counters: Mapping[str, float], now_ms: int) -> None:
        """Record the brokers' counters of bytes. One that decreased was restarted; what one had
        when it was first seen came at an unknown time."""
        for key, value in counters.items():
            before = self._counters.get(key, value)
            self._total += value - before if value >= before else value
            self._counters[key] = value
        if self._came and self._came[-1][1] == self._total:
            return
        self._came.append((now_ms, self._total))
        if len(self._came) > ARRIVALS_MAX:
            del self._came[1:-1:2]  # the first and the last stay

    def age_ms(self, lag_bytes: float | None, now_ms: int) -> float | None:
        """How long the oldest of the newest `lag_bytes` has been there, ms; None when not known.
        What came before the first sample counts as if it had come at the rate since then."""
        if lag_bytes is None:
            return None
        if lag_bytes <= 0:
            return 0.0
        first = self._total - lag_bytes
        begun_ms, begun = self._came[0] if self._came else (now_ms, self._total)
        if first >= begun:
            came_ms, _ = self._came[bisect_right(self._came, first, key=itemgetter(1))]
            return float(now_ms - came_ms)
        seen_ms, came = now_ms - begun_ms, self._total - begun
        return seen_ms + (begun - first) * seen_ms / came if came else float(seen_ms) or None


@overload
def rounded(value: float) -> float: ...
@overload
def rounded(value: float | None) -> float | None: ...
def rounded(value: float | None) -> float | None:
    """The value in three significant digits: a picture needs no more, and unchanged rows need not
    be sent. None (not known) stays None."""
    if value is None:
        return None
    return float(f"{value:.3g}") if value else 0.0
