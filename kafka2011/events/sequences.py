"""The sequence numbers of a producer's monitoring events that were counted, as ranges. Pure.

Sequences of one instance run from 0 without gaps, so those counted are nearly always one range,
however many events there were. A gap that stays means that a monitoring event was lost, and with
it part of the produced count. The times of the events at its edges show in which windows.
"""

from bisect import bisect_left
from collections import OrderedDict
from functools import reduce
from math import inf
from typing import NamedTuple

GAP_WAIT_MS = 600_000  # wait for a broker that does not answer and may have the missing events
# Behind the name of an instance: its events that have the sequences of others of it.
USED_AGAIN = ", used again as by a restored journal"
REUSED_AFTER_MS = 1_000  # the times of two events in order may differ by that the wrong way
TIMES_MAX = 20_000


class Gap(NamedTuple):
    """Sequences `first` to `last`, which were written but not counted.

    `after_ms` and `before_ms` are the times of the events before and behind the gap (ms since the
    epoch); `after_ms` is 0 if nothing was counted before it. `seen_ms`: when an event behind it
    first showed it. `parts`: of how many gaps it is the span.
    """

    first: int
    last: int
    after_ms: int
    before_ms: int
    seen_ms: int = 0
    parts: int = 1

    def meets(self, other: "Gap") -> bool:
        """Whether there is no time between the two."""
        own, others = sorted(self[2:4]), sorted(other[2:4])
        return own[0] <= others[1] and others[0] <= own[1]

    def joined(self, other: "Gap") -> "Gap":
        """One gap that spans both, whatever order the clock has their times in."""
        times_ms = (*self[2:4], *other[2:4])
        return Gap(
            min(self.first, other.first),
            max(self.last, other.last),
            min(times_ms),
            max(times_ms),
            min(self.seen_ms, other.seen_ms),
            self.parts + other.parts,
        )


class SequenceRange(NamedTuple):
    """Counted sequences from `first` to `last`, and the times of these two events, ms; `seen_ms`:
    since when the sequences before them are known to have been written. `oldest_ms` and
    `newest_ms`: the times of all of them, which a clock that was set has in any order."""

    first: int
    last: int
    first_ms: int = 0
    last_ms: int = 0
    seen_ms: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0

    def joined(self, other: "SequenceRange") -> "SequenceRange":
        """One range of both, this one being the lower."""
        return self._replace(
            last=other.last,
            last_ms=other.last_ms,
            oldest_ms=min(self.oldest_ms, other.oldest_ms),
            newest_ms=max(self.newest_ms, other.newest_ms),
        )


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
        added = SequenceRange(number, number, time_ms, time_ms, since_ms, time_ms, time_ms)
        begin, end = at, at
        if at > 0 and ranges[at - 1].last == number - 1:
            begin = at - 1
            added = ranges[begin].joined(added)
        if at < len(ranges) and ranges[at].first == number + 1:
            end = at + 1
            added = added.joined(ranges[at])
        ranges[begin:end] = [added]
        return True

    def range_of(self, number: int) -> SequenceRange | None:
        """The range that has `number`."""
        at = bisect_left(self._ranges, number, key=lambda each: each.last)
        found = self._ranges[at] if at < len(self._ranges) else None
        return found if found is not None and found.first <= number else None

    def use_again(self, number: int, *, after_ms: int, time_ms: int, seen_ms: int = 0) -> None:
        """Note that event `number` of `time_ms`, made after `after_ms`, has a sequence of another
        one: such events are one gap, from the lowest to the highest."""
        if self.final < 0:
            first, self.final_seen_ms = number, seen_ms
        else:
            before = self._ranges[0] if self._ranges else SequenceRange(0, -1)
            first, after_ms = min(number, before.last + 1), min(after_ms, before.last_ms)
        times_ms = (after_ms, after_ms, seen_ms, after_ms, after_ms)
        self._ranges = [SequenceRange(0, first - 1, *times_ms)] if first else []
        self.final, self.final_ms = max(number, self.final), max(time_ms, self.final_ms)

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._ranges)

    def keep_at_most(self, count: int) -> None:
        """Close the lowest gaps until no more than `count` ranges are left, taking them as seen."""
        excess = len(self._ranges) - count
        if excess > 0:
            self._ranges[: excess + 1] = [reduce(SequenceRange.joined, self._ranges[: excess + 1])]

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


class EventTimes:
    """The times of the TIMES_MAX monitoring events counted last. A repeat of an event has its time;
    one of another time with the same sequence is another event, and was not counted: a journal that
    was restored from a backup goes on with the sequences that it had."""

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def add(self, instance: tuple[str, str], number: int, time_ms: int) -> None:
        """Note an event of a producer (server, instance) that was counted."""
        self._times[(*instance, number)] = time_ms
        if len(self._times) > TIMES_MAX:
            self._times.popitem(last=False)

    def not_counted_after(
        self, instance: tuple[str, str], number: int, time_ms: int, counted: SequenceRanges
    ) -> int | None:
        """For an event whose sequence is in `counted`: after which time (ms) what it counts was
        made, 0 if that is not known; None if it is a repeat."""
        known = counted.range_of(number)
        if known is None or not time_ms:
            return None
        own_ms = self._times.get((*instance, number))
        is_newer = 0 < known.newest_ms < time_ms - REUSED_AFTER_MS
        is_older = time_ms < known.oldest_ms - REUSED_AFTER_MS
        if not (is_newer or is_older if own_ms is None else own_ms != time_ms):
            return None
        before_ms = self._times.get((*instance, number - 1))
        if before_ms is not None and before_ms <= time_ms:
            return before_ms
        return known.newest_ms if is_newer else 0
