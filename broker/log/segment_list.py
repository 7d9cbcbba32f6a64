"""The ordered segments of one log: which one holds an offset, which offsets a time stands for."""

import bisect
from collections.abc import Sequence

from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.segment import Segment
from kafka2011.protocol.requests import EARLIEST, LATEST


class SegmentList:
    """The segments, at least one; each begins where the one before ends. The last is active."""

    __slots__ = ("_segments", "_starts", "start")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._starts = [segment.start for segment in segments]
        self.start = segments[0].start  # of the whole log

    def __len__(self) -> int:
        return len(self._segments)

    def all(self) -> Sequence[Segment]:
        return tuple(self._segments)

    def holding(self, offset: int) -> Segment:
        """The segment with the largest start not above `offset`, which is not before the log."""
        return self._segments[bisect.bisect_right(self._starts, offset) - 1]

    @property
    def before_last(self) -> Segment | None:
        return self._segments[-2] if len(self._segments) > 1 else None

    def drop_last(self) -> None:
        """Drop the active segment; the one before it is active again."""
        self._segments.pop()
        self._starts.pop()

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self._starts.append(segment.start)

    def take_oldest(self, count: int) -> list[Segment]:
        """Take out and return the `count` oldest, fewer than there are."""
        gone = self._segments[:count]
        self._segments = self._segments[count:]
        self._starts = self._starts[count:]
        self.start = self._starts[0]
        return gone

    def offsets_before(
        self, time_ms: int, count_max: int, high_watermark: int, times: FileTimes
    ) -> list[int]:
        """Offsets in descending order by segment times: each segment's start at its time, and the
        watermark at present if it is above the last start. Segments that begin beyond the
        watermark do not exist yet. `time_ms` may be LATEST or EARLIEST, or is of the wall clock:
        clients know no other."""
        now_ms = times.wall()
        pairs = [
            (segment.start, times.as_seen(segment.file_ms, now_ms))
            for segment in self._segments
            if segment.start <= high_watermark
        ]
        if high_watermark > pairs[-1][0]:
            pairs.append((high_watermark, now_ms))
        if time_ms == LATEST:
            first = len(pairs) - 1
        elif time_ms == EARLIEST:
            first = 0
        else:
            first = -1
            for position, (_, modified_ms) in enumerate(pairs):
                if modified_ms <= time_ms:
                    first = position
        if first < 0:
            return []
        return [offset for offset, _ in pairs[first::-1]][:count_max]
