"""Decides what the page says of a process: up, slow, lagging, down, stopped; and how fast it moves.

Down is two failed scrapes in a row, one sample apart (contracts section 7). A process that took
its own `alive` node away before its first failed scrape was two samples old stopped cleanly. Pure:
time is passed in.
"""

from collections import deque
from dataclasses import dataclass, field

UP, SLOW, LAGGING, DOWN, STOPPED, STARTING = (
    "up",
    "slow",
    "lagging",
    "down",
    "stopped",
    "starting",
)
FAILURES_DOWN = 2
RATE_WINDOW_MS = 5_000
# A killed process's node lives until its session expires (6 s unless set); one that is gone this
# soon after the first failure was taken away by the process itself.
CLEAN_STOP_MS = 2_500


@dataclass
class Health:
    """What scrapes and the registry have said of one process so far."""

    failures: int = 0
    first_failure_ms: int = 0
    reason: str = ""
    was_seen: bool = False
    is_alive_node: bool = False
    node_gone_ms: int = 0
    state: str = STARTING
    since_ms: int = 0

    def note_scrape(self, is_ok: bool, now_ms: int, reason: str = "") -> None:
        if is_ok:
            self.failures, self.reason, self.was_seen = 0, "", True
            return
        if not self.failures:
            self.first_failure_ms = now_ms
        self.failures += 1
        self.reason = reason

    def note_node(self, is_there: bool, now_ms: int) -> None:
        """Whether the `alive` node is there."""
        if self.is_alive_node and not is_there:
            self.node_gone_ms = now_ms
        self.is_alive_node = is_there

    def judge(self, now_ms: int, behind_ms: float | None, lag_ms_max: int) -> str:
        """The state now; `since_ms` is when it began."""
        new = self._state(behind_ms, lag_ms_max)
        if new != self.state or not self.since_ms:
            self.state, self.since_ms = new, now_ms
        return new

    def _state(self, behind_ms: float | None, lag_ms_max: int) -> str:
        if self.failures >= FAILURES_DOWN:
            return STOPPED if self._stopped_cleanly() else DOWN
        if self.failures:
            # One failure tells nothing yet: what was known stays.
            return self.state if self.state in (DOWN, STOPPED, STARTING) else SLOW
        if not self.was_seen:
            return STARTING if self.is_alive_node or not self.since_ms else STOPPED
        if behind_ms is not None and behind_ms > lag_ms_max:
            return LAGGING
        return UP

    def _stopped_cleanly(self) -> bool:
        if self.is_alive_node:
            return False
        if not self.was_seen:
            return True
        return bool(self.node_gone_ms) and self.node_gone_ms < self.first_failure_ms + CLEAN_STOP_MS


class Rates:
    """Rates of counters over the last seconds. A counter that went back began anew."""

    def __init__(self, window_ms: int = RATE_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._seen: dict[str, deque[tuple[int, float]]] = {}

    def note(self, key: str, value: float, now_ms: int) -> float:
        """Record a counter and return its rate per second; 0 until two values are known."""
        seen = self._seen.setdefault(key, deque())
        if seen and value < seen[-1][1]:
            seen.clear()
        seen.append((now_ms, value))
        while len(seen) > 2 and seen[1][0] <= now_ms - self._window_ms:
            seen.popleft()
        return self.rate(key)

    def rate(self, key: str) -> float:
        seen = self._seen.get(key)
        if not seen or seen[-1][0] <= seen[0][0]:
            return 0.0
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
        """By time; the very same object until a point is noted, so that nobody compares it."""
        if self._rows is None:
            self._rows = {str(at_ms): values for at_ms, values in self.points}
        return self._rows


def behind_ms(lag_bytes: float, bytes_per_s: float) -> float | None:
    """How long it takes to read what is left at the rate at which more comes; None when unknown."""
    if lag_bytes <= 0:
        return 0.0
    return lag_bytes * 1000 / bytes_per_s if bytes_per_s > 1 else None


def rounded(value: float) -> float:
    """Three significant digits: a picture needs no more, and unchanged rows need not be sent."""
    return float(f"{value:.3g}") if value else 0.0
