"""Producers with settings for tests, and what their scripted brokers received."""

from typing import Any

from kafka2011.coordination import paths
from kafka2011.producer import Producer
from kafka2011.protocol.message_set import payloads
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.scripted_server import ScriptedBroker


def sync_producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    return Producer(**{"broker_list": broker.broker_list, "connect_timeout_ms": 300, **settings})


def async_producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    """Without `queue_time_ms` nothing is sent by time."""
    return sync_producer(broker, **{"producer_type": "async", "queue_time_ms": 60_000, **settings})


def sent(broker: ScriptedBroker) -> list[bytes]:
    """The payloads of all produce requests that arrived, in order."""
    return [one for part in broker.parts() for one in payloads(bytes(part.message_set))]


def numbered(count: int) -> list[bytes]:
    """b"0", b"1", ..."""
    return [b"%d" % number for number in range(count)]


def register(
    registry: InMemoryRegistry, broker_id: int, address: tuple[str, int], **partitions: int
) -> None:
    """Register a broker, and its number of partitions of some topics."""
    registry.put(paths.broker_id_path(broker_id), paths.encode_broker(*address, 1))
    for topic, count in partitions.items():
        registry.put(paths.topic_broker_path(topic, broker_id), b"%d" % count)
