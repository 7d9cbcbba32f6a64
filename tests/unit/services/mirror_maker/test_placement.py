"""Placement: topics are made at the target first; each source partition keeps its target."""

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.services.mirror_maker.placement import NotPlaced, Placement
from tests.support.memory_deployment import Deployment

FIRST = TopicPartition("t", 1, 0)


class Cluster:
    """A source with two partitions of `t` on each of two brokers. The target's two brokers make
    topics, except those that are `slow`."""

    def __init__(self) -> None:
        self.source, self.target = Deployment(), Deployment()
        self.source.topic("t", {1: 2, 2: 2})
        self.slow: set[int] = set()
        self.now_s = 0.0
        for broker_id in (11, 12):
            address = paths.encode_broker("host", broker_id, 0)
            self.target.admin.create(paths.broker_id_path(broker_id), address)

    def make_topic(self, topic: str, address: tuple[str, int]) -> None:
        if address[1] not in self.slow:
            self.target.topic(topic, {address[1]: 2})

    def placement(self) -> Placement:
        source, target = self.source.admin, self.target.admin
        return Placement(source, target, "g", self.make_topic, lambda: self.now_s)


def test_a_new_topic_is_made_on_all_target_brokers_before_anything_is_mapped() -> None:
    cluster = Cluster()
    placement = cluster.placement()
    with pytest.raises(NotPlaced, match="do not announce"):
        placement.target_of(FIRST)
    sources = [TopicPartition("t", broker_id, number) for broker_id in (1, 2) for number in (0, 1)]
    chosen = [placement.target_of(source) for source in sources]
    assert {place.text for place in chosen} == {"11-0", "11-1", "12-0", "12-1"}
    again = cluster.placement()
    assert [again.target_of(source) for source in sources] == chosen


def test_a_target_broker_that_never_announces_is_not_waited_for_for_ever() -> None:
    cluster = Cluster()
    cluster.slow = {12}
    placement = cluster.placement()
    with pytest.raises(NotPlaced):
        placement.target_of(FIRST)
    for _ in range(3):
        cluster.now_s += 1
        with pytest.raises(NotPlaced, match=r"\[12\]"):
            placement.target_of(FIRST)
    cluster.now_s += 10
    assert placement.target_of(FIRST).broker_id == 11


def test_garbage_in_the_map_is_replaced() -> None:
    cluster = Cluster()
    cluster.target.topic("t", {11: 2, 12: 2})
    path = paths.mirror_map_path("g", "t", BrokerPartition(1, 0))
    cluster.source.admin.create(path, b"nonsense")
    chosen = cluster.placement().target_of(FIRST)
    stored = cluster.source.admin.get(path)
    assert stored is not None
    assert stored.value == chosen.text.encode()
