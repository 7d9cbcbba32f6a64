"""A cluster of real brokers for tests: start, fill with numbered messages, read back whole.

Messages are `<topic>|<broker>-<partition>|<number>|<padding>`, so each says which source partition
it was written to and which number it had there.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.message_set import encode_compressed
from kafka2011.protocol.requests import ProduceRequest, encode_request
from tests.support.brokers import RunningBroker, start_broker
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.zookeeper import end_session

BATCH = 50  # messages in one set


@contextlib.contextmanager
def datacenters(
    zk_connect: str, root: Path, live: Sequence[int], offline: Sequence[int], **properties: object
) -> Iterator[tuple["Cluster", "Cluster"]]:
    """A live and an offline cluster with brokers of these ids."""
    with (
        Cluster(f"{zk_connect}-live", root / "live", live, **properties) as one,
        Cluster(f"{zk_connect}-offline", root / "offline", offline, **properties) as other,
    ):
        yield one, other


class Cluster:
    """Brokers `ids` in one ZooKeeper; ports stay the same over restarts."""

    def __init__(
        self, zk_connect: str, root: Path, ids: Sequence[int], **properties: object
    ) -> None:
        self.zk_connect = zk_connect
        self._root = root
        self._properties = {"num_partitions": 2, **properties}
        self._ids = ids
        self.registry = ZooKeeperRegistry(zk_connect)
        self.brokers: dict[int, RunningBroker] = {}
        self._ports: dict[int, int] = {}
        self._written: Counter[tuple[str, BrokerPartition]] = Counter()

    def start(self, broker_id: int) -> RunningBroker:
        """Start, or start again, and wait until it is registered."""
        if broker_id in self.brokers and not self.brokers[broker_id].is_running:
            end_session(self.registry, paths.broker_id_path(broker_id))
        port = self._ports.get(broker_id, 0)
        broker = start_broker(self._root, broker_id, self.zk_connect, port=port, **self._properties)
        self.brokers[broker_id] = broker
        self._ports[broker_id] = broker.port
        wait_until(
            lambda: broker_id in cluster.live_brokers(self.registry), f"broker {broker_id} is there"
        )
        return broker

    def address(self, broker_id: int) -> tuple[str, int]:
        return "127.0.0.1", self._ports[broker_id]

    def write(
        self,
        topic: str,
        count: int,
        *,
        size: int = 200,
        codec: int = 0,
        partitions: list[BrokerPartition] | None = None,
    ) -> None:
        """Append `count` numbered messages to each partition; durable on return."""
        for source in partitions or [BrokerPartition(b, p) for b in self.brokers for p in (0, 1)]:
            connection = BrokerConnection(self.address(source.broker_id))
            begin = self._written[topic, source]
            self._written[topic, source] = end = begin + count
            for first in range(begin, end, BATCH):
                numbers = range(first, min(first + BATCH, end))
                heads = [f"{topic}|{source.text}|{number}|".encode() for number in numbers]
                data = encode_compressed([head.ljust(size, b"x") for head in heads], codec)
                frame = encode_request(ProduceRequest(topic, source.partition, data))
                connection.send(frame, topic, len(data))
            assert connection.barrier(120_000), connection.lost_reason
            connection.disconnect()

    def written(self, topic: str) -> dict[str, int]:
        """Source partition -> messages written to it."""
        return {
            source.text: count for (name, source), count in self._written.items() if name == topic
        }

    def partitions(self, topic: str) -> list[BrokerPartition]:
        return cluster.partitions_of(self.registry, topic)

    def ends(self, topic: str) -> dict[BrokerPartition, int]:
        """High watermarks."""
        found = {}
        for partition in self.partitions(topic):
            with SimpleConsumer(*self.address(partition.broker_id)) as client:
                found[partition] = client.latest(topic, partition.partition)
        return found

    def read(self, topic: str) -> dict[BrokerPartition, list[tuple[str, int]]]:
        """All messages: partition -> (source partition, number) in log order."""
        found: dict[BrokerPartition, list[tuple[str, int]]] = {}
        for partition, end in self.ends(topic).items():
            found[partition] = []
            address = self.address(partition.broker_id)
            for chunk in read_range(address, topic, *partition, 0, end) if end else ():
                for payload in chunk.payloads():
                    _, source, number, _ = payload.split(b"|", 3)
                    found[partition].append((source.decode(), int(number)))
        return found

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            started.push(self)  # those that have started end, where one of them does not
            self.registry.start(round(DEADLINE_S * 1000))
            for broker_id in self._ids:
                self.start(broker_id)
            started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            with broker:
                pass
        self.registry.close()
