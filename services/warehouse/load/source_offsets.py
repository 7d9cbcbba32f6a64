"""What a loader asks brokers before it reads: where logs begin and end, and their lineage."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kafka2011.consumer.fetched_set import FetchedSet
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.lineage import Lineage
from kafka2011.runtime.logs import get_logger

OFFSETS_TIMEOUT_MS = 5_000

log = get_logger(__name__)

TopicSource = tuple[str, BrokerPartition]


class Offsets(Protocol):
    """The requests of a loader to one broker; SimpleConsumer answers them."""

    def earliest(self, topic: str, partition: int) -> int: ...

    def latest_of(self, partitions: Sequence[tuple[str, int]]) -> list[int | None]: ...

    def fetch(self, topic: str, partition: int, offset: int, size_max: int, /) -> FetchedSet: ...

    def lineage(self, topic: str, partition: int) -> Lineage: ...

    def close(self) -> None: ...


Connect = Callable[[BrokerAddress], Offsets]


def consumers(socket_timeout_ms: int) -> Connect:
    """Simple consumers that wait for an answer no longer than `socket_timeout_ms`, and no longer
    than OFFSETS_TIMEOUT_MS: one broker must not delay the others' partitions."""
    timeout_ms = min(OFFSETS_TIMEOUT_MS, socket_timeout_ms)
    return lambda address: SimpleConsumer(*address, socket_timeout_ms=timeout_ms)


class SourceOffsets:
    """A connection to each broker, made at its first request. Not thread-safe."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._clients: dict[BrokerAddress, Offsets] = {}

    def client(self, address: BrokerAddress) -> Offsets:
        if address not in self._clients:
            self._clients[address] = self._connect(address)
        return self._clients[address]

    def ends(
        self,
        sources: Mapping[str, Sequence[BrokerPartition]],
        brokers: Mapping[int, BrokerAddress],
    ) -> dict[TopicSource, int | None]:
        """Where the logs of each topic's partitions end; None or no entry where a broker does not
        say. Each is asked for all of its partitions at once: one that hangs costs one timeout."""
        by_broker: dict[int, list[TopicSource]] = {}
        for topic, partitions in sources.items():
            for source in partitions:
                by_broker.setdefault(source.broker_id, []).append((topic, source))
        found: dict[TopicSource, int | None] = {}
        for broker_id in by_broker.keys() & brokers.keys():
            places = by_broker[broker_id]
            try:
                client = self.client(brokers[broker_id])
                ends = client.latest_of([(topic, source.partition) for topic, source in places])
            except (KafkaError, OSError) as error:
                log.debug("offsets_unknown", broker=broker_id, error=str(error))
                continue
            found.update(zip(places, ends, strict=True))
        return found

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
