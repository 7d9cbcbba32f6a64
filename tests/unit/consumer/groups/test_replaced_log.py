"""A broker's log was lost, and the new one has grown beyond the group's position."""

import pytest
import structlog

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import PartitionStuck
from kafka2011.consumer.groups import log_tails
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.stream import MessageStream
from kafka2011.consumer.tools import group_offsets
from kafka2011.consumer.tools.group_offsets import Change
from kafka2011.consumer.tools.group_watch import GroupWatch
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.support.memory_deployment import Deployment, drain, numbered, one_stream
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until

NAME = TopicPartition("t", 0, 0)
TAIL_NODE = paths.tail_path("g", "t", BrokerPartition(0, 0))
OLD = [b"of the old log %d" % number for number in range(5)]
# Entries of other lengths: the old log's end is in the middle of one of them.
NEW = [b"of the new log, which is longer %d" % number for number in range(20)]


def lose(broker: ScriptedBroker, payloads: list[bytes] = NEW) -> None:
    """The broker comes back with another log of the topic."""
    with broker.lock:
        broker.logs["t", 0].clear()
        broker.append("t", 0, payloads)
        broker.hang_up()


def read_old(
    deployment: Deployment, **settings: object
) -> tuple[ScriptedBroker, ConsumerConnector, MessageStream]:
    """A member that has read and committed the old log, and is still there."""
    deployment.admin.put(paths.offset_path("g", "t", BrokerPartition(0, 0)), b"0")
    broker, connector, stream = deployment.reading(OLD, **settings)
    assert drain(stream, 5) == OLD
    connector.commit_offsets()
    return broker, connector, stream


@pytest.mark.parametrize("is_same_length", [False, True], ids=["mid-entry", "at an entry"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_it_is_said_and_read_from_its_start(
    deployment: Deployment, is_restarted: bool, is_same_length: bool
) -> None:
    broker, connector, stream = read_old(deployment)
    new = [one.replace(b"old", b"new") for one in OLD] + NEW if is_same_length else NEW
    if is_restarted:
        connector.shutdown()
    with structlog.testing.capture_logs() as logged:
        lose(broker, new)
        if is_restarted:
            connector = deployment.connector()
            stream = one_stream(connector)
        assert drain(stream, len(new)) == new
    assert connector.stats.replaced_logs == connector.stats.offset_resets == 1
    assert connector.reset_to(NAME) == 0
    [line] = [one for one in logged if one["event"] == "log_replaced"]
    assert (line["partition"], line["to_offset"]) == ("t/0-0", 0)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_operator_may_choose_the_end_or_that_it_stops(
    deployment: Deployment, is_restarted: bool
) -> None:
    broker, connector, stream = read_old(deployment, autooffset_reset="stop")
    if is_restarted:
        connector.shutdown()
    lose(broker)
    if is_restarted:
        connector = deployment.connector(autooffset_reset="stop")
        stream = one_stream(connector)
    with pytest.raises(PartitionStuck, match="not the one that was read up to"):
        next(stream)
    connector.shutdown()
    connector = deployment.connector(autooffset_reset="largest")
    stream = one_stream(connector)
    wait_until(lambda: connector.stats.replaced_logs == 1, "the reset")
    broker.append("t", 0, [b"newest"])
    assert drain(stream, 1) == [b"newest"]


def test_where_it_stops_the_application_decides(deployment: Deployment) -> None:
    broker, connector, stream = read_old(deployment, autooffset_reset="stop")
    lose(broker)
    with pytest.raises(PartitionStuck):
        next(stream)
    assert connector.seek(NAME, 0)
    assert drain(stream, len(NEW)) == NEW


def test_after_a_reset_to_the_end_the_next_member_goes_on_there(deployment: Deployment) -> None:
    """The tail of the old log, left in ZooKeeper, had it skip once more."""
    broker, connector, _ = read_old(deployment)
    connector.shutdown()
    lose(broker)
    connector = deployment.connector(autooffset_reset="largest", autocommit_interval_ms=20)
    one_stream(connector)
    end = b"%d" % broker.end("t", 0)
    wait_until(lambda: deployment.stored("t", 0, 0) == end, "the reset is committed")
    connector.shutdown()
    broker.append("t", 0, [b"while no member ran"])
    following = deployment.connector(autooffset_reset="largest")
    assert drain(one_stream(following), 1) == [b"while no member ran"]
    assert following.stats.replaced_logs == 0


@pytest.mark.parametrize("interval_ms", [0, 10_000_000])
def test_the_same_log_is_read_on_without_a_word(
    deployment: Deployment, interval_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the tail is far behind the offset, and where retention has deleted it."""
    monkeypatch.setattr(log_tails, "INTERVAL_MS", interval_ms)
    broker, connector, stream = read_old(deployment)
    broker.append("t", 0, numbered(0, 50))
    assert drain(stream, 50) == numbered(0, 50)
    connector.commit_offsets()
    broker.append("t", 0, [b"more"])
    broker.hang_up()
    assert drain(stream, 1) == [b"more"]
    connector.commit_offsets()
    assert connector.stats.replaced_logs == 0
    connector.shutdown()
    broker.retire("t", 0, broker.end("t", 0))
    broker.append("t", 0, [b"last"])
    following = deployment.connector()
    assert drain(one_stream(following), 1) == [b"last"]
    assert following.stats.replaced_logs == following.stats.offset_resets == 0


def test_an_offset_that_an_operator_has_moved_is_obeyed(deployment: Deployment) -> None:
    """Into a log that he knows to be another one."""
    broker, connector, _ = read_old(deployment)
    connector.shutdown()
    lose(broker)
    end = broker.end("t", 0)
    before = group_offsets.read_offset(deployment.admin, "g", NAME)
    assert group_offsets.apply(deployment.admin, [Change(before, end)]) == []
    assert deployment.zookeeper.value(TAIL_NODE) is None
    broker.append("t", 0, [b"newest"])
    assert drain(one_stream(deployment.connector()), 1) == [b"newest"]


def test_the_state_of_a_group_that_is_not_there_says_that_its_log_is_another(
    deployment: Deployment,
) -> None:
    """It called an outgrown offset a lag like any other."""
    broker, connector, _ = read_old(deployment)
    connector.shutdown()
    watch = GroupWatch(deployment.admin, "g")
    for payloads, is_said in (([*OLD, *NEW], False), (NEW, True)):
        lose(broker, payloads)
        watch.sample()
        [found] = watch.report().partitions
        assert found.verdict.state == "STOP"  # no member runs
        assert ("the log was lost or replaced" in found.verdict.reason) is is_said


def test_a_seek_to_the_present_end_is_obeyed(deployment: Deployment) -> None:
    broker, connector, stream = read_old(deployment)
    lose(broker)
    assert connector.seek_to_time(NAME, -1) is not None
    found = drain(stream, 0)
    broker.append("t", 0, [b"newest"])
    found += drain(stream, 1)
    assert found[-1] == b"newest"
    assert found in ([b"newest"], [*NEW, b"newest"])  # it was noticed before the seek, or not


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"offset": 1}', b'{"offset": 4, "bytes": 9, "digest": "00"}', b"\xff"]
)
def test_a_tail_that_cannot_be_read_is_ignored_and_replaced(
    deployment: Deployment, value: bytes
) -> None:
    broker, connector, _ = read_old(deployment)
    connector.shutdown()
    deployment.admin.put(TAIL_NODE, value)
    broker.append("t", 0, [b"more"])
    connector = deployment.connector()
    assert drain(one_stream(connector), 1) == [b"more"]
    connector.commit_offsets()
    assert log_tails.decode_tail(deployment.zookeeper.value(TAIL_NODE)).offset == broker.end("t", 0)
