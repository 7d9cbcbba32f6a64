"""Discovering brokers, topics and partitions in ZooKeeper, and noticing when it does not answer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import UncleanRecord, encode_unclean
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.readers.cluster_reader import ClusterReader
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.services.audit.readers.samples import LiveTier
from tests.unit.services.audit.samples import T0, event, report, totals_of

KEY = PartitionKey("live", PAGE_VIEW, 1, 0)


class Cluster(LiveTier):
    """With a ZooKeeper in memory."""

    def __init__(self, broker: ScriptedBroker) -> None:
        super().__init__(broker, now_ms=T0 + 500)
        self.zookeeper = InMemoryZooKeeper()
        self.registry = self.connect()
        self.zookeeper_failure: Exception | None = None

    def register(self, topic: str, partitions: int = 1) -> None:
        broker = paths.encode_broker(self.broker.host, self.broker.port, 1)
        self.registry.put(paths.broker_id_path(1), broker)
        self.registry.put(paths.topic_broker_path(topic, 1), paths.encode_number(partitions))

    def elect(self, record: UncleanRecord) -> None:
        """Record an unclean election of the set, and have the elected one lead."""
        path = paths.replica_unclean_path(1, record.epoch)
        self.registry.put(path, encode_unclean(record))
        state = set_state(record.directory, record.epoch)
        self.registry.put(paths.replica_state_path(1), state)

    def connect(self) -> Registry:
        client = self.zookeeper.client()
        client.start()
        return client

    def connect_if_there(self) -> Registry:
        if self.zookeeper_failure is not None:
            raise self.zookeeper_failure
        return self.connect()

    @contextmanager
    def reading(
        self, ignored: tuple[str, ...] = (), refresh_interval_ms: int = 1
    ) -> Iterator[ClusterReader]:
        reader = ClusterReader(
            self.state,
            "live",
            connect_registry=self.connect_if_there,
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

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.counted() == count, lambda: f"{count} counted: {self.counts()}")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ScriptedBroker() as broker:
        yield Cluster(broker)


def test_topics_are_found_when_they_appear(cluster: Cluster) -> None:
    with cluster.reading():
        wait_until(lambda: cluster.progress.is_caught_up, "an empty cluster discovered")
        cluster.register(PAGE_VIEW, 2)
        cluster.append(event(1))
        cluster.append(event(2), partition=1)
        cluster.wait_for(2)
        cluster.register(AUDIT)
        cluster.broker.append(AUDIT, 0, [report(0, [(PAGE_VIEW, T0, 2)])])
        wait_until(lambda: totals_of(cluster.state.ledger).produced == [2, 0], "produced number")
        assert cluster.measured() == 2


def test_a_new_topic_is_discovered_before_the_next_refresh(cluster: Cluster) -> None:
    cluster.register(AUDIT)
    with cluster.reading(refresh_interval_ms=3_600_000):
        wait_until(lambda: cluster.progress.is_caught_up, "discovered")
        cluster.register(PAGE_VIEW)
        cluster.append(event(1))
        cluster.wait_for(1)


def test_a_registered_partition_that_is_not_read_holds_the_tier_back(cluster: Cluster) -> None:
    cluster.failure = ConnectionRefusedError()
    cluster.register(PAGE_VIEW)
    with cluster.reading():
        wait_until(lambda: KEY in cluster.state.progress.positions, "discovered")
        assert not cluster.progress.read_to_ms or cluster.progress.unreachable
        wait_until(lambda: "broker 1 does not answer" in cluster.progress.unreachable, "noted")


def test_ignored_topics_are_not_read(cluster: Cluster) -> None:
    with cluster.reading(ignored=("debug",)):
        cluster.register("debug")
        cluster.register(PAGE_VIEW)
        cluster.broker.append("debug", 0, [event(1)])
        cluster.append(event(2))
        cluster.wait_for(1)
        assert cluster.counts("debug") == {}


@pytest.mark.parametrize(
    ("failure", "noted"),
    [
        (CoordinationUnavailable("no answer"), "ZooKeeper does not answer"),
        (ZeroDivisionError("a bug"), "not being read: internal error"),
    ],
)
def test_a_zookeeper_that_cannot_be_read_is_noted_and_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, failure: Exception, noted: str
) -> None:
    monkeypatch.setattr("kafka2011.runtime.workers.RESTART_FIRST_S", 0.001)
    cluster.zookeeper_failure = failure
    cluster.register(PAGE_VIEW)
    cluster.append(event(1))
    with cluster.reading():
        wait_until(lambda: noted in cluster.progress.unreachable, "noted")
        cluster.zookeeper_failure = None
        cluster.wait_for(1)
        wait_until(lambda: not cluster.progress.unreachable, "everything answers")


def test_a_partition_in_the_books_is_read_on_and_its_backlog_is_no_delay(cluster: Cluster) -> None:
    cluster.register(PAGE_VIEW)
    cluster.state.begin(KEY, cluster.append(event(1)))
    cluster.append(event(2))
    with cluster.reading():
        cluster.wait_for(1)  # the second only
        assert cluster.measured() == 0


def test_a_broker_that_leaves_zookeeper_is_still_read_while_it_answers(cluster: Cluster) -> None:
    cluster.register(PAGE_VIEW)
    with cluster.reading():
        wait_until(lambda: cluster.progress.is_caught_up, "caught up")
        cluster.registry.delete(paths.broker_id_path(1))
        cluster.registry.delete(paths.topic_broker_path(PAGE_VIEW, 1))
        cluster.append(event(1))
        cluster.wait_for(1)
        wait_until(lambda: not cluster.progress.unreachable, "it answers")  # said after the count


def set_state(leader: str | None, epoch: int = 7) -> bytes:
    members = [{"name": name, "directory": name.upper()} for name in "ab"]
    state = {
        "version": 1,
        "epoch": epoch,
        "leader": leader,
        "isr": ["A", "B"],
        "eligible": [],
        "min_insync": 1,
        "members": members,
    }
    return json.dumps(state).encode()


def test_a_set_without_leader_is_told_while_its_last_address_answers(cluster: Cluster) -> None:
    cluster.registry.put(paths.replica_state_path(1), set_state("A"))
    cluster.registry.create(paths.replica_live_path(1, "A"), b"{}")
    cluster.register(PAGE_VIEW)
    with cluster.reading(refresh_interval_ms=3_600_000):
        cluster.append(event(1))
        cluster.wait_for(1)
        wait_until(lambda: not cluster.progress.unreachable, "it answers")  # said after the count
        cluster.registry.delete(paths.replica_live_path(1, "A"))
        wait_until(
            lambda: cluster.progress.unreachable == "live broker 1 has no leader: a, b down",
            lambda: cluster.progress.unreachable,
        )
        cluster.registry.create(paths.replica_live_path(1, "A"), b"{}")
        wait_until(lambda: not cluster.progress.unreachable, lambda: cluster.progress.unreachable)


def test_what_an_unclean_election_lost_is_entered_once_and_reading_goes_on(
    cluster: Cluster,
) -> None:
    cluster.register(PAGE_VIEW)
    cluster.registry.put(paths.replica_state_path(1), set_state("A"))
    cluster.registry.create(paths.replica_live_path(1, "A"), b"{}")
    kept = cluster.append(event(1))
    lost = cluster.append(event(2), event(3))
    ends = [lost]
    for _ in range(2):  # the service starts again, with the same books
        with cluster.reading():
            wait_until(lambda: cluster.counted() >= 3, lambda: str(cluster.counts()))
            if not cluster.state.progress.unread:
                del cluster.broker.logs[PAGE_VIEW, 0][kept:]
                record = UncleanRecord(
                    8, T0, "me@here", "b", "B", {"A": "a"}, {"page-view-0": kept}
                )
                cluster.elect(record)
                wait_until(lambda: cluster.state.position(KEY) == kept, "the end of the election")
                ends.append(cluster.append(event(4), event(5), event(6)))
                assert ends[-1] > lost
            wait_until(lambda: cluster.state.position(KEY) == ends[-1], "what came since")
            # Two that were counted are lost, three came.
            assert cluster.counted() == 6
    unread = cluster.unread()
    assert (unread.first, unread.last) == (kept, lost)
    assert unread.reason == "lost: unclean election of b in epoch 8, by me@here"
    assert cluster.progress.loss == "unclean election of b in epoch 8, by me@here"
    assert cluster.state.elections()["live"].at_ms == T0


def test_a_partition_that_the_elected_copy_does_not_have_is_lost_whole(cluster: Cluster) -> None:
    cluster.register(PAGE_VIEW)
    cluster.registry.put(paths.replica_state_path(1), set_state("A"))
    cluster.registry.create(paths.replica_live_path(1, "A"), b"{}")
    end = cluster.append(event(1), event(2))
    with cluster.reading():
        wait_until(lambda: cluster.counted() == 2, lambda: str(cluster.counts()))
        cluster.broker.logs[PAGE_VIEW, 0].clear()
        at_ms = cluster.clock.current_ms
        cluster.elect(UncleanRecord(8, at_ms, "me@here", "b", "B", {}, {}))
        wait_until(lambda: cluster.state.position(KEY) == 0, "the start of the new log")
        cluster.append(event(3))
        wait_until(lambda: cluster.counted() == 3, lambda: str(cluster.counts()))
    unread = cluster.unread()
    assert (unread.first, unread.last) == (0, end)
    assert unread.reason.startswith("lost: unclean election of b in epoch 8")
    assert cluster.state.progress.lost_logs() == []


def test_an_election_of_a_set_that_was_made_anew_is_another_one(cluster: Cluster) -> None:
    """Its epochs begin at 0 again, and the old set's records may have been left."""
    cluster.register(PAGE_VIEW)
    state_path = paths.replica_state_path(1)
    cluster.registry.put(state_path, set_state("A"))
    kept = cluster.append(event(1))
    cluster.append(event(2), event(3))
    with cluster.reading():
        cluster.wait_for(3)
        for epoch, made_anew in ((8, False), (3, True), (8, True)):
            if made_anew:
                cluster.registry.delete(state_path)
                cluster.registry.create(state_path, set_state("A", 0))
            del cluster.broker.logs[PAGE_VIEW, 0][kept:]
            counted = cluster.counted()
            cluster.clock.advance(1)
            at_ms = cluster.clock.current_ms
            ends = {"page-view-0": kept}
            cluster.elect(UncleanRecord(epoch, at_ms, "me@here", "b", "B", {"A": "a"}, ends))
            wait_until(lambda: cluster.state.position(KEY) == kept, "the end of the election")
            cluster.append(event(4), event(5))
            cluster.wait_for(counted + 2)


def test_what_an_older_set_lost_is_no_loss_of_one_that_was_made_anew(cluster: Cluster) -> None:
    cluster.register(PAGE_VIEW)
    state_path = paths.replica_state_path(1)
    cluster.registry.put(state_path, set_state("A"))
    cluster.elect(UncleanRecord(8, T0, "me@here", "b", "B", {"A": "a"}, {"page-view-0": 0}))
    cluster.registry.delete(state_path)
    cluster.registry.create(state_path, set_state("A", 7))
    cluster.append(event(1))
    with cluster.reading():
        cluster.wait_for(1)
        cluster.registry.put(state_path, set_state("B", 8))  # a takeover without loss
        cluster.append(event(2))
        cluster.wait_for(2)
    with cluster.reading():  # it looks at the sets before it reads
        cluster.append(event(3))
        cluster.wait_for(3)
    assert not cluster.state.progress.unread
    assert not cluster.progress.loss
