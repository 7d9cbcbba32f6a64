"""Counts what one member's streams deliver, and keeps the counts beside the group's offsets.

A stream says what it took from the log (`took`); a commit says up to where the application is done
with it, and stores the counts up to there (`store`), before it stores the offset. So a stored
offset is never ahead of the counts: a member that reads on from it, after a rebalance or a crash,
reads what is counted already, which the offsets show. A count is of each message once, whichever
member dies when.

Only a commit within the piece taken last is counted to the entry; one further back takes in the
rest of its piece, which is not counted again when it is read again.
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

PIECES_MAX = 1_000  # delivered and not committed, of one partition; beyond, two become one

log = get_logger(__name__)


@dataclass
class _Piece:
    """Entries up to `end` that were delivered. Of the newest one `chunk` has them still."""

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
    sent: bytes | None = None  # of which it is not known whether it was stored
    reset_to: int | None = None  # the log has changed; what comes from before that is not counted

    @property
    def end(self) -> int | None:
        """Up to where everything is counted or waits for its commit."""
        if self.pieces:
            return self.pieces[-1].end
        return None if self.counts is None else self.counts.end


class GroupCounts:
    """The counts of the partitions that one member owns; any thread."""

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
        """Go on from the stored counts: the partition was given to this member just now."""
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
                made.counts = None
        with self._lock:
            self._partitions[name] = made

    def took(self, chunk: Chunk, end: int) -> None:
        """A stream delivers the entries of `chunk` up to `end`."""
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
            if chunk.offset > at:  # something in between was left out
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
        """The log does not hold the member's position, and is read from `offset` on: offsets below
        the old position may be of other messages than were counted."""
        with self._lock:
            found = self._partitions.get(name)
            if found is not None:
                self._begin_anew(name, found, offset)
                found.reset_to = offset

    def store(self, name: TopicPartition, offset: int) -> Generator[None]:
        """Store the counts of what lies below `offset`, or of a little more; never less.

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
                    continue  # our own as well, of a commit that failed
                # What another has written is not ours: of neither is it known what is in both.
                with self._lock:
                    self._begin_anew(name, found, offset)
                    assert found.counts is not None
                    value = found.counts.encode()
        else:
            return  # the next commit tries again; a member that reads on meanwhile counts anew
        found.stored, found.sent = value, None

    # --- inside, under the lock ------------------------------------------------------------------

    def _begun(self, offset: int, *, is_first: bool = True) -> PartitionCounts:
        return PartitionCounts.begun(offset, self._window_ms, self._clock(), is_first=is_first)

    def _begin_anew(self, name: TopicPartition, found: _Partition, offset: int) -> None:
        log.warning("counts_begin_anew", partition=str(name), counted_to=found.end, at=offset)
        found.counts = self._begun(offset, is_first=False)
        found.pieces.clear()

    def _settle(self, name: TopicPartition, found: _Partition, offset: int) -> None:
        """Take what lies below `offset` into the counts."""
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
        """The messages in the chunk, their cells, and up to where it can be read."""
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
    """Make one of the two oldest."""
    first, second = pieces.popleft(), pieces.popleft()
    cells = dict(first.cells)
    for cell, count in second.cells.items():
        cells[cell] = cells.get(cell, 0) + count
    pieces.appendleft(_Piece(second.end, cells, first.again + second.again, second.chunk))
