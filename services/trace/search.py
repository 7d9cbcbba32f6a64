"""Reads one cluster's logs for a trace: the message at an offset, and every place of a message.

Bytes held and seconds taken are bounded. What was not read is named (`Searched.gaps`), so that
"not there" is only said where everything was read.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from kafka2011.consumer.ranges.boundaries import Boundaries, TimeOf
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster, processes
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, KafkaError, MessageLargerThanFetchSize

FETCH_BYTES = 1 << 20
FETCH_BYTES_MAX = 1 << 24  # the largest message that is recognised
TIMEOUT_MS = 3000
HALVING_BYTES = 32 << 20  # a smaller partition is read sooner than halved
HITS_MAX = 20

Dial = Callable[[BrokerAddress], tuple[str, int]]
Pairs = list[tuple[bytes, int]]


class Place(NamedTuple):
    """An entry of a partition; the messages of a compressed set share theirs."""

    source: BrokerPartition
    offset: int
    next_offset: int


class Hit(NamedTuple):
    """A message that was read."""

    place: Place
    payload: bytes


class Searched(NamedTuple):
    """`gaps`: why a place may not have been found, a line each; none: everything was read."""

    hits: list[Hit]
    gaps: list[str]


class Logs:
    """The logs of one cluster; for one thread. `dial` gives the address of a published one."""

    def __init__(self, name: str, registry: Registry, dial: Dial) -> None:
        """Raises CoordinationError, as every method may."""
        self.name = name
        self.registry = registry
        self._dial = dial
        self._brokers = cluster.live_brokers(registry)
        self._clients: dict[int, SimpleConsumer] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def topics(self) -> list[str]:
        return cluster.topics(self.registry)

    def ends(self, topic: str, source: BrokerPartition) -> tuple[int, int] | None:
        """(earliest, latest); None when its broker is away or has no such partition."""
        try:
            client = self._client(source.broker_id)
            return client.earliest(topic, source.partition), client.latest(topic, source.partition)
        except KafkaError:
            return None

    def at(self, topic: str, source: BrokerPartition, offset: int) -> list[Hit]:
        """The messages of the entry at an offset; none behind the end of the log.

        Raises KafkaError: the broker is away, the offset is not in the log, no entry begins there.
        """
        pairs, _ = _entries(self._client(source.broker_id), topic, source.partition, offset)
        if not pairs:
            return []
        end = _entry_end(pairs, 0, offset)
        own = [payload for payload, after in pairs if after in (offset, end)]
        return [Hit(Place(source, offset, end), payload) for payload in own]

    def find(
        self,
        topic: str,
        matches: Callable[[bytes], bool],
        *,
        since: tuple[int, TimeOf] | None,
        deadline: float,
    ) -> Searched:
        """The messages of a topic that match, from about a time on (ms, and how it is read)."""
        found = Searched([], self._away())
        for source in cluster.partitions_of(self.registry, topic):
            where = f"{self.name} {topic} {source.text}"
            try:
                gap = self._find_in(
                    topic, source, matches, since, found=found.hits, deadline=deadline
                )
                if gap:
                    found.gaps.append(f"{where}: {gap}")
            except KafkaError as error:
                found.gaps.append(f"{where}: {error}")
            if len(found.hits) >= HITS_MAX:
                found.gaps.append(f"only the first {HITS_MAX} are named")
                break
        return found

    def _find_in(
        self,
        topic: str,
        source: BrokerPartition,
        matches: Callable[[bytes], bool],
        since: tuple[int, TimeOf] | None,
        *,
        found: list[Hit],
        deadline: float,
    ) -> str:
        """Adds the hits of a partition; returns why there may be others, or ""."""
        client = self._client(source.broker_id)
        earliest = client.earliest(topic, source.partition)
        latest = client.latest(topic, source.partition)
        offset = earliest
        if since is not None and latest - earliest > HALVING_BYTES:
            boundaries = Boundaries(
                client,
                topic,
                source.partition,
                earliest=earliest,
                latest=latest,
                deadline=deadline,
            )
            offset = boundaries.before(*since)
        gap = ""
        if offset == earliest > 0 and not _is_before(client, topic, source, offset, since):
            gap = f"retention has deleted what was before offset {earliest}"
        while offset < latest and len(found) < HITS_MAX:
            if time.monotonic() > deadline:
                return f"not read from offset {offset} on, for lack of time"
            pairs, next_offset = _entries(client, topic, source.partition, offset)
            if next_offset == offset:
                break
            fitting = [i for i, (payload, _) in enumerate(pairs) if matches(payload)]
            for index in fitting[: HITS_MAX - len(found)]:
                start = pairs[index - 1][1] if index else offset
                place = Place(source, start, _entry_end(pairs, index, start))
                found.append(Hit(place, pairs[index][0]))
            offset = next_offset
        return gap

    def _away(self) -> list[str]:
        """The brokers that are expected and not there: their partitions cannot be read."""
        alive = {record.name for record in processes.alive(self.registry)}
        return [
            f"{record.name} is away: its partitions were not read"
            for record in processes.expected(self.registry)
            if record.kind == "broker" and record.name not in alive
        ]

    def _client(self, broker_id: int) -> SimpleConsumer:
        client = self._clients.get(broker_id)
        if client is None:
            address = self._brokers.get(broker_id)
            if address is None:
                raise KafkaError(f"{self.name} broker {broker_id} is not registered at present")
            client = SimpleConsumer(*self._dial(address), socket_timeout_ms=TIMEOUT_MS)
            self._clients[broker_id] = client
        return client


def _entries(client: SimpleConsumer, topic: str, partition: int, offset: int) -> tuple[Pairs, int]:
    """(payload, next offset) of whole entries from an offset on, some MiB, and where they end: at
    `offset` itself at the end of the log.

    Raises KafkaError when no readable entry begins there.
    """
    size = FETCH_BYTES
    while True:
        fetched = client.fetch(topic, partition, offset, size)
        try:
            valid = fetched.valid_bytes()
        except MessageLargerThanFetchSize as error:
            size = max(2 * size, error.size_needed)
            if size > FETCH_BYTES_MAX:
                raise InvalidMessage(f"no message begins at offset {offset}", 0) from None
            continue
        data = fetched.data[:valid]
        try:
            pairs, end = message_set.take_messages(data, offset)
        except InvalidMessage as error:
            if error.position <= 0:
                raise InvalidMessage(f"no message begins at offset {offset}: {error}", 0) from None
            pairs, end = message_set.take_messages(data[: error.position], offset)
        return pairs, offset + end


def _is_before(
    client: SimpleConsumer,
    topic: str,
    source: BrokerPartition,
    offset: int,
    since: tuple[int, TimeOf] | None,
) -> bool:
    """Whether the first message there is older than what is searched for: nothing of that was
    deleted."""
    if since is None:
        return False
    pairs, _ = _entries(client, topic, source.partition, offset)
    time_ms = since[1](pairs[0][0]) if pairs else None
    return time_ms is not None and time_ms < since[0]


def _entry_end(pairs: Pairs, index: int, start: int) -> int:
    """The end of the entry that begins at `start` and holds message `index`.

    All but the last message of a compressed set have the set's own start as their next offset.
    """
    return next((after for _, after in pairs[index:] if after > start), start)
