"""How far each partition is read: in offsets, which part of a batch is new, and in time. Pure.

The state and these offsets are saved together, and the group's offsets in ZooKeeper only after
that. So reading begins, after a restart, at or before the state's offset, and what the state has is
left out: each event counts once. Where a log was lost or cut, its offsets are of other events: it
is read from its start, and events before the cut count twice.
"""

from collections.abc import Mapping
from enum import Enum

from kafka2011.consumer.chunk import TopicPartition


class BatchPosition(Enum):
    """Where a batch begins, relative to what the state has."""

    NEXT = "next"
    KNOWN = "known"  # wholly before
    OVERLAPS = "overlaps"
    GAP = "gap"  # beyond it: something between is not in the state
    ANEW = "anew"  # before, and of another log: the one that the state has was lost or cut


class Positions:
    """The next offset of each partition."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self.missed_bytes = 0  # that the log no longer had
        self.begun_anew = 0  # logs that were lost or cut, and read from their start
        self._accepts_gap: set[TopicPartition] = set()

    def of(self, name: TopicPartition) -> int | None:
        return self._next.get(name)

    def place(
        self, name: TopicPartition, offset: int, next_offset: int, reset_to: int | None = None
    ) -> BatchPosition:
        """The position of a batch from `offset` up to `next_offset`. `reset_to`: where the consumer
        was last moved because the log did not hold its position."""
        known = self._next.get(name)
        if known is None or offset == known:
            return BatchPosition.NEXT
        if reset_to == offset < known:
            return BatchPosition.ANEW
        if next_offset <= known:
            return BatchPosition.KNOWN
        if offset < known:
            return BatchPosition.OVERLAPS
        return BatchPosition.NEXT if name in self._accepts_gap else BatchPosition.GAP

    def sought(self, name: TopicPartition) -> None:
        """Note that the consumer went back to the position: if a batch is beyond it even so, the
        log does not have what is between."""
        self._accepts_gap.add(name)

    def advance(self, name: TopicPartition, offset: int, next_offset: int) -> None:
        """Note that a batch is in the state."""
        known = self._next.get(name, offset)
        self.missed_bytes += max(0, offset - known)
        self._accepts_gap.discard(name)
        self._next[name] = next_offset

    def begin_anew(self, name: TopicPartition, offset: int) -> None:
        """Note that the log is another one, read from `offset` on."""
        self.begun_anew += 1
        self._next[name] = offset

    def all(self) -> Mapping[TopicPartition, int]:
        return dict(self._next)

    def state(self) -> list[list[str | int]]:
        """The offsets for `restore`, as JSON."""
        return [[*name, offset] for name, offset in self._next.items()]

    def restore(self, state: list[list[str | int]]) -> None:
        """Take over what `state` returned. Raises TypeError and ValueError for anything else."""
        for topic, broker_id, partition, offset in state:
            name = TopicPartition(str(topic), int(broker_id), int(partition))
            self._next[name] = int(offset)


class ReadTimes:
    """How far behind the clock partitions are read, by the times of their events and their lag."""

    def __init__(self) -> None:
        self._read_to_ms: dict[TopicPartition, int] = {}
        self._behind_ms: dict[TopicPartition, int | None] = {}

    def read(self, name: TopicPartition, time_ms: int) -> None:
        """Note that an event of `time_ms` is in the state."""
        self._read_to_ms[name] = max(time_ms, self._read_to_ms.get(name, 0))

    def sampled(self, lag: Mapping[TopicPartition, int | None], at_ms: int) -> None:
        """Note the lag in bytes, at `at_ms` or later, of the partitions that are owned. One whose
        lag is not known is as far behind as it was."""
        behind: dict[TopicPartition, int | None] = {}
        for name, waiting in lag.items():
            if waiting is None:
                behind[name] = self._behind_ms.get(name)
                continue
            if not waiting:
                self.read(name, at_ms)
            read_to = self._read_to_ms.get(name)
            behind[name] = None if read_to is None else max(0, at_ms - read_to)
        self._behind_ms = behind

    @property
    def behind_ms(self) -> int | None:
        """How far behind the partition is, at most, that is furthest behind; None: not known."""
        each = [behind for behind in self._behind_ms.values() if behind is not None]
        return max(each) if each and len(each) == len(self._behind_ms) else None
