"""A mirror in one process, between brokers that fail on demand and registries in memory."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.group_member import GroupMember
from kafka2011.services.mirror_maker.mirror import Mirror
from tests.support.memory_deployment import Deployment
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until

SETTINGS = {
    "source_zk_connect": "memory:1",
    "target_zk_connect": "memory:2",
    "commit_interval_ms": 5,
    "retry_min_ms": 10,
    "retry_max_ms": 100,
    "barrier_timeout_ms": 60_000,
    "status_interval_ms": 50,
    "handover_timeout_ms": 200,
}
# What a status says of a partition that this mirror does not own, or not yet.
ABSENT = {
    "state": "absent",
    "trouble": None,
    "rewinds": 0,
    "copied_offset": None,
    "copied_messages": 0,
    "refused_entry": None,
    "refused_entries": 0,
}


class RunningMirror:
    """A mirror and its membership between `source` and `target`."""

    def __init__(self, source: Deployment, target: Deployment, **settings: Any) -> None:
        self.registries = [source.zookeeper.client(), target.zookeeper.client()]
        for registry in self.registries:
            registry.start()
        self.config = MirrorConfig(**{**SETTINGS, **settings})
        self.mirror = Mirror(self.config, *self.registries)
        self.member = GroupMember(self.config, self.registries[0], self.mirror)
        self.member.start()

    def partition(self, topic: str) -> dict[str, Any]:
        """The topic's only partition in the status."""
        found = [p for p in self.mirror.status()["partitions"] if p["topic"] == topic]
        return found[0] if found else ABSENT

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
        self.source = stack.enter_context(contextlib.closing(Deployment()))
        self.target = stack.enter_context(contextlib.closing(Deployment()))
        self.brokers = self.source.broker(1), self.target.broker(11)

    def with_topics(self, *topics: str) -> tuple[ScriptedBroker, ScriptedBroker]:
        """The source's broker and the target's, of which both have these topics."""
        for topic in topics:
            self.source.topic(topic, {1: 1})
            self.target.topic(topic, {11: 1})
        return self.brokers

    def mirror(self, **settings: Any) -> RunningMirror:
        made = RunningMirror(self.source, self.target, **settings)
        return self._stack.enter_context(contextlib.closing(made))

    def commit(self, topic: str, offset: int) -> None:
        path = paths.offset_path("mirror", topic, BrokerPartition(1, 0))
        self.source.admin.put(path, b"%d" % offset)

    def committed(self, topic: str) -> int | None:
        stored = self.source.admin.get(paths.offset_path("mirror", topic, BrokerPartition(1, 0)))
        return None if stored is None else int(stored.value or b"")

    def wait_until_committed(self, topic: str) -> None:
        end = self.brokers[0].end(topic, 0)
        wait_until(lambda: self.committed(topic) == end, f"all of {topic} is committed")

    def wait_until_copied(self, topic: str) -> None:
        """All of it is committed, and stands at the target once."""
        self.wait_until_committed(topic)
        source, target = self.brokers
        assert target.log(topic) == source.log(topic)


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with contextlib.ExitStack() as stack:
        yield Clusters(stack)
