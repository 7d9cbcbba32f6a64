"""The message stream: the iterator that an application reads.

    for message in stream:            # ends at shutdown
        work(message.payload)         # message.topic, .broker_id, .partition, .next_offset

    for batch in stream.batches():    # the same by many messages at once, at half the cost
        work_on(batch.payloads)

    for chunk in stream.chunks():     # the same by chunks of undecoded bytes, for copying
        forward(chunk.data)

A message counts as processed when the application asks for the next one: that is what the timer
and a rebalance commit. `Unlike 0.7:` there the position moves when the message is delivered, so
that a crash while working on it could lose it. `connector.commit_offsets()` and
`connector.shutdown()` are the application's own statement, and commit what was delivered.

With `shallowiterator.enable` the items are `ShallowMessage`s: entries whose payload may be packed,
and whose `codec` says how.

One stream is for one thread. After ConsumerTimeout or PartitionStuck it is iterated again by a new
`for` or `next`; nothing is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from kafka2011.consumer.batch import Batch
from kafka2011.consumer.chunk import Chunk, ConsumedMessage
from kafka2011.consumer.errors import ConsumerStateError, PartitionStuck
from kafka2011.consumer.groups.chunk_queues import DAMAGE_ATTEMPTS, ChunkQueue, OwnedPartition
from kafka2011.consumer.groups.delivery import Grant, GrantState, deliver
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.protocol.errors import InvalidMessage

_Batch = tuple[Iterator[ConsumedMessage], Grant]
_Rest = tuple[OwnedPartition, Grant, Chunk]
_Item = TypeVar("_Item")
_Unit = TypeVar("_Unit", Batch, Chunk)
# Chunk -> its first items, as many as may be in memory at once, and the rest of it.
_Decode = Callable[[Chunk], tuple[Iterable[_Item], Chunk]]


class MessageStream:
    """A stream, made by the connector. `timeout_ms` as `consumer.timeout.ms`; `shallow` as
    `shallowiterator.enable`: entries as they are in the log, wrappers unopened."""

    def __init__(
        self, queue: ChunkQueue, timeout_ms: int, stats: ConsumerStats, *, shallow: bool = False
    ) -> None:
        self._queue = queue
        self._timeout_ms = timeout_ms
        self._stats = stats
        self._shallow = shallow
        self._batch: _Batch | None = None  # decoded and not fully delivered
        self._rest: _Rest | None = None  # of the batch's chunk, not decoded yet
        self._single: Iterator[ConsumedMessage] | None = None

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """Each message once, in the order of its partition.

        Raises:
          ConsumerTimeout: nothing came within `consumer.timeout.ms`.
          ConsumerFailed: a thread of the connector ended by a bug; nothing more comes.
          PartitionStuck: one partition cannot be read on; iterate again for the others.
        """
        return deliver(self._batch_behind, self._queue.await_grant)

    def _batch_behind(self, previous: _Batch | None) -> _Batch | None:
        """The batch that an earlier iteration has left, or the next one."""
        if self._batch is None or self._batch is previous:
            self._batch = None  # even if `_next_batch` raises
            self._batch = self._next_batch(self._decode)
        return self._batch

    def __next__(self) -> ConsumedMessage:
        if self._single is None:
            self._single = iter(self)
        try:
            return next(self._single)
        except BaseException:
            self._single = None
            raise

    def take(self) -> _Batch | None:
        """The messages of the next chunk, maybe none, and the grant that they are delivered under;
        None at shutdown. The same errors. For AioStream and console-consumer.

        The caller checks the grant before each message, and notes in it what counts as delivered
        and as processed.
        """
        batch, self._batch = self._batch or self._next_batch(self._decode), None
        return batch

    def await_grant(self, grant: Grant) -> bool:
        """Wait while the grant is suspended; False when nothing may come under it any more."""
        return self._queue.await_grant(grant)

    def chunks(self) -> Iterator[Chunk]:
        """The stream by whole chunks, as the broker has the bytes; CRCs are not checked.

        A chunk counts as processed when the next one is asked for. The same errors.
        """
        self._check_between_chunks()
        if self._rest is not None:
            raise ConsumerStateError("a chunk of this stream is being iterated by batches")
        yield from self._granted(_whole_chunk)

    def batches(self) -> Iterator[Batch]:
        """The stream by batches: all messages of a chunk, or of a part of it if that unpacks to a
        lot. A batch counts as delivered when it is handed out, and as processed when the next one
        is asked for. The same errors."""
        self._check_between_chunks()
        if self._shallow:
            raise ConsumerStateError("batches have no unopened entries: shallowiterator.enable")
        yield from self._granted(_decode_batch)

    def _granted(self, decode: _Decode[_Unit]) -> Iterator[_Unit]:
        """What `decode` makes of each chunk, as long as its grant holds."""
        while (found := self._next_batch(decode)) is not None:
            items, grant = found
            for item in items:
                if not grant.open and not self._queue.await_grant(grant):
                    break
                grant.last = item
                yield item
                grant.done = item

    def _check_between_chunks(self) -> None:
        if self._batch is not None and self._batch[1].state is not GrantState.REVOKED:
            raise ConsumerStateError("a chunk of this stream is being iterated by messages")
        self._batch = None

    def _next_batch(self, decode: _Decode[_Item]) -> tuple[Iterator[_Item], Grant] | None:
        """Decode the next chunk; None at shutdown."""
        while True:
            found = self._next_rest() or self._queue.take(self._timeout_ms)
            if found is None:
                return None
            owned, grant, item = found
            if isinstance(item, PartitionStuck):
                raise item
            try:
                messages, rest = decode(item)
            except InvalidMessage as error:
                rescued = self._good_part(owned, grant, item, error, decode)
                if rescued is not None:
                    return rescued
                continue
            if rest.data:
                self._rest = owned, grant, rest
            owned.went_well()
            owned.count(grant, item, rest.offset)
            return iter(messages), grant

    def _next_rest(self) -> _Rest | None:
        """The rest of the chunk that was decoded last; None when there is none to deliver."""
        found, self._rest = self._rest, None
        if found is None or self._queue.closed or not self._queue.await_grant(found[1]):
            return None
        return found

    def _decode(self, chunk: Chunk) -> tuple[Iterable[ConsumedMessage], Chunk]:
        if self._shallow:
            return chunk.entries(), chunk.behind(len(chunk.data))
        return chunk.take_iterator()

    def _good_part(
        self,
        owned: OwnedPartition,
        grant: Grant,
        chunk: Chunk,
        error: InvalidMessage,
        decode: _Decode[_Item],
    ) -> tuple[Iterator[_Item], Grant] | None:
        """The part before a damaged entry, from which the partition is fetched again.

        That heals damage on the way. Damage on the broker's disk comes back as the first entry of a
        chunk: after a few times the partition is stuck there.
        """
        self._stats.damaged_chunks += 1
        good_bytes = max(0, error.position)
        bad_offset = chunk.offset + good_bytes
        fresh = owned.reread_from(bad_offset, grant)
        if fresh is None:
            return None
        if good_bytes:
            good = chunk._replace(data=chunk.data[:good_bytes], next_offset=bad_offset)
            owned.count(fresh, good, bad_offset)
            return iter(decode(good)[0]), fresh
        if fresh is grant:  # of before a reset
            return None
        owned.damage_count += 1
        if owned.damage_count < DAMAGE_ATTEMPTS:
            return None
        if owned.put_aside():
            self._stats.stuck_partitions += 1
            raise owned.stuck(bad_offset, error)
        return None


def _whole_chunk(chunk: Chunk) -> tuple[Sequence[Chunk], Chunk]:
    return (chunk,), chunk.behind(len(chunk.data))


def _decode_batch(chunk: Chunk) -> tuple[Sequence[Batch], Chunk]:
    payloads, rest = chunk.take_payloads()
    if not payloads:
        return (), rest
    topic, broker_id, partition, offset, data, _ = chunk
    entries = memoryview(data)[: rest.offset - offset]
    return (Batch(topic, broker_id, partition, offset, rest.offset, payloads, entries),), rest
