"""Which old segments a log may drop. Pure: segments and a time in, a count out.

A policy is any function `(segments, now_ms) -> how many of the oldest may go`; 0.7's two, by age
and by size, are here. A follower drops what its leader has dropped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What a policy may know: where the segment starts, its confirmed bytes, its last write."""

    start: int
    size_bytes: int
    time_ms: int


RetentionPolicy = Callable[[Sequence[SegmentSummary], int], int]


def by_age(age_ms_max: int) -> RetentionPolicy:
    """Drop from the oldest on while the last write is over `age_ms_max` ago."""

    def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:
        count = 0
        for segment in segments:
            if now_ms - segment.time_ms <= age_ms_max:
                break
            count += 1
        return count

    return policy


def by_size(log_bytes_min: int) -> RetentionPolicy:
    """Drop from the oldest on while at least `log_bytes_min` stay.

    A negative number keeps everything.
    """

    def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:  # noqa: ARG001
        excess = sum(segment.size_bytes for segment in segments) - log_bytes_min
        count = 0
        if log_bytes_min >= 0:
            for segment in segments:
                excess -= segment.size_bytes
                if excess < 0:
                    break
                count += 1
        return count

    return policy


def each_in_turn(*policies: RetentionPolicy) -> RetentionPolicy:
    """Apply one policy after the other, each to what the ones before it left."""

    def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:
        count = 0
        for one in policies:
            count += one(segments[count:], now_ms)
        return count

    return policy
