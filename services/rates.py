"""Rates of counters, and messages a second as the audit counts them. Pure: time is passed in."""

from collections import deque
from collections.abc import Mapping
from typing import Any

RATE_WINDOW_MS = 5_000
FORGET_WINDOWS = 12  # what is read most rarely is read every 30 s
READ_AGE_MS_MAX = 10_000


class Rates:
    """Rates of counters over the last seconds. One that decreased was restarted; both it and one of
    which the clock went back begin anew."""

    def __init__(self, window_ms: int = RATE_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._seen: dict[str, deque[tuple[int, float]]] = {}

    def note(self, key: str, value: float, now_ms: int) -> float | None:
        """Record a counter and return its rate per second; None until two values are known."""
        seen = self._seen.setdefault(key, deque())
        if seen and (value < seen[-1][1] or now_ms < seen[-1][0]):
            seen.clear()
        if not seen or (now_ms, value) != seen[-1]:  # read more rarely than it is noted
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
        """Drop what has not been noted for a while, so that the number of keys stays bounded."""
        old = now_ms - FORGET_WINDOWS * self._window_ms
        for key in [key for key, seen in self._seen.items() if seen[-1][0] < old]:
            del self._seen[key]


class MessageRates:
    """Messages a second that were reported and that are in each tier, from the audit's summaries.

    While the audit reads more than READ_AGE_MS_MAX behind its clock, its counts grow by what it
    makes up for: then the rate is not known, and the first one after is the mean since before.
    """

    def __init__(self, window_ms: int = RATE_WINDOW_MS) -> None:
        self._rates = Rates(window_ms)

    def note(self, summary: Mapping[str, Any]) -> dict[str, float | None]:
        """Record the counts of a summary (GET /audit/summary); the rates of `produced` and of its
        tiers, None where they are not known."""
        now_ms = summary["now_ms"]
        counts = {"produced": (summary["produced"], summary["reports_read_to_ms"])}
        for tier, found in summary["tiers"].items():
            counts[tier] = (found["count"], found["read_to_ms"])
        return {
            name: self._rates.note(name, count, now_ms)
            if now_ms - read_to_ms <= READ_AGE_MS_MAX
            else None
            for name, (count, read_to_ms) in counts.items()
        }
