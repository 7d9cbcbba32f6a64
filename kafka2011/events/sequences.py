"""The sequence numbers of a producer's monitoring events that were counted, as ranges. Pure.

Sequences of one instance run from 0 without gaps, so those counted are nearly always one range,
however many events there were. A gap that stays means that a monitoring event was lost, and with
it part of the produced count. The times of the events at its edges show in which windows.
"""

from bisect import bisect_left
from math import inf
from typing import NamedTuple

GAP_WAIT_MS = 600_000  # wait for a broker that does not answer and may have the missing events


class Gap(NamedTuple):
    """Sequences `first` to `last`, which were written but not counted.

    `after_ms` and `before_ms` are the times of the events before and behind the gap (ms since the
    epoch); `after_ms` is 0 if nothing was counted before it. `seen_ms`: when an event behind it
    first showed it.
    """

    first: int
    last: int
    after_ms: int
    before_ms: int
    seen_ms: int = 0


class SequenceRange(NamedTuple):
    """Counted sequences from `first` to `last`, and the times of these two events, ms; `seen_ms`:
    since when the sequences before them are known to have been written."""

    first: int
    last: int
    first_ms: int = 0
    last_ms: int = 0
    seen_ms: int = 0


class SequenceRanges:
    """A set of whole numbers kept as sorted, disjoint, non-touching ranges.

    `final` is the last sequence that the producer reported to have written, in an event of
    `final_ms` that was counted at `final_seen_ms`; -1 if it reported none.
    """

    __slots__ = ("_ranges", "final", "final_ms", "final_seen_ms")

    def __init__(
        self,
        ranges: list[SequenceRange] | None = None,
        final: int = -1,
        final_ms: int = 0,
        final_seen_ms: int = 0,
    ) -> None:
        self._ranges = sorted(ranges or [])
        self.final = final
        self.final_ms = final_ms
        self.final_seen_ms = final_seen_ms

    def add(self, number: int, time_ms: int = 0, seen_ms: int = 0) -> bool:
        """Add `number`, of an event of `time_ms` that is counted at `seen_ms`; False if it was in
        the set already."""
        ranges = self._ranges
        at = bisect_left(ranges, number, key=lambda each: each.last)  # the first not before it
        if at < len(ranges) and ranges[at].first <= number:
            return False
        # The range behind it has shown already that the sequences before `number` were written.
        since_ms = ranges[at].seen_ms if at < len(ranges) else seen_ms
        added = SequenceRange(number, number, time_ms, time_ms, since_ms)
        begin, end = at, at
        if at > 0 and ranges[at - 1].last == number - 1:
            begin = at - 1
            added = ranges[begin]._replace(last=number, last_ms=time_ms)
        if at < len(ranges) and ranges[at].first == number + 1:
            end = at + 1
            added = added._replace(last=ranges[at].last, last_ms=ranges[at].last_ms)
        ranges[begin:end] = [added]
        return True

    def range_of(self, number: int) -> SequenceRange | None:
        """The range that has `number`."""
        at = bisect_left(self._ranges, number, key=lambda each: each.last)
        found = self._ranges[at] if at < len(self._ranges) else None
        return found if found is not None and found.first <= number else None

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._ranges)

    def keep_at_most(self, count: int) -> None:
        """Close the lowest gaps until no more than `count` ranges are left, taking them as seen."""
        excess = len(self._ranges) - count
        if excess > 0:
            lowest, last = self._ranges[0], self._ranges[excess]
            joined = lowest._replace(last=last.last, last_ms=last.last_ms)
            self._ranges[: excess + 1] = [joined]

    def clamp_seen(self, now_ms: int) -> None:
        """Take later times at which something was seen for `now_ms`: the clock was ahead."""
        self._ranges = [each._replace(seen_ms=min(each.seen_ms, now_ms)) for each in self._ranges]
        self.final_seen_ms = min(self.final_seen_ms, now_ms)

    def ranges(self) -> list[SequenceRange]:
        return list(self._ranges)

    def gaps(self, known_ms: float = inf) -> list[Gap]:
        """The ranges from 0 to the largest known number (or `final`) that are not in the set, as
        far as they were known at `known_ms`."""
        found = []
        expected, after_ms = 0, 0
        for each in self._ranges:
            if each.first > expected and each.seen_ms <= known_ms:
                found.append(Gap(expected, each.first - 1, after_ms, each.first_ms, each.seen_ms))
            expected, after_ms = each.last + 1, each.last_ms
        if self.final >= expected and self.final_seen_ms <= known_ms:
            found.append(Gap(expected, self.final, after_ms, self.final_ms, self.final_seen_ms))
        return found
