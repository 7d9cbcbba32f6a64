"""A cluster of real brokers for tests: start, fill with numbered messages, read back whole.

Messages are `<topic>|<broker>-<partition>|<number>|<padding>`, so each says which source partition
it was written to and which number it had there.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.message_set import encode, encode_compressed
from kafka2011.protocol.requests import ProduceRequest, encode_request
from tests.support.brokers import RunningBroker, start_broker
from tests.support.waiting import wait_until


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
        self.registry = ZooKeeperRegistry(zk_connect)
        self.registry.start(20_000)
        self.brokers: dict[int, RunningBroker] = {}
        self._ports: dict[int, int] = {}
        self._written: dict[tuple[str, int, int], int] = defaultdict(int)
        for broker_id in ids:
            self.start(broker_id)

    def start(self, broker_id: int) -> RunningBroker:
        """Start, or start again, and wait until it is registered."""
        broker = start_broker(
            self._root,
            broker_id,
            self.zk_connect,
            port=self._ports.get(broker_id, 0),
            **self._properties,
        )
        self.brokers[broker_id] = broker
        self._ports[broker_id] = broker.port
        wait_until(
            lambda: broker_id in cluster.live_brokers(self.registry), f"broker {broker_id} is there"
        )
        return broker

    def address(self, broker_id: int) -> tuple[str, int]:
        return "127.0.0.1", self._ports[broker_id]

    # --- writing ---------------------------------------------------------------------------------

    def write(
        self,
        topic: str,
        count: int,
        *,
        size: int = 200,
        batch: int = 50,
        codec: int = 0,
        partitions: list[BrokerPartition] | None = None,
    ) -> int:
        """Append `count` numbered messages to each partition; durable on return. Returns how many
        in all."""
        where = partitions or [BrokerPartition(b, p) for b in self.brokers for p in range(2)]
        for broker_id, partition in where:
            key = (topic, broker_id, partition)
            connection = BrokerConnection(self.address(broker_id))
            for first in range(0, count, batch):
                number = self._written[key]
                some = min(batch, count - first)
                texts = [self._message(key, number + step, size) for step in range(some)]
                self._written[key] += some
                data = encode_compressed(texts, codec) if codec else encode(texts)
                frame = encode_request(ProduceRequest(topic, partition, data))
                connection.send(frame, topic, len(data))
            assert connection.barrier(30_000), connection.lost_reason
            connection.disconnect()
        return count * len(where)

    @staticmethod
    def _message(key: tuple[str, int, int], number: int, size: int) -> bytes:
        head = f"{key[0]}|{key[1]}-{key[2]}|{number}|".encode()
        return head + b"x" * (size - len(head))

    def written(self, topic: str) -> dict[str, int]:
        """Source partition -> messages written to it."""
        return {f"{b}-{p}": count for (t, b, p), count in self._written.items() if t == topic}

    # --- reading ---------------------------------------------------------------------------------

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
            found[partition] = messages = []
            if not end:
                continue
            address = self.address(partition.broker_id)
            for chunk in read_range(
                address, topic, partition.broker_id, partition.partition, 0, end
            ):
                for payload in chunk.payloads():
                    _, source, number, _ = payload.split(b"|", 3)
                    messages.append((source.decode(), int(number)))
        return found

    def distinct(self, topic: str) -> int:
        """How many different messages there are."""
        return len({one for messages in self.read(topic).values() for one in messages})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            with broker:
                pass
        self.registry.close()
