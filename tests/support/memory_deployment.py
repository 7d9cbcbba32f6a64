"""A registry in memory and brokers in memory with real sockets, for unit tests of consumers."""

from collections.abc import Sequence
from typing import Any

from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker

PATIENCE_MS = 120_000  # a message that must come may take so long on a busy machine
QUIET_MS = 60  # how long a stream must stay quiet


class Deployment:
    """A registry in memory, and brokers in memory that are registered in it."""

    def __init__(self) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.admin = self.zookeeper.client()
        self.admin.start()
        self.brokers: dict[int, ScriptedBroker] = {}
        self.connectors: list[ConsumerConnector] = []
        self.registries: list[InMemoryRegistry] = []

    def broker(self, broker_id: int) -> ScriptedBroker:
        made = self.brokers[broker_id] = ScriptedBroker()
        self.admin.put(
            paths.broker_id_path(broker_id), paths.encode_broker(made.host, made.port, 1)
        )
        return made

    def topic(self, topic: str, counts: dict[int, int]) -> None:
        for broker_id, count in counts.items():
            path = paths.topic_broker_path(topic, broker_id)
            self.admin.put(path, paths.encode_number(count))

    def broker_of_t(self, payloads: Sequence[bytes] = (), *, partitions: int = 1) -> ScriptedBroker:
        """Broker 0 with topic "t", and `payloads` in its first partition."""
        made = self.broker(0)
        self.topic("t", {0: partitions})
        if payloads:
            made.append("t", 0, list(payloads))
        return made

    def connector(self, **settings: Any) -> ConsumerConnector:
        registry = self.zookeeper.client()
        registry.start()
        defaults = {"consumer_timeout_ms": PATIENCE_MS, "fetcher_backoff_max_ms": 20}
        config = ConsumerConfig(**{"group_id": "g", **defaults, **settings})
        made = ConsumerConnector(config, registry)
        self.registries.append(registry)
        self.connectors.append(made)
        return made

    def reading(
        self, payloads: Sequence[bytes] = (), *, partitions: int = 1, **settings: Any
    ) -> tuple[ScriptedBroker, ConsumerConnector, MessageStream]:
        """Broker 0 with `payloads` in topic "t", and a member with its stream of that topic."""
        broker = self.broker_of_t(payloads, partitions=partitions)
        connector = self.connector(**settings)
        return broker, connector, one_stream(connector)

    def registry_of(self, connector: ConsumerConnector) -> InMemoryRegistry:
        return self.registries[self.connectors.index(connector)]

    def stored(self, topic: str, broker_id: int, partition: int) -> bytes | None:
        path = paths.offset_path("g", topic, BrokerPartition(broker_id, partition))
        return self.zookeeper.value(path)

    def owner(self, topic: str, broker_id: int, partition: int) -> bytes | None:
        path = paths.owner_path("g", topic, BrokerPartition(broker_id, partition))
        return self.zookeeper.value(path)

    def close(self) -> None:
        for connector in self.connectors:
            connector.shutdown()
        for registry in self.registries:
            registry.close()
        for broker in self.brokers.values():
            broker.close()


def drain(stream: MessageStream, count: int) -> list[bytes]:
    """`count` messages, with patience, and then whatever else comes in a short while."""
    found = []
    try:
        stream._timeout_ms = PATIENCE_MS if count else QUIET_MS
        for message in stream:
            found.append(message.payload)
            if len(found) >= count:
                stream._timeout_ms = QUIET_MS
    except ConsumerTimeout:
        pass
    finally:
        stream._timeout_ms = PATIENCE_MS
    return found


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def one_stream(connector: ConsumerConnector, topic: str = "t") -> MessageStream:
    return connector.create_message_streams({topic: 1})[topic][0]
