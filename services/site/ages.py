"""How many events of each moment are in the counts, from which their age when shown follows.

The page's server reads this with the counts. Events of a moment beyond those of the reading before
have just become visible, so their age is the time of the reading less that moment.
"""

from collections.abc import Mapping

BIN_MS = 100
BINS_MAX = 200  # of the newest moments: 20 s


class EventAges:
    """Counts by bins of BIN_MS; older events in one number. One thread at a time."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self._older = 0

    def add(self, time_ms: int, now_ms: int) -> None:
        """Add an event of `time_ms` that counts now; one of the future counts as of now."""
        newest = now_ms // BIN_MS
        number = min(time_ms // BIN_MS, newest)
        if number <= newest - BINS_MAX:
            self._older += 1
            return
        if number not in self._bins and len(self._bins) >= 2 * BINS_MAX:
            self._forget(newest)
        self._bins[number] = self._bins.get(number, 0) + 1

    def _forget(self, newest: int) -> None:
        for number in [each for each in self._bins if each <= newest - BINS_MAX]:
            del self._bins[number]

    def shown(self, now_ms: int) -> Mapping[str, object]:
        """The counts. `bins`: number of the bin -> events so far; `older`: events that were older
        than any bin when they were counted."""
        self._forget(now_ms // BIN_MS)
        return {"bin_ms": BIN_MS, "bins": dict(self._bins), "older": self._older}
