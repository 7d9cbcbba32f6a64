"""Plans a query on the driver: looks up partitions and offsets, and makes ranges of them.

Imports nothing of Spark; `source` turns ranges into its partitions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.ranges.planning import OffsetRange, plan_ranges, split_at
from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.spark.options import EARLIEST, LATEST, Address, Positions, SourceOptions
from kafka2011.consumer.spark.rows import entry_next_offsets
from kafka2011.coordination import cluster, processes
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import (
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
)
from kafka2011.protocol.requests import LATEST as LATEST_TIME
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)

SEGMENTS_MAX = 100_000
SAMPLE_BYTES = 1 << 18
SAMPLE_MESSAGES = 10_000

# (address, partition, start, end, budget) -> (used, boundary)
Boundary = Callable[[Address, TopicPartition, int, int, int], tuple[int, int]]


class DataLoss(KafkaError):
    """Requested offsets are not in the log (any more).

    `failOnDataLoss=false` reads what is left instead and logs it.
    """


class PartitionAway(KafkaError):
    """No live broker has registered a partition that should be read."""

    retriable = True


@dataclass(frozen=True, slots=True)
class PlacedRange:
    """A range and the address of its broker."""

    address: Address
    offsets: OffsetRange


class SourcePlanner:
    """Looks up partitions and offsets for one set of options. Not thread-safe; `close` it.

    Its methods raise CoordinationUnavailable, BrokerUnavailable and the errors above.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._registry: ZooKeeperRegistry | None = None
        self._clients: dict[Address, SimpleConsumer] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self._registry is not None:
            self._registry.close()
            self._registry = None

    # --- partitions -------------------------------------------------------------------------------

    def partitions(self) -> dict[TopicPartition, Address]:
        """Every partition that the options select and a live broker has."""
        options = self._options
        topics = self.topics()
        if options.brokers:
            count = options.partition_count
            count = max([count, *(found.partition + 1 for found in options.ranges)])
            return {
                TopicPartition(topic, broker_id, number): self._dialled(address)
                for topic in topics
                for broker_id, address in options.brokers.items()
                for number in range(count)
            }
        registry = self._started_registry()
        brokers = cluster.live_brokers(registry)
        return {
            TopicPartition(topic, *source): self._dialled(brokers[source.broker_id])
            for topic in topics
            for source in cluster.partitions_of(registry, topic)
            if source.broker_id in brokers
        }

    def topics(self) -> tuple[str, ...]:
        """The topics that the options select; of a pattern those that were ever registered."""
        options = self._options
        if options.pattern is not None:
            return tuple(filter(options.selects, cluster.topics(self._started_registry())))
        return options.topics or tuple(sorted({found.topic for found in options.ranges}))

    def brokers_away(self) -> list[str]:
        """The names of brokers that ZooKeeper expects and that are not alive, whose partitions
        `partitions` therefore leaves out; none where the options name brokers. One of 0.7 that has
        gone leaves no trace there."""
        if self._options.brokers:
            return []
        registry = self._started_registry()
        known = processes.expected(registry)
        living = {record.name for record in processes.alive(registry, known)}
        brokers = (record.name for record in known if record.kind == "broker")
        return [name for name in brokers if name not in living]

    def _dialled(self, published: Address) -> Address:
        host, port = self._options.address_map.get(published, published)
        return host, port

    def _started_registry(self) -> ZooKeeperRegistry:
        if self._registry is None:
            registry = ZooKeeperRegistry(self._options.zk_connect)
            try:
                registry.start()
            except BaseException:
                registry.close()
                raise
            self._registry = registry
        return self._registry

    def _client(self, address: Address) -> SimpleConsumer:
        client = self._clients.get(address)
        if client is None:
            timeout_ms = self._options.socket_timeout_ms
            client = self._clients[address] = SimpleConsumer(*address, socket_timeout_ms=timeout_ms)
        return client

    def sample(self) -> list[bytes]:
        """Some payloads from the beginning of each partition that the options select, at most
        SAMPLE_BYTES of each and SAMPLE_MESSAGES in all; always the same ones for the same log."""
        found: list[bytes] = []
        for name, address in sorted(self.partitions().items()):
            start, end = self._earliest(name, address), self._latest(name, address)
            for chunk in self._chunks(address, name, start, min(end, start + SAMPLE_BYTES)):
                rest = chunk
                while rest.data and len(found) < SAMPLE_MESSAGES:
                    try:
                        payloads, rest = rest.take_payloads()
                    except InvalidMessage:
                        break  # the query that reads it reports the damage
                    found += payloads[: SAMPLE_MESSAGES - len(found)]
        return found

    # --- a batch ----------------------------------------------------------------------------------

    def batch_ranges(self) -> list[PlacedRange]:
        """The ranges of a batch query: largest first, cut by `split.bytes`."""
        addresses = self.partitions()
        if self._options.ranges:
            return self._placed(self._options.ranges, addresses)
        bounds = {}
        for name, address in addresses.items():
            earliest, latest = self._earliest(name, address), self._latest(name, address)
            start = self._offset_at(self._options.starting, name, EARLIEST, earliest, latest)
            if self._options.starting_time_ms is not None:
                start = self._since(name, address, earliest)
            end = self._offset_at(self._options.ending, name, LATEST, earliest, latest)
            if self._options.ending_time_ms is not None:
                end = self._until(name, address, latest)
            if start < earliest or end > latest:
                self.lose(f"{name}: requested {start} to {end}, has {earliest} to {latest}")
                start, end = max(start, earliest), min(end, latest)
            bounds[name] = (start, max(start, end))
        return self._placed(plan_ranges(bounds), addresses)

    def placed(self, ranges: list[OffsetRange]) -> list[PlacedRange]:
        """The ranges with the addresses of their brokers. Raises PartitionAway."""
        return self._placed(ranges, self.partitions())

    def _placed(
        self,
        ranges: list[OffsetRange] | tuple[OffsetRange, ...],
        addresses: dict[TopicPartition, Address],
    ) -> list[PlacedRange]:
        found = []
        for whole in ranges:
            address = addresses.get(whole.topic_partition)
            if address is None:
                raise PartitionAway(f"no live broker has {whole.topic_partition}")
            if whole.size_bytes:
                found += [PlacedRange(address, piece) for piece in self._pieces(whole, address)]
        return found

    def _pieces(self, whole: OffsetRange, address: Address) -> list[OffsetRange]:
        split_bytes = self._options.split_bytes
        if split_bytes is None or whole.size_bytes <= split_bytes:
            return [whole]
        starts = self._client(address).get_offsets_before(
            whole.topic, whole.partition, LATEST_TIME, SEGMENTS_MAX
        )
        return split_at(whole, starts, split_bytes)

    def _offset_at(
        self,
        requested: str | Positions,
        name: TopicPartition,
        default: str,
        earliest: int,
        latest: int,
    ) -> int:
        if isinstance(requested, str):
            offset: int | str = requested
        else:
            partition = f"{name.broker_id}-{name.partition}"
            offset = requested.get(name.topic, {}).get(partition, default)
        if offset == EARLIEST:
            return earliest
        return latest if offset == LATEST else int(offset)

    def _since(self, name: TopicPartition, address: Address, earliest: int) -> int:
        """Start of the last segment that was last written at or before startingTimestamp."""
        time_ms = self._options.starting_time_ms
        assert time_ms is not None
        found = self._client(address).get_offsets_before(name.topic, name.partition, time_ms, 1)
        return found[0] if found else earliest

    def _until(self, name: TopicPartition, address: Address, latest: int) -> int:
        """End of the segment that was being written at endingTimestamp: earlier messages are all
        included."""
        time_ms = self._options.ending_time_ms
        assert time_ms is not None
        client = self._client(address)
        before = client.get_offsets_before(name.topic, name.partition, time_ms, 1)
        starts = client.get_offsets_before(name.topic, name.partition, LATEST_TIME, SEGMENTS_MAX)
        later = [start for start in starts if not before or start > before[0]]
        # The first of those segments is the one that was being written at that time.
        return sorted(later)[1] if len(later) > 1 else latest

    def _earliest(self, name: TopicPartition, address: Address) -> int:
        return self._client(address).earliest(name.topic, name.partition)

    def _latest(self, name: TopicPartition, address: Address) -> int:
        return self._client(address).latest(name.topic, name.partition)

    def lose(self, what: str) -> None:
        """Raise DataLoss, or only log it if the options accept what is left."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what} (failOnDataLoss=false reads what is left)")
        log.warning("offsets_gone", detail=what)

    # --- a stream ---------------------------------------------------------------------------------

    def starting(self) -> dict[TopicPartition, int]:
        """The offsets at which a new stream starts."""
        found = {}
        for name, address in self.partitions().items():
            earliest, latest = self._earliest(name, address), self._latest(name, address)
            if self._options.starting_time_ms is not None:
                found[name] = self._since(name, address, earliest)
            else:
                offset = self._offset_at(self._options.starting, name, EARLIEST, earliest, latest)
                found[name] = min(max(offset, earliest), latest)
        return found

    def latest(self) -> dict[TopicPartition, int]:
        """The ends of the partitions whose brokers answer."""
        found = {}
        for name, address in self.partitions().items():
            try:
                found[name] = self._latest(name, address)
            except KafkaError as error:
                log.warning("partition_not_answering", partition=str(name), reason=str(error))
        return found

    def earliest(self, name: TopicPartition) -> int:
        address = self.partitions().get(name)
        if address is None:
            raise PartitionAway(f"no live broker has {name}")
        return self._earliest(name, address)

    def within_bytes(
        self, start: dict[TopicPartition, int], end: dict[TopicPartition, int], bytes_max: int
    ) -> dict[TopicPartition, int]:
        """The highest entry boundaries within `bytes_max` over all partitions, but at least one
        entry. Only reading finds where entries end, so the admitted bytes are read here once.
        """
        return self._within(start, end, bytes_max, self._boundary_by_bytes)

    def within_rows(
        self, start: dict[TopicPartition, int], end: dict[TopicPartition, int], rows_max: int
    ) -> dict[TopicPartition, int]:
        """The same for messages; a compressed set counts whole."""
        return self._within(start, end, rows_max, self._boundary_by_rows)

    def _within(
        self,
        start: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
        budget: int,
        boundary: Boundary,
    ) -> dict[TopicPartition, int]:
        addresses = self.partitions()
        backlog = {name: end[name] - start[name] for name in end}
        waiting = sorted(
            (name for name in end if backlog[name] > 0 and name in addresses),
            key=lambda name: backlog[name],
        )
        found = {name: start[name] for name in end}
        for position, name in enumerate(waiting):
            share = max(1, budget // (len(waiting) - position))
            bounds = start[name], end[name]
            used, found[name] = self._bounded(boundary, addresses[name], name, *bounds, share)
            budget -= used
            if budget <= 0:
                break
        return found

    def _bounded(  # noqa: PLR0917 (those of a Boundary)
        self,
        boundary: Boundary,
        address: Address,
        name: TopicPartition,
        start: int,
        end: int,
        budget: int,
    ) -> tuple[int, int]:
        """What `boundary` gives, also where `start` is not in the log any more. Raises DataLoss."""
        try:
            return boundary(address, name, start, end, budget)
        except OffsetOutOfRange:
            earliest = self._earliest(name, address)
            self.lose(f"{name} was read up to {start}, and its log begins at {earliest}")
            if start < earliest < end:
                return boundary(address, name, earliest, end, budget)
        except MessageLargerThanFetchSize:
            # No entry begins at `start`, or it is damaged: the executors find out which, and say so
            # or read the log from its start.
            pass
        return end - start, end

    def _boundary_by_bytes(
        self, address: Address, name: TopicPartition, start: int, end: int, budget: int
    ) -> tuple[int, int]:
        if end - start <= budget:
            return end - start, end
        ends = [chunk.next_offset for chunk in self._chunks(address, name, start, start + budget)]
        offset = ends[-1] if ends else start
        return offset - start, offset

    def _boundary_by_rows(
        self, address: Address, name: TopicPartition, start: int, end: int, budget: int
    ) -> tuple[int, int]:
        used, offset = 0, start
        for rows, next_offset in self._entry_rows(address, name, start, end):
            if used and used + rows > budget:
                break
            used, offset = used + rows, next_offset
            if used >= budget:
                break
        return used, offset

    def _chunks(
        self, address: Address, name: TopicPartition, start: int, end: int
    ) -> Iterator[Chunk]:
        """The chunks that end within the range."""
        return read_range(
            address, *name, start, end, socket_timeout_ms=self._options.socket_timeout_ms
        )

    def _entry_rows(
        self, address: Address, name: TopicPartition, start: int, end: int
    ) -> Iterator[tuple[int, int]]:
        """(messages, next offset) of each entry that has messages."""
        for chunk in self._chunks(address, name, start, end):
            rest = chunk
            while rest.data:
                try:
                    pairs, taken = message_set.take_messages(rest.data, rest.offset)
                except InvalidMessage:
                    yield from _rows_beside_damage(rest)
                    break
                ends = entry_next_offsets([after for _, after in pairs], rest.offset)
                rows = 0
                for position, entry_end in enumerate(ends):
                    rows += 1
                    if position + 1 == len(ends) or ends[position + 1] != entry_end:
                        yield rows, entry_end
                        rows = 0
                pairs, ends = [], []  # so that two pieces are never held at once
                rest = rest.behind(taken)


def _rows_beside_damage(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """(messages, next offset) of each entry of a chunk that has a damaged one, which is one row.
    Raises InvalidMessage when an entry's length is damaged."""
    for entry in message_set.entries(chunk.data, chunk.offset):
        raw = bytes(chunk.data[entry.offset - chunk.offset : entry.next_offset - chunk.offset])
        try:
            rows = len(message_set.payloads(raw))
        except InvalidMessage:
            rows = 1
        if rows:
            yield rows, entry.next_offset
