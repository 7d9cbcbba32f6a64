"""A group as the operator sees it: state with its reason, from one look and from several."""

import pytest

from kafka2011.consumer.tools.cluster_state import GroupPartition
from kafka2011.consumer.tools.group_watch import GroupReport, GroupWatch
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.support.clock import ManualClock
from tests.support.memory_deployment import Deployment, numbered
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker

PARTITION = BrokerPartition(0, 0)


class Watched:
    """One partition of group g with a clock of its own."""

    def __init__(self, deployment: Deployment) -> None:
        self.clock = ManualClock()
        deployment.zookeeper = InMemoryZooKeeper(self.clock)
        deployment.admin = deployment.zookeeper.client()
        deployment.admin.start()
        self.admin = deployment.admin
        self.broker: ScriptedBroker = deployment.broker(0)
        deployment.topic("t", {0: 1})
        self.append(5)
        self.watch = GroupWatch(self.admin, "g", clock=self.clock)

    def append(self, count: int) -> None:
        self.broker.append("t", 0, numbered(0, count))

    def commit(self, offset: int) -> None:
        self.admin.put(paths.offset_path("g", "t", PARTITION), b"%d" % offset)

    def own(self) -> None:
        self.admin.create_ephemeral(paths.owner_path("g", "t", PARTITION), b"g_a-0")

    def look(self, *, after_ms: int = 0) -> GroupReport:
        self.clock.advance(after_ms)
        self.watch.sample()
        return self.watch.report()


@pytest.fixture
def watched(deployment: Deployment) -> Watched:
    return Watched(deployment)


def test_one_look_knows_that_nothing_is_left(watched: Watched) -> None:
    watched.commit(55)
    report = watched.look()
    assert report.verdict.state == "OK"
    [one] = report.partitions
    assert one.committed_ms == watched.clock()
    assert (one.lag_time.at_least_ms, one.lag_time.source) == (0, "end")


def test_one_look_knows_that_nobody_reads(watched: Watched) -> None:
    watched.commit(11)
    assert watched.look().verdict.state == "STOP"


def test_one_look_at_a_reader_cannot_tell_and_says_so(watched: Watched) -> None:
    watched.own()
    watched.commit(11)
    verdict = watched.look().verdict
    assert verdict.state == "UNKNOWN"
    assert "watch it for longer" in verdict.reason


def test_one_look_knows_how_old_the_last_commit_is(watched: Watched) -> None:
    watched.own()
    watched.commit(11)
    report = watched.look(after_ms=31_000)
    assert report.verdict.state == "STOP"
    assert "31 s" in report.verdict.reason


def test_commits_that_come_while_it_is_watched_are_a_reader_at_work(watched: Watched) -> None:
    watched.own()
    watched.commit(11)
    watched.look()
    watched.commit(22)
    assert watched.look(after_ms=1000).verdict.state == "OK"
    watched.commit(11)
    assert watched.look(after_ms=1000).verdict.state == "REWIND"


def test_ten_equal_commits_are_a_stall(watched: Watched) -> None:
    watched.own()
    for _ in range(10):
        watched.commit(11)
        report = watched.look(after_ms=1000)
    assert report.verdict.state == "STALL"
    assert report.verdict.complete == 1.0


def test_growth_that_was_seen_dates_the_first_unread_message(watched: Watched) -> None:
    watched.own()
    watched.commit(55)
    watched.look()
    watched.append(5)
    watched.look(after_ms=2000)
    found = watched.look(after_ms=3000).partitions[0].lag_time
    assert (found.at_least_ms, found.at_most_ms, found.source) == (3000, 5000, "watched")


def test_a_broker_that_is_away_leaves_the_state_unknown(watched: Watched) -> None:
    watched.own()
    watched.commit(11)
    watched.admin.delete(paths.broker_id_path(0))
    report = watched.look()
    assert report.verdict.state == "UNKNOWN"
    assert report.partitions[0].lag_time.reason == "broker not registered"


def test_a_partition_that_the_group_never_touched_says_nothing_of_it(watched: Watched) -> None:
    watched.admin.put(paths.topic_broker_path("t", 0), b"2")
    watched.commit(55)
    report = watched.look()
    assert [one.verdict.state for one in report.partitions] == ["OK", "UNKNOWN"]
    assert report.verdict.state == "OK"


def test_garbage_in_the_offset_is_no_offset(watched: Watched) -> None:
    watched.own()
    watched.admin.put(paths.offset_path("g", "t", PARTITION), b"x")
    report = watched.look()
    assert isinstance(report.partitions[0].partition, GroupPartition)
    assert report.partitions[0].partition.offset is None
    assert report.verdict.state == "UNKNOWN"
