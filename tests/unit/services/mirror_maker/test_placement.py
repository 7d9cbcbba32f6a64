"""Placement: topics are made at the target first; each source partition keeps its target."""

import contextlib
from collections.abc import Iterator

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.services.mirror_maker.placement import NotPlaced, Placement
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper


class Targets:
    """Makes topics as target brokers would, except on those that are `slow`."""

    def __init__(self, registry: InMemoryRegistry) -> None:
        self.registry = registry
        self.slow: set[int] = set()
        self.now_s = 0.0
        for broker_id in (11, 12):
            value = paths.encode_broker("host", broker_id, 0)
            registry.create(paths.broker_id_path(broker_id), value)

    def make_topic(self, topic: str, address: tuple[str, int]) -> None:
        if address[1] not in self.slow:
            self.registry.put(paths.topic_broker_path(topic, address[1]), b"2")


@pytest.fixture
def registries() -> Iterator[tuple[InMemoryRegistry, InMemoryRegistry]]:
    source, target = InMemoryZooKeeper().client(), InMemoryZooKeeper().client()
    with contextlib.closing(source), contextlib.closing(target):
        source.start()
        target.start()
        for broker_id in (1, 2):
            source.put(paths.topic_broker_path("t", broker_id), b"2")
        yield source, target


def test_a_new_topic_is_made_on_all_target_brokers_before_anything_is_mapped(
    registries: tuple[InMemoryRegistry, InMemoryRegistry],
) -> None:
    source, target = registries
    targets = Targets(target)
    placement = Placement(source, target, "g", targets.make_topic)
    with pytest.raises(NotPlaced, match="do not announce"):
        placement.target_of(TopicPartition("t", 1, 0))
    places = {
        placement.target_of(TopicPartition("t", broker_id, partition)).text
        for broker_id in (1, 2)
        for partition in (0, 1)
    }
    assert places == {"11-0", "11-1", "12-0", "12-1"}
    again = Placement(source, target, "g", targets.make_topic)
    assert {again.target_of(TopicPartition("t", 1, 0)) for _ in range(3)} == {
        placement.target_of(TopicPartition("t", 1, 0))
    }


def test_a_target_broker_that_never_announces_is_not_waited_for_for_ever(
    registries: tuple[InMemoryRegistry, InMemoryRegistry],
) -> None:
    source, target = registries
    targets = Targets(target)
    targets.slow = {12}
    placement = Placement(source, target, "g", targets.make_topic, lambda: targets.now_s)
    with pytest.raises(NotPlaced):
        placement.target_of(TopicPartition("t", 1, 0))
    for _ in range(3):
        targets.now_s += 1
        with pytest.raises(NotPlaced, match=r"\[12\]"):
            placement.target_of(TopicPartition("t", 1, 0))
    targets.now_s += 10
    assert placement.target_of(TopicPartition("t", 1, 0)).broker_id == 11


def test_garbage_in_the_map_is_replaced(
    registries: tuple[InMemoryRegistry, InMemoryRegistry],
) -> None:
    source, target = registries
    targets = Targets(target)
    targets.make_topic("t", ("host", 11))
    targets.make_topic("t", ("host", 12))
    path = paths.mirror_map_path("g", "t", BrokerPartition(1, 0))
    source.create(path, b"nonsense")
    chosen = Placement(source, target, "g", targets.make_topic).target_of(TopicPartition("t", 1, 0))
    stored = source.get(path)
    assert stored is not None
    assert stored.value == chosen.text.encode()
