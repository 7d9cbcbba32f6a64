"""A group as the operator sees it: state with its reason, from one look and from several."""

import pytest

from kafka2011.consumer.tools.group_watch import GroupReport, GroupWatch
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.support.clock import ManualClock
from tests.support.memory_deployment import Deployment, numbered
from tests.support.memory_zookeeper import InMemoryZooKeeper

PARTITION = BrokerPartition(0, 0)


class Watched:
    """One partition of group g, 55 bytes long, with a clock of its own."""

    def __init__(self, deployment: Deployment) -> None:
        self.clock = ManualClock()
        deployment.zookeeper = InMemoryZooKeeper(self.clock)
        self.admin = deployment.admin = deployment.zookeeper.client()
        self.admin.start()
        self.broker = deployment.broker_of_t(numbered(0, 5))
        self.watch = GroupWatch(self.admin, "g", clock=self.clock)

    def commit(self, offset: object, partition: BrokerPartition = PARTITION) -> None:
        self.admin.put(paths.offset_path("g", "t", partition), str(offset).encode())

    def own(self) -> None:
        self.admin.create_ephemeral(paths.owner_path("g", "t", PARTITION), b"g_a-0")

    def look(self, *, after_ms: int = 0) -> GroupReport:
        self.clock.advance(after_ms)
        self.watch.sample()
        return self.watch.report()


@pytest.fixture
def watched(deployment: Deployment) -> Watched:
    return Watched(deployment)


@pytest.mark.parametrize(
    ("is_owned", "offset", "after_ms", "verdict"),
    [
        pytest.param(False, 55, 0, ("OK", ""), id="nothing is left"),
        pytest.param(False, 11, 0, ("STOP", "no owner"), id="without a reader"),
        pytest.param(True, 11, 0, ("UNKNOWN", "watch it for longer"), id="a reader"),
        # What is left may have come this moment.
        pytest.param(True, 11, 31_000, ("UNKNOWN", "31 s, and maybe"), id="an old commit"),
        pytest.param(True, "x", 0, ("UNKNOWN", "no offset"), id="garbage for an offset"),
    ],
)
def test_one_look(
    watched: Watched, is_owned: bool, offset: object, after_ms: int, verdict: tuple[str, str]
) -> None:
    if is_owned:
        watched.own()
    watched.commit(offset)
    report = watched.look(after_ms=after_ms)
    state, reason = verdict
    assert report.verdict.state == state
    assert reason in report.verdict.reason
    [found] = report.partitions
    assert found.partition.offset == (None if offset == "x" else offset)
    assert found.committed_ms == watched.clock() - after_ms
    if offset == 55:
        assert (found.lag_time.at_least_ms, found.lag_time.source) == (0, "end")


def test_commits_that_come_while_it_is_watched_are_a_reader_at_work(watched: Watched) -> None:
    watched.own()
    watched.commit(11)
    watched.look()
    for offset, state in ((22, "OK"), (11, "REWIND")):
        watched.commit(offset)
        assert watched.look(after_ms=1000).verdict.state == state


def test_a_reader_that_leaves_what_was_seen_to_come_has_stopped(watched: Watched) -> None:
    watched.own()
    watched.commit(55)
    watched.look()
    watched.broker.append("t", 0, [b"more"])
    states = [watched.look(after_ms=seconds * 1000).verdict.state for seconds in (3600, 29, 2)]
    assert states == ["UNKNOWN", "UNKNOWN", "STOP"]


def test_ten_equal_commits_are_a_stall(watched: Watched) -> None:
    watched.own()
    for _ in range(10):
        watched.commit(11)
        report = watched.look(after_ms=1000)
    assert (report.verdict.state, report.verdict.complete) == ("STALL", 1.0)


def test_growth_that_was_seen_dates_the_first_unread_message(watched: Watched) -> None:
    watched.own()
    watched.commit(55)
    watched.look()
    watched.broker.append("t", 0, [b"more"])
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
    assert report.partitions[0].verdict.reason == "broker not registered"


def test_an_offset_that_the_log_no_longer_has_is_said(watched: Watched) -> None:
    watched.own()
    watched.commit(11)
    watched.broker.starts["t", 0] = 33
    [found] = watched.look(after_ms=31_000).partitions
    assert (found.verdict.state, found.verdict.reason) == (
        "UNKNOWN",
        "the offset is no longer in the log",
    )


def test_a_partition_that_the_group_never_touched_says_nothing_of_it(watched: Watched) -> None:
    watched.admin.put(paths.topic_broker_path("t", 0), b"2")
    watched.commit(55)
    report = watched.look()
    assert [one.verdict.state for one in report.partitions] == ["OK", "UNKNOWN"]
    assert report.verdict.state == "OK"


def test_the_reason_of_a_group_names_the_partition_that_it_is_of(watched: Watched) -> None:
    """Said of the group, "nothing was committed" was not so of its other partitions."""
    watched.admin.put(paths.topic_broker_path("t", 0), b"2")
    watched.broker.append("t", 1, [b"more"])
    watched.commit(55)
    watched.commit(0, BrokerPartition(0, 1))
    report = watched.look()
    assert [one.verdict.state for one in report.partitions] == ["OK", "STOP"]
    assert report.verdict.reason == f"t 0-1: {report.partitions[1].verdict.reason}"
