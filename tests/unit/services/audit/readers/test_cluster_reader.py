"""Discovering brokers, topics and partitions in ZooKeeper, and noticing when it does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.registry import Registry
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.broker_reader import BrokerReader
from kafka2011.services.audit.readers.cluster_reader import ClusterReader
from tests.support.clock import ManualClock
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import (
    SERVER,
    T0,
    WINDOW_MS,
    ScriptedBroker,
    event,
    report,
    totals_of,
)


class Cluster:
    """A ZooKeeper and a broker in memory, read by a ClusterReader."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0 + 500)
        self.state = AuditState(("live",), WINDOW_MS, self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.registry = self.zookeeper.client()
        self.registry.start()
        self.broker = ScriptedBroker()
        self.is_zookeeper_there = True

    def register(self, topic: str, partitions: int, broker_id: int = 1) -> None:
        self.registry.put(paths.broker_id_path(broker_id), paths.encode_broker("broker", 1, 1))
        self.registry.put(
            paths.topic_broker_path(topic, broker_id), paths.encode_number(partitions)
        )
        for number in range(partitions):
            self.broker.append(topic, number)

    def connect(self) -> Registry:
        if not self.is_zookeeper_there:
            raise CoordinationUnavailable("no answer")
        client = self.zookeeper.client()
        client.start()
        return client

    def make_reader(self, tier: str, broker_id: int) -> BrokerReader:
        return BrokerReader(
            self.state,
            tier,
            broker_id,
            connect=lambda _: self.broker,
            clock=self.clock,
            fetch_bytes=65536,
            poll_interval_ms=1,
        )

    @contextmanager
    def reading(
        self, ignored: tuple[str, ...] = (), refresh_interval_ms: int = 1
    ) -> Iterator[ClusterReader]:
        reader = ClusterReader(
            self.state,
            "live",
            connect_registry=self.connect,
            make_reader=self.make_reader,
            clock=self.clock,
            refresh_interval_ms=refresh_interval_ms,
            ignored=ignored,
        )
        reader.start()
        try:
            yield reader
        finally:
            reader.close()

    def counted(self, topic: str = PAGE_VIEW) -> int:
        cell = self.state.cells().get(CellKey(topic, T0, SERVER))
        return cell.counted[0] if cell else 0

    def unreachable(self) -> str:
        return self.state.progress_of("live").unreachable


def test_topics_are_found_when_they_appear() -> None:
    cluster = Cluster()
    with cluster.reading():
        cluster.register(PAGE_VIEW, 2)
        cluster.broker.append(PAGE_VIEW, 0, event(1))
        cluster.broker.append(PAGE_VIEW, 1, event(2))
        wait_until(lambda: cluster.counted() == 2, "both partitions")
        cluster.register(AUDIT, 1)
        cluster.broker.append(AUDIT, 0, report(0, [(PAGE_VIEW, T0, 2)]))
        wait_until(lambda: totals_of(cluster.state.ledger).produced == [2], "produced number")
        assert cluster.state.delays["live"].summary().count == 2


def test_a_new_topic_is_discovered_before_the_next_refresh() -> None:
    cluster = Cluster()
    cluster.register(AUDIT, 1)
    with cluster.reading(refresh_interval_ms=3_600_000):
        wait_until(lambda: cluster.state.progress_of("live").is_caught_up, "discovered")
        cluster.register(PAGE_VIEW, 1)
        cluster.broker.append(PAGE_VIEW, 0, event(1))
        wait_until(lambda: cluster.counted() == 1, "counted")


def test_a_partition_that_is_registered_and_not_yet_read_holds_the_tier_back() -> None:
    cluster = Cluster()
    cluster.broker.failure = ConnectionRefusedError()
    cluster.register(PAGE_VIEW, 1)
    with cluster.reading() as reader:
        reader.discover(cluster.registry)
        assert PartitionKey("live", PAGE_VIEW, 1, 0) in cluster.state.progress.positions
        assert not cluster.state.progress_of("live").read_to_ms or cluster.unreachable()
        wait_until(lambda: "broker 1 does not answer" in cluster.unreachable(), "noted")


def test_ignored_topics_are_not_read() -> None:
    cluster = Cluster()
    with cluster.reading(ignored=("debug",)):
        cluster.register("debug", 1)
        cluster.register(PAGE_VIEW, 1)
        cluster.broker.append("debug", 0, event(1))
        cluster.broker.append(PAGE_VIEW, 0, event(2))
        wait_until(lambda: cluster.counted() == 1, "page view")
        assert cluster.counted("debug") == 0


def test_a_zookeeper_that_does_not_answer_is_noted_and_tried_again() -> None:
    cluster = Cluster()
    cluster.is_zookeeper_there = False
    cluster.register(PAGE_VIEW, 1)
    cluster.broker.append(PAGE_VIEW, 0, event(1))
    with cluster.reading():
        wait_until(lambda: "ZooKeeper does not answer" in cluster.unreachable(), "noted")
        cluster.is_zookeeper_there = True
        wait_until(lambda: cluster.counted() == 1, "counted")
        wait_until(lambda: not cluster.unreachable(), "everything answers")


def test_partitions_in_the_books_are_read_on_and_their_backlog_is_no_delay() -> None:
    cluster = Cluster()
    cluster.register(PAGE_VIEW, 1)
    cluster.broker.append(PAGE_VIEW, 0, event(1))
    end = len(cluster.broker.logs[PAGE_VIEW, 0])
    cluster.state.begin(PartitionKey("live", PAGE_VIEW, 1, 0), end)
    cluster.broker.append(PAGE_VIEW, 0, event(2))
    with cluster.reading():
        wait_until(lambda: cluster.counted() == 1, "the second only")
        assert cluster.state.delays["live"].summary().count == 0


def test_a_broker_that_leaves_zookeeper_is_still_read_while_it_answers() -> None:
    cluster = Cluster()
    cluster.register(PAGE_VIEW, 1)
    with cluster.reading():
        wait_until(lambda: cluster.state.progress_of("live").is_caught_up, "caught up")
        cluster.registry.delete(paths.broker_id_path(1))
        cluster.registry.delete(paths.topic_broker_path(PAGE_VIEW, 1))
        cluster.broker.append(PAGE_VIEW, 0, event(1))
        wait_until(lambda: cluster.counted() == 1, "counted")
        assert not cluster.unreachable()
