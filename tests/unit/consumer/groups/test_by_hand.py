"""Partitions chosen by hand: no group is joined, the positions are still kept."""

from collections.abc import Callable, Mapping

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import BrokerUnavailable, ConsumerStateError
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.simple import EARLIEST, LATEST
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import paths
from kafka2011.protocol.errors import IllegalTopicName
from tests.support.memory_deployment import Deployment, drain, numbered, one_stream
from tests.support.scripted_server import ScriptedBroker

FIRST, SECOND, THIRD = (TopicPartition("t", 0, number) for number in range(3))
Choose = Callable[..., tuple[ConsumerConnector, MessageStream]]


@pytest.fixture
def broker(deployment: Deployment) -> ScriptedBroker:
    """0 to 4, 10 to 14 and 20 to 24 in the three partitions of t."""
    made = deployment.broker_of_t(partitions=3)
    for partition in range(3):
        made.append("t", partition, numbered(10 * partition, 10 * partition + 5))
    return made


@pytest.fixture
def choose(deployment: Deployment, broker: ScriptedBroker) -> Choose:
    """Makes a consumer of the partitions and offsets it is given; without auto-commit."""

    def chosen(
        offsets: Mapping[TopicPartition, int | None], **settings: object
    ) -> tuple[ConsumerConnector, MessageStream]:
        connector = deployment.connector(**{"autocommit_enable": False, **settings})
        return connector, connector.create_stream_of_partitions(offsets)

    return chosen


def test_only_the_chosen_partitions_each_from_its_offset(
    choose: Choose, broker: ScriptedBroker
) -> None:
    connector, stream = choose({FIRST: 22, SECOND: EARLIEST, THIRD: LATEST})
    assert set(drain(stream, 8)) == {*numbered(2, 5), *numbered(10, 15)}
    assert connector.owned() == [FIRST, SECOND, THIRD]
    assert connector.is_settled
    assert connector.lag() == {FIRST: 0, SECOND: 0, THIRD: 0}
    assert connector.seek(SECOND, 12 * 4)
    assert drain(stream, 1) == [b"14"]
    broker.append("t", 2, [b"new"])
    assert drain(stream, 1) == [b"new"]


def test_commits_are_kept_and_gone_on_from(deployment: Deployment, choose: Choose) -> None:
    connector, stream = choose({FIRST: None})
    assert [next(stream).payload for _ in range(2)] == numbered(0, 2)
    assert connector.commit_offsets() == []
    connector.shutdown()
    assert deployment.stored("t", 0, 0) == b"22"
    for autocommit, stored in ((False, b"22"), (True, b"55")):
        connector, stream = choose({FIRST: None}, autocommit_enable=autocommit)
        assert drain(stream, 3) == numbered(2, 5)
        connector.shutdown()
        assert deployment.stored("t", 0, 0) == stored


def test_a_member_of_the_group_is_neither_disturbed_nor_overruled(
    deployment: Deployment, choose: Choose
) -> None:
    member = deployment.connector(autocommit_enable=False)
    one_stream(member)
    connector, stream = choose({FIRST: EARLIEST})
    next(stream)
    assert connector.commit_offsets() == [FIRST]
    assert deployment.stored("t", 0, 0) is None
    assert connector._rebalancer._events.empty(), "no thread reads it: it must not pile up"
    assert deployment.admin.children(paths.consumer_ids_path("g")) == [member.consumer_id]
    assert len(member.owned()) == 3


@pytest.mark.usefixtures("broker")
def test_what_cannot_be_chosen_leaves_the_connector_as_it_was(deployment: Deployment) -> None:
    connector = deployment.connector(autocommit_enable=False)
    with pytest.raises(BrokerUnavailable, match="broker 7 is not registered"):
        connector.create_stream_of_partitions({TopicPartition("t", 7, 0): EARLIEST})
    with pytest.raises(ValueError, match="is not an offset"):
        connector.create_stream_of_partitions({FIRST: -5})
    with pytest.raises(IllegalTopicName):
        connector.create_stream_of_partitions({TopicPartition("a/b", 0, 0): 0})
    drain(one_stream(connector), 15)
    assert connector.commit_offsets() == []
    assert deployment.stored("t", 0, 0) == b"55"


def test_partitions_are_chosen_once(choose: Choose) -> None:
    connector, _ = choose({FIRST: 0})
    with pytest.raises(ConsumerStateError):
        connector.create_message_streams({"t": 1})
    with pytest.raises(ConsumerStateError):
        connector.create_stream_of_partitions({FIRST: 0})
