"""Which target offset corresponds to a source offset: the map for a consumer's failover. Pure.

The mirror copies bytes as they are, so while it alone writes a target partition and repeats
nothing, both offsets move by the same number of bytes: one *segment*. A repeat, or another writer,
ends the segment; the next one begins at a known pair of offsets: everything behind the one in the
source is behind the other in the target. Translation is exact within a segment and cautious between
two: it never skips a message that a consumer at the source had not seen, so that some may come
again but none is left out. A target that ends below what was copied there has lost it: what was
copied until then is translated to the target's start.
"""

import json
from bisect import bisect_right
from typing import Any, NamedTuple

from kafka2011.coordination.errors import BadZnode

SEGMENTS_MAX = 200  # older ones are dropped: what they map has mostly been retired


class Segment(NamedTuple):
    """Source bytes `source_from` to `source_to`, which are at the target from `target_from` on."""

    source_from: int
    source_to: int
    target_from: int

    @property
    def target_to(self) -> int:
        return self.target_from + self.source_to - self.source_from


class Translation(NamedTuple):
    """A target offset. `is_exact`: the same message; else an earlier place: some come again."""

    target_offset: int
    is_exact: bool


class OffsetMap:
    """The map of one source partition into one target partition."""

    def __init__(self, segments: list[Segment] | None = None) -> None:
        self.segments: list[Segment] = segments or []
        self.is_changed = False
        self._is_open = False  # the last segment belongs to this run

    @property
    def has_begun(self) -> bool:
        return self._is_open

    def interrupt(self) -> None:
        """End the present segment: the source goes on elsewhere."""
        self._is_open = False

    def forget_from(self, source_offset: int) -> None:
        """Forget the map from here on: the source has other messages there now, or none, so what is
        at the target is not a copy of them."""
        self.is_changed = True
        self.segments = [
            one._replace(source_to=min(one.source_to, source_offset))
            for one in self.segments
            if one.source_from <= source_offset
        ]

    def begin(self, source_offset: int, target_offset: int) -> None:
        """Begin a segment: what is copied from `source_offset` on will be at `target_offset` on."""
        if self._has_lost(source_offset, target_offset):
            return
        last = self.segments[-1] if self.segments else None
        if last is not None and (last.source_to, last.target_to) == (source_offset, target_offset):
            self._is_open = True  # nothing happened since: the segment goes on
            return
        if last is not None and source_offset < last.source_from:
            # The group was reset backwards: what lies beyond will be copied again.
            while self.segments and self.segments[-1].source_from > source_offset:
                self.segments.pop()
        self._add(Segment(source_offset, source_offset, target_offset))

    def reach(self, source_offset: int, target_offset: int) -> None:
        """Extend the map: by a barrier, the source is copied to here, and the target ends there."""
        if self._has_lost(source_offset, target_offset):
            return
        last = self.segments[-1]
        if source_offset - last.source_from == target_offset - last.target_from:
            if source_offset != last.source_to:
                self.segments[-1] = last._replace(source_to=source_offset)
                self.is_changed = True
        elif source_offset >= last.source_to:
            self._add(Segment(source_offset, source_offset, target_offset))

    def _has_lost(self, source_offset: int, target_offset: int) -> bool:
        """Whether the target, which ends at `target_offset`, has lost some of what was copied. Then
        the map begins anew: what is there now need not be of the log that it was copied to."""
        if not self.segments or target_offset >= self.segments[-1].target_to:
            return False
        first = self.segments[0].source_from
        self.segments = [Segment(first, first, 0)] if first < source_offset else []
        self._add(Segment(source_offset, source_offset, target_offset))
        return True

    def _add(self, segment: Segment) -> None:
        self._is_open = True
        self.is_changed = True
        if self.segments and self.segments[-1].source_from == segment.source_from:
            # It is copied again from here: the earlier place is as good, and leaves nothing out.
            return
        self.segments.append(segment)
        del self.segments[:-SEGMENTS_MAX]

    def translate(self, source_offset: int) -> Translation | None:
        """Where to read on at the target; None for what was copied before the map began."""
        index = bisect_right(self.segments, source_offset, key=lambda one: one.source_from) - 1
        if index < 0:
            return None
        found = self.segments[index]
        if source_offset < found.source_to:
            return Translation(found.target_from + source_offset - found.source_from, True)
        return Translation(found.target_to, False)

    def source_of(self, target_offset: int) -> int | None:
        """The source offset of the message at that target offset; None if it is not known."""
        for one in self.segments:
            if one.target_from <= target_offset < one.target_to:
                return one.source_from + target_offset - one.target_from
        return None


def encode_map(target: str, offsets: OffsetMap) -> bytes:
    """The znode's value: JSON; `target` is `<broker id>-<partition>`."""
    return json.dumps({"target": target, "segments": offsets.segments}).encode()


def decode_map(value: bytes | None) -> tuple[str, OffsetMap]:
    """(target, map). Raises BadZnode."""
    try:
        found: Any = json.loads(value or b"")
        segments = [Segment(*map(int, one)) for one in found["segments"]]
        target = str(found["target"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadZnode(f"not a map of offsets: {error!r}") from None
    if sorted(segments) != segments or any(one.source_to < one.source_from for one in segments):
        raise BadZnode("a map of offsets whose segments overlap")
    return target, OffsetMap(segments)
