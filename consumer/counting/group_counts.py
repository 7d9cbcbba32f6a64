"""Counts what one member's streams deliver, and keeps the counts beside the group's offsets.

A stream reports what it took from the log (`took`); a commit says how far the application is done
with it, and stores the counts up to there (`store`), before it stores the offset. So a stored
offset is never ahead of the counts: a member that reads on from it, after a rebalance or a crash,
may read what is counted already, which the offsets show. So each message is counted once,
whichever member dies at whatever moment.

Only a commit within the newest piece is counted to the exact entry; one further back counts the
rest of its piece as well, which is not counted again when it is read again.
"""

import threading
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.counting.partition_counts import Cells, PartitionCounts
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable, VersionConflict
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import ABSENT, Registry
from kafka2011.events.forms import Forms
from kafka2011.events.origin import origin_of
from kafka2011.events.topics import AUDIT
from kafka2011.protocol.errors import InvalidMessage
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger

PIECES_MAX = 1_000  # per partition, delivered but not committed; above that the oldest are joined

log = get_logger(__name__)


@dataclass
class _Piece:
    """Entries up to `end` that were delivered. The newest piece keeps them, in `chunk`."""

    end: int
    cells: Cells
    again: int = 0
    chunk: Chunk | None = None


@dataclass
class _Partition:
    counts: PartitionCounts | None = None
    pieces: deque[_Piece] = field(default_factory=deque)
    version: int = ABSENT
    stored: bytes | None = None
    sent: bytes | None = None  # it is not known whether this was stored
    reset_to: int | None = None  # the log has changed: nothing is counted before a chunk from here

    @property
    def end(self) -> int | None:
        """The offset up to which everything is counted or waits for its commit."""
        if self.pieces:
            return self.pieces[-1].end
        return None if self.counts is None else self.counts.end


class GroupCounts:
    """The counts of the partitions that one member owns; thread-safe."""

    def __init__(
        self,
        registry: Registry,
        group: str,
        forms: Forms,
        window_ms: int,
        clock: Clock = now_ms,
    ) -> None:
        self._registry = registry
        self._group = group
        self._forms = forms
        self._window_ms = window_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _Partition] = {}

    def read(self, name: TopicPartition) -> None:
        """Read the stored counts of a partition that was just assigned to this member."""
        if name.topic == AUDIT:
            return
        found = self._registry.get(self._path(name))
        made = _Partition()
        if found is not None:
            made.version, made.stored = found.version, found.value
            made.counts = PartitionCounts.decode(found.value)
            if made.counts is None:
                log.warning("counts_unreadable", partition=str(name))
            elif made.counts.window_ms != self._window_ms:
                log.warning(
                    "counts_begin_anew",
                    partition=str(name),
                    counted_to=made.counts.end,
                    reason=f"audit.window.ms was {made.counts.window_ms}",
                )
                made.counts = None
        with self._lock:
            self._partitions[name] = made

    def took(self, chunk: Chunk, end: int) -> None:
        """Note that a stream delivers the entries of `chunk` up to `end`."""
        with self._lock:
            found = self._partitions.get(chunk.topic_partition)
            if found is None or end == chunk.offset:
                return
            if found.reset_to is not None:
                if chunk.offset != found.reset_to:
                    return
                found.reset_to = None
            if found.counts is None:
                found.counts = self._begun(chunk.offset)
            at = found.end
            assert at is not None
            if chunk.offset > at:  # entries in between were left out
                self._begin_anew(chunk.topic_partition, found, chunk.offset)
                at = chunk.offset
            taken = chunk._replace(
                data=memoryview(chunk.data)[: end - chunk.offset], next_offset=end
            )
            known = min(at, end) - chunk.offset
            again, _, _ = self._counted(taken._replace(data=taken.data[:known]))
            if found.pieces:
                found.pieces[-1].chunk = None
            fresh = taken.behind(known)
            _, cells, end = self._counted(fresh)
            found.pieces.append(_Piece(max(at, end), cells, again, fresh))
            if len(found.pieces) > PIECES_MAX:
                _join(found.pieces)

    def reset(self, name: TopicPartition, offset: int) -> None:
        """Count anew from `offset` on, because the log does not hold the member's position: below
        it there may be other messages than were counted."""
        with self._lock:
            found = self._partitions.get(name)
            if found is not None:
                self._begin_anew(name, found, offset)
                found.reset_to = offset

    def move(self, name: TopicPartition, offset: int) -> None:
        """Note that the stream goes on from `offset`, where the application went: after a reset the
        first chunk comes from there."""
        with self._lock:
            found = self._partitions.get(name)
            if found is not None and found.reset_to is not None:
                self._begin_anew(name, found, offset)
                found.reset_to = offset

    def store(self, name: TopicPartition, offset: int) -> Generator[None]:
        """Store the counts of everything below `offset`, or of a little more.

        The caller owns the partition. Raises CoordinationUnavailable.
        """
        with self._lock:
            found = self._partitions.get(name)
            if found is None:
                return
            self._settle(name, found, offset)
            assert found.counts is not None
            value = found.counts.encode()
        if value == found.stored:
            return
        path = self._path(name)
        for _ in range(3):
            yield
            try:
                found.version = self._registry.put(path, value, found.version)
                break
            except CoordinationUnavailable:
                found.sent = value
                raise
            except VersionConflict:
                there = self._registry.get(path)
                found.version = ABSENT if there is None else there.version
                if there is not None and there.value == value:
                    break  # our own, whose reply was lost
                if there is not None and there.value == found.sent:
                    continue  # our own as well, from a commit that failed
                # Another member wrote: how far its counts and ours overlap is not known.
                with self._lock:
                    self._begin_anew(name, found, offset)
                    assert found.counts is not None
                    value = found.counts.encode()
        else:
            return  # the next commit tries again; a successor before that counts anew
        found.stored, found.sent = value, None

    # --- inside, under the lock ------------------------------------------------------------------

    def _begun(self, offset: int, *, is_first: bool = True) -> PartitionCounts:
        return PartitionCounts.begun(offset, self._window_ms, self._clock(), is_first=is_first)

    def _begin_anew(self, name: TopicPartition, found: _Partition, offset: int) -> None:
        log.warning("counts_begin_anew", partition=str(name), counted_to=found.end, at=offset)
        found.counts = self._begun(offset, is_first=False)
        found.pieces.clear()

    def _settle(self, name: TopicPartition, found: _Partition, offset: int) -> None:
        """Add what lies below `offset` to the counts."""
        if found.counts is None:
            found.counts = self._begun(offset)
        counts, now = found.counts, self._clock()
        if found.reset_to is not None:
            return
        while found.pieces and counts.end < offset:
            piece = found.pieces[0]
            if piece.chunk is not None and offset < piece.end and offset > piece.chunk.offset:
                first = piece.chunk._replace(
                    data=memoryview(piece.chunk.data)[: offset - piece.chunk.offset]
                )
                _, cells, _ = self._counted(first)
                rest = {cell: n - cells.get(cell, 0) for cell, n in piece.cells.items()}
                counts.again += piece.again
                counts.add(offset, cells, now)
                piece.again, piece.cells = 0, {cell: n for cell, n in rest.items() if n}
                piece.chunk = piece.chunk.behind(offset - piece.chunk.offset)
                return
            found.pieces.popleft()
            counts.again += piece.again
            counts.add(piece.end, piece.cells, now)
        if counts.end < offset:
            self._begin_anew(name, found, offset)

    def _counted(self, chunk: Chunk) -> tuple[int, Cells, int]:
        """The number of messages in the chunk, their cells, and the offset it is readable up to."""
        origin = origin_of(self._forms, chunk.topic)
        cells: Cells = {}
        count = 0
        while chunk.data:
            try:
                payloads, rest = chunk.take_payloads()
            except InvalidMessage as error:
                good = max(0, error.position)
                if not good:
                    break
                payloads, _ = chunk._replace(data=memoryview(chunk.data)[:good]).take_payloads()
                rest = chunk.behind(good)
            count += origin.count(payloads, self._window_ms, cells)
            chunk = rest
        return count, cells, chunk.offset

    def _path(self, name: TopicPartition) -> str:
        return paths.counts_path(self._group, name.topic, BrokerPartition(*name[1:]))


def _join(pieces: deque[_Piece]) -> None:
    """Join the two oldest into one."""
    first, second = pieces.popleft(), pieces.popleft()
    cells = dict(first.cells)
    for cell, count in second.cells.items():
        cells[cell] = cells.get(cell, 0) + count
    pieces.appendleft(_Piece(second.end, cells, first.again + second.again, second.chunk))
