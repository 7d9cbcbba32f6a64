"""How many events of each moment are in the counts, from which their age when shown follows.

The page's server reads this with the counts. Events of a moment beyond those of the reading before
have just become visible, so their age is the time of the reading less that moment. Those that were
older than AGE_MS_MAX when they were counted are counted by that age instead.
"""

from collections import Counter
from collections.abc import Mapping

BIN_MS = 100
BINS_MAX = 200
AGE_MS_MAX = BIN_MS * BINS_MAX


class EventAges:
    """Counts by bins of BIN_MS, and by age for older events. One thread at a time."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self._older: Counter[int] = Counter()

    def add(self, time_ms: int, now_ms: int) -> None:
        """Add an event of `time_ms` that counts now; one of the future counts as of now."""
        newest = now_ms // BIN_MS
        number = min(time_ms // BIN_MS, newest)
        if number <= newest - BINS_MAX:
            self._older[_rounded_up(now_ms - time_ms)] += 1
            return
        if number not in self._bins and len(self._bins) >= 3 * BINS_MAX:
            self._forget(newest)
        self._bins[number] = self._bins.get(number, 0) + 1

    def _forget(self, newest: int) -> None:
        # Twice as old as those that are still added to: a reading sees all since the one before.
        for number in [each for each in self._bins if each <= newest - 2 * BINS_MAX]:
            del self._bins[number]

    def shown(self, now_ms: int) -> Mapping[str, object]:
        """The counts. `bins`: number of the bin -> events so far; `older`: age in ms when they were
        counted, rounded up to two digits -> events so far."""
        self._forget(now_ms // BIN_MS)
        return {"bin_ms": BIN_MS, "bins": dict(self._bins), "older": dict(self._older)}


def _rounded_up(age_ms: int) -> int:
    """At most 90 values per power of ten."""
    step: int = 10 ** max(0, len(str(age_ms)) - 2)
    return -(-age_ms // step) * step
