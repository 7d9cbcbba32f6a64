"""What a reader that looks time and again sees of the cluster, and what a look costs."""

import pytest

from kafka2011.coordination import cluster, paths
from kafka2011.coordination.cluster_view import READ_ALL_S, ClusterView
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.paths import BrokerPartition
from tests.support.clock import ManualClock
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper


class Cluster:
    def __init__(self) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.admin = self.client()
        self.clock = ManualClock(0)
        self.changes = 0
        self.registry = self.zookeeper.client(deliver="by hand")
        self.registry.start()
        self.view = ClusterView(
            self.registry,
            ignored=("ignored",),
            on_change=self.note_change,
            monotonic=lambda: self.clock() / 1000,
        )

    def client(self) -> InMemoryRegistry:
        client = self.zookeeper.client()
        client.start()
        return client

    def note_change(self) -> None:
        self.changes += 1

    def register(self, topic: str, broker_id: int, partitions: int = 1) -> None:
        address = paths.encode_broker("h", 9092, 1)
        self.admin.put(paths.broker_id_path(broker_id), address)
        self.admin.put(paths.topic_broker_path(topic, broker_id), paths.encode_number(partitions))

    def assert_seen(self) -> None:
        """A look shows what reading everything would."""
        seen = self.view.look()
        assert seen.brokers == cluster.live_brokers(self.admin)
        topics = [name for name in cluster.topics(self.admin) if name != "ignored"]
        read = {topic: cluster.partitions_of(self.admin, topic) for topic in topics}
        assert seen.partitions == read

    def cost(self) -> int:
        """The requests of a look."""
        before = self.zookeeper.operation_count
        self.view.look()
        return self.zookeeper.operation_count - before


def test_each_look_shows_what_is_registered_then() -> None:
    one = Cluster()
    one.assert_seen()
    one.register("a", 1, 2)
    one.register("ignored", 1)
    one.assert_seen()
    one.register("b", 2)
    one.register("a", 2)
    one.assert_seen()
    one.admin.delete(paths.broker_id_path(1))
    one.admin.delete(paths.topic_broker_path("a", 1))
    one.assert_seen()
    one.admin.delete_recursive(paths.topic_path("b"))
    one.assert_seen()
    one.register("b", 3)
    one.assert_seen()
    one.registry.expire()
    one.register("a", 4)
    one.assert_seen()


def test_a_look_at_a_quiet_cluster_is_one_request() -> None:
    one = Cluster()
    for number in range(50):
        one.register(f"t{number}", number % 4 + 1)
    one.view.look()
    one.view.look()  # what the first callbacks of its watches said
    assert one.cost() == 1
    one.register("t7", 9)
    assert one.cost() < 20, "everything was read"
    assert one.view.look().partitions["t7"][-1] == BrokerPartition(9, 0)


def test_a_change_is_told_before_the_next_look() -> None:
    one = Cluster()
    one.view.look()
    before = one.changes
    one.register("a", 1)
    while one.registry.deliver_next():
        pass
    assert one.changes > before


def test_a_value_that_changed_in_place_is_seen_in_the_end() -> None:
    one = Cluster()
    one.register("a", 1, 2)
    one.view.look()
    one.view.look()
    one.admin.put(paths.topic_broker_path("a", 1), paths.encode_number(5))
    one.clock.advance(int(READ_ALL_S * 1000))
    one.assert_seen()


def test_what_could_not_be_read_is_read_by_the_next_look() -> None:
    one = Cluster()
    one.register("a", 1)
    one.view.look()
    one.register("b", 1)
    one.registry.catch_up()
    for _ in range(3):
        one.registry.fail_next()
        with pytest.raises(CoordinationUnavailable):
            one.view.look()
    one.assert_seen()
