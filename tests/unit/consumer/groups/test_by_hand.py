"""Partitions chosen by hand: no group is joined, the positions are still kept."""

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import BrokerUnavailable, ConsumerStateError
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.simple import EARLIEST, LATEST
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol.errors import IllegalTopicName
from tests.support.memory_deployment import Deployment, drain, numbered, one_stream
from tests.support.scripted_server import ScriptedBroker

FIRST, SECOND = TopicPartition("t", 0, 0), TopicPartition("t", 0, 1)


@pytest.fixture
def broker(deployment: Deployment) -> ScriptedBroker:
    made = deployment.broker(0)
    deployment.topic("t", {0: 3})
    for partition in range(3):
        made.append("t", partition, numbered(10 * partition, 10 * partition + 5))
    return made


def by_hand(deployment: Deployment, **settings: object) -> ConsumerConnector:
    return deployment.connector(autocommit_enable=False, **settings)


def test_only_the_chosen_partitions_from_where_each_is_told(
    deployment: Deployment, broker: ScriptedBroker
) -> None:
    connector = by_hand(deployment)
    stream = connector.create_stream_of_partitions({FIRST: 22, SECOND: EARLIEST})
    assert set(drain(stream, 8)) == {*numbered(2, 5), *numbered(10, 15)}
    assert connector.owned() == [FIRST, SECOND]
    assert connector.is_settled
    assert connector.lag() == {FIRST: 0, SECOND: 0}
    assert connector.seek(SECOND, 12 * 4)
    assert drain(stream, 1) == [b"14"]


def test_latest_is_what_comes_from_now_on(deployment: Deployment, broker: ScriptedBroker) -> None:
    stream = by_hand(deployment).create_stream_of_partitions({FIRST: LATEST})
    assert drain(stream, 0) == []
    broker.append("t", 0, [b"new"])
    assert drain(stream, 1) == [b"new"]


def test_nobody_else_is_disturbed(deployment: Deployment, broker: ScriptedBroker) -> None:
    member = deployment.connector()
    one_stream(member)
    by_hand(deployment).create_stream_of_partitions({FIRST: EARLIEST})
    ids = deployment.admin.children(paths.consumer_ids_path("g"))
    assert ids == [member.consumer_id]
    assert len(member.owned()) == 3


def test_commits_are_kept_and_gone_on_from(deployment: Deployment, broker: ScriptedBroker) -> None:
    connector = by_hand(deployment)
    stream = connector.create_stream_of_partitions({FIRST: None})
    assert [next(stream).payload for _ in range(2)] == numbered(0, 2)
    assert connector.commit_offsets() == []
    connector.shutdown()
    assert deployment.stored("t", 0, 0) == b"22"
    again = by_hand(deployment)
    assert drain(again.create_stream_of_partitions({FIRST: None}), 3) == numbered(2, 5)
    again.shutdown()
    assert deployment.stored("t", 0, 0) == b"22"  # without auto-commit


def test_auto_commit_at_the_end(deployment: Deployment, broker: ScriptedBroker) -> None:
    with deployment.connector() as connector:
        assert drain(connector.create_stream_of_partitions({FIRST: EARLIEST}), 5)
    assert deployment.stored("t", 0, 0) == b"55"


def test_a_member_of_the_group_is_never_overruled(
    deployment: Deployment, broker: ScriptedBroker
) -> None:
    one_stream(deployment.connector(autocommit_enable=False))
    connector = by_hand(deployment)
    next(connector.create_stream_of_partitions({FIRST: EARLIEST}))
    assert connector.commit_offsets() == [FIRST]
    assert deployment.stored("t", 0, 0) is None
    assert connector._rebalancer._events.empty(), "no thread reads it: it must not pile up"


def test_a_stored_offset_that_is_gone_is_reset(
    deployment: Deployment, broker: ScriptedBroker
) -> None:
    deployment.admin.put(paths.offset_path("g", "t", BrokerPartition(0, 0)), b"11")
    broker.retire("t", 0, 33)
    connector = by_hand(deployment)
    assert drain(connector.create_stream_of_partitions({FIRST: None}), 2) == numbered(3, 5)
    assert connector.stats.offset_resets == 1


def test_what_cannot_be_chosen(deployment: Deployment, broker: ScriptedBroker) -> None:
    connector = by_hand(deployment)
    with pytest.raises(BrokerUnavailable, match="broker 7 is not registered"):
        connector.create_stream_of_partitions({TopicPartition("t", 7, 0): EARLIEST})
    with pytest.raises(ValueError, match="is not an offset"):
        connector.create_stream_of_partitions({FIRST: -5})
    with pytest.raises(IllegalTopicName):
        connector.create_stream_of_partitions({TopicPartition("a/b", 0, 0): 0})
    connector.create_stream_of_partitions({FIRST: 0})
    with pytest.raises(ConsumerStateError):
        connector.create_message_streams({"t": 1})
    with pytest.raises(ConsumerStateError):
        connector.create_stream_of_partitions({FIRST: 0})


def test_a_choice_that_failed_leaves_the_connector_as_it_was(
    deployment: Deployment, broker: ScriptedBroker
) -> None:
    connector = by_hand(deployment)
    with pytest.raises(BrokerUnavailable):
        connector.create_stream_of_partitions({TopicPartition("t", 7, 0): EARLIEST})
    drain(one_stream(connector), 15)
    assert connector.commit_offsets() == []
    assert deployment.stored("t", 0, 0) == b"55"
