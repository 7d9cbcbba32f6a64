"""Offset ranges for load jobs: which bytes of which partitions one load reads; pure.

A byte offset is a safe place to start reading only where an entry starts, and only the log shows
where that is. So a plan has one range per partition; a range that is read in pieces takes its inner
boundaries from the chunks that were read (`split_at` makes the pieces).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka2011.consumer.chunk import TopicPartition


class OffsetRange(NamedTuple):
    """The entries of one partition that start in [start, end). Both are entry boundaries."""

    topic: str
    broker_id: int
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.broker_id, self.partition)

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def plan_ranges(
    partitions: Mapping[TopicPartition, tuple[int, int]], size_max: int | None = None
) -> list[OffsetRange]:
    """One range per partition that has something to read, largest first (they finish together).

    `partitions` maps to (start, end) in bytes of the log; `end` is a high watermark, `start` a
    stored next offset or the log's start. Empty ranges are left out. With `size_max` a range is
    cut short near that many bytes: its end is then only a limit, not an entry boundary, and the
    reader (`reading.read_range`) stops at the last entry that ends within it, but reads at least
    one. The next plan goes on from there. ValueError when an end is below its start.
    """
    if size_max is not None and size_max < 1:
        raise ValueError("size_max must be positive")
    ranges = []
    for name, (start, end) in partitions.items():
        if start < 0 or end < start:
            raise ValueError(f"{name}: the range {start}..{end} runs backwards")
        limit = end if size_max is None else min(end, start + size_max)
        if limit > start:
            ranges.append(OffsetRange(*name, start, limit))
    return sorted(ranges, key=lambda found: (-found.size_bytes, found.topic_partition))


def split_at(whole: OffsetRange, boundaries: Iterable[int], size_max: int) -> list[OffsetRange]:
    """Cut a range at known entry boundaries into pieces of at most `size_max` bytes, where the
    boundaries allow it. The pieces cover the range exactly, in order."""
    if size_max < 1:
        raise ValueError("size_max must be positive")
    known = sorted({place for place in boundaries if whole.start < place < whole.end})
    pieces = []
    start = last = whole.start
    for place in [*known, whole.end]:
        if place - start > size_max and last > start:
            pieces.append(whole._replace(start=start, end=last))
            start = last
        last = place
    if last > start:
        pieces.append(whole._replace(start=start, end=last))
    return pieces
