"""The sequence numbers of a producer's monitoring events that have been counted, as ranges. Pure.

Sequences of one instance run from 0 without gaps, so those counted are nearly always one range,
however many events there were. A gap that stays means that a monitoring event was lost, and with
it part of the produced number.
"""

from bisect import bisect_left


class SequenceRanges:
    """A set of whole numbers kept as sorted, disjoint, non-touching [first, last] ranges."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: list[tuple[int, int]] | None = None) -> None:
        ordered = sorted(ranges or [])
        self._firsts = [first for first, _ in ordered]
        self._lasts = [last for _, last in ordered]

    def add(self, number: int) -> bool:
        """Add `number`; False when it was there already."""
        at = bisect_left(self._lasts, number)  # the first range that ends at or behind it
        if at < len(self._firsts) and self._firsts[at] <= number:
            return False
        joins_left = at > 0 and self._lasts[at - 1] == number - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == number + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts[at]
            del self._firsts[at], self._lasts[at]
        elif joins_left:
            self._lasts[at - 1] = number
        elif joins_right:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)
        return True

    def keep_at_most(self, count: int) -> None:
        """Close the lowest gaps until no more than `count` ranges are left, taking them as seen."""
        excess = len(self._firsts) - count
        if excess > 0:
            del self._firsts[1 : excess + 1], self._lasts[:excess]

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, self._lasts, strict=True))

    def gaps(self) -> list[tuple[int, int]]:
        """Ranges from 0 to the largest number that are not in the set."""
        found = []
        expected = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            if first > expected:
                found.append((expected, first - 1))
            expected = last + 1
        return found
