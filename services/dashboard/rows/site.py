"""What the page Site shows: the answers of the processes `site`, and how old events are when shown.

An answer says how many events of each moment are in its counts. Events beyond those of the answer
before have become visible with this sample; their age is the time of the sample less that moment.

After a pause (no page was open) it would be the length of the pause, so no ages are taken then.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from kafka2011.services.dashboard.sampling.observations import Rows

AGES_MS = 60_000  # the ages of the events shown in the last minute
HISTORY_MS = 300_000
PAUSE_MS = 3_000  # a pause is above this and above twice the shortest time between two samples
HISTORY_EVERY_MS = 2_000
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99}


def new_ages(
    before: Mapping[str, Any] | None, ages: Mapping[str, Any], now_ms: int
) -> list[tuple[int, int]]:
    """(age in ms, number of events) of the events in `ages` beyond `before`; none the first time
    and after a restart, since it is not known when those became visible."""
    if before is None or _is_less(ages["bins"], before["bins"]):
        return []
    if _is_less(ages["older"], before["older"]) or before["older"].keys() - ages["older"].keys():
        return []
    bin_ms = int(ages["bin_ms"])
    # The end of the bin would be too late for half of its events, the start too early.
    by_moment = [
        (max(0, now_ms - int(name) * bin_ms - bin_ms // 2), number - before["bins"].get(name, 0))
        for name, number in ages["bins"].items()
    ]
    by_age = [
        (int(name), number - before["older"].get(name, 0)) for name, number in ages["older"].items()
    ]
    return [(age, more) for age, more in (*by_moment, *by_age) if more]


def _is_less(counts: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether one of the counts has decreased: they began anew."""
    return any(number < before.get(name, 0) for name, number in counts.items())


def quantile(ages: Iterable[tuple[int, int]], part: float) -> int | None:
    """The age that `part` of the events do not exceed; None without events."""
    ordered = sorted(ages)
    total = sum(number for _, number in ordered)
    passed = 0
    for age, number in ordered:
        passed += number
        if passed >= part * total:
            return age
    return None


class SiteRows:
    """Keeps the last answer of each use and the ages of the last minute."""

    def __init__(self) -> None:
        self._before: dict[str, Mapping[str, Any]] = {}
        self._before_ms = 0
        self._shortest_ms: int | None = None  # time between two samples
        self._is_after_pause = False  # what became visible with this sample has no age
        self._ages: deque[tuple[int, list[tuple[int, int]]]] = deque()
        self._history: dict[str, dict[str, Any]] = {}

    def sections(self, answers: Iterable[Mapping[str, Any]], now_ms: int) -> dict[str, Rows]:
        """The sections `site`, a row for each use and one for the latency, and `site_latency`,
        the latency over time."""
        rows: Rows = {}
        is_paused = self._note_pause(now_ms)
        self._is_after_pause = False
        for answer in answers:
            for use, found in answer.get("uses", {}).items():
                ages = new_ages(self._before.get(use), found["ages"], now_ms)
                self._before[use] = found["ages"]
                if ages and is_paused:
                    self._is_after_pause = True
                elif ages:
                    self._ages.append((now_ms, ages))
                rows[use] = {
                    **found["shown"],
                    "at_ms": found["at_ms"],
                    **{name: found.get(name) for name in ("behind_ms", "is_late")},
                    "events": found["events"],
                    "missed_bytes": found["missed_bytes"],
                    "begun_anew": found["begun_anew"],
                }
        while self._ages and self._ages[0][0] <= now_ms - AGES_MS:
            self._ages.popleft()
        if rows:
            rows["latency"] = self._latency()
            self._remember(rows["latency"], now_ms)
        for at in [at for at in self._history if int(at) < now_ms - HISTORY_MS]:
            del self._history[at]
        return {"site": rows, "site_latency": dict(self._history)}

    def _note_pause(self, now_ms: int) -> bool:
        """Note the sample's time; returns whether the one before is longer ago than usual."""
        took_ms = now_ms - self._before_ms
        if self._before_ms and took_ms > 0:
            if (self._shortest_ms or 0) > max(PAUSE_MS, 2 * took_ms):
                self._ages.clear()  # all samples until now came after pauses
            self._shortest_ms = min(self._shortest_ms or took_ms, took_ms)
        self._before_ms = now_ms
        return took_ms > max(PAUSE_MS, 2 * (self._shortest_ms or 0))

    def _latency(self) -> dict[str, Any]:
        ages = [each for _, found in self._ages for each in found]
        found: dict[str, Any] = {name: quantile(ages, part) for name, part in QUANTILES.items()}
        shown = sum(number for _, number in ages)
        return {**found, "shown": shown, "is_after_pause": self._is_after_pause}

    def _remember(self, latency: Mapping[str, Any], now_ms: int) -> None:
        newest = max(map(int, self._history), default=0)
        if latency["p50_ms"] is not None and now_ms >= newest + HISTORY_EVERY_MS:
            self._history[str(now_ms)] = {name: latency[name] for name in QUANTILES}
