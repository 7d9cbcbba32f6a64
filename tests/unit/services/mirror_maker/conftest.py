"""A mirror in one process, between brokers that fail on demand and registries in memory."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol.message_set import encode
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.group_member import GroupMember
from kafka2011.services.mirror_maker.mirror import Mirror
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


class Side:
    """One cluster: a broker and its ZooKeeper."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker = ScriptedBroker()
        self.zookeeper = InMemoryZooKeeper()
        self.registry = self.zookeeper.client()
        self.registry.start()
        self.registry.create(
            paths.broker_id_path(broker_id), paths.encode_broker(*self.broker.address, 0)
        )

    def announce(self, topic: str, partitions: int = 1) -> None:
        path = paths.topic_broker_path(topic, self.broker_id)
        self.registry.put(path, paths.encode_number(partitions))

    def write(self, topic: str, texts: list[bytes], partition: int = 0) -> None:
        log = self.broker.logs.setdefault((topic, partition), bytearray())
        log += encode(texts)

    def close(self) -> None:
        self.broker.close()
        self.registry.close()


class RunningMirror:
    """A mirror and its membership between `source` and `target`."""

    def __init__(self, source: Side, target: Side, **settings: Any) -> None:
        self.registries: list[InMemoryRegistry] = []
        for side in (source, target):
            registry = side.zookeeper.client()
            registry.start()
            self.registries.append(registry)
        self.config = MirrorConfig(
            source_zk_connect="memory:1",
            target_zk_connect="memory:2",
            **{
                "commit_interval_ms": 5,
                "retry_min_ms": 10,
                "retry_max_ms": 100,
                "barrier_timeout_ms": 300,
                "status_interval_ms": 50,
                "handover_timeout_ms": 200,
                **settings,
            },
        )
        self.mirror = Mirror(self.config, *self.registries)
        self.member = GroupMember(self.config, self.registries[0], self.mirror)
        self.member.start()

    def partition(self, topic: str) -> dict[str, Any]:
        found = [p for p in self.mirror.status()["partitions"] if p["topic"] == topic]
        return found[0] if found else {"state": "absent"}

    def wait_for_state(self, topic: str, state: str) -> None:
        wait_until(lambda: self.partition(topic)["state"] == state, f"{topic} is {state}")

    def close(self) -> None:
        self.member.close()
        self.mirror.close()
        for registry in self.registries:
            registry.close()


class Clusters:
    """A source with broker 1, a target with broker 11, and mirrors between them."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.source = stack.enter_context(contextlib.closing(Side(1)))
        self.target = stack.enter_context(contextlib.closing(Side(11)))

    def with_topics(self, *topics: str) -> tuple[Side, Side]:
        """Source and target, of which both have these topics."""
        for topic in topics:
            for side in (self.source, self.target):
                side.announce(topic)
        return self.source, self.target

    def mirror(self, **settings: Any) -> RunningMirror:
        made = RunningMirror(self.source, self.target, **settings)
        return self._stack.enter_context(contextlib.closing(made))

    def committed(self, topic: str) -> int | None:
        path = paths.offset_path("mirror", topic, BrokerPartition(1, 0))
        stored = self.source.registry.get(path)
        return None if stored is None else int(stored.value or b"")

    def wait_until_copied(self, topic: str, start: int = 0) -> None:
        """The source's log, which begins at `start`, is copied to its end and committed."""
        end = start + len(self.source.broker.log(topic))
        wait_until(lambda: self.committed(topic) == end, f"all of {topic} is committed")


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with contextlib.ExitStack() as stack:
        yield Clusters(stack)
