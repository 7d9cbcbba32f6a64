"""verify-rebalance: what counts as a rebalance that came to its end."""

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.assignment import assignment_of
from kafka2011.consumer.groups.topic_filters import whitelist
from kafka2011.consumer.tools.rebalance_check import GroupPicture, problems, read_registry
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.support.memory_deployment import Deployment, one_stream
from tests.support.waiting import wait_until

PARTITIONS = {
    "t": tuple(BrokerPartition(broker, number) for broker in (0, 10) for number in (0, 1))
}
MEMBERS = {"g_a": {"t": 1}, "g_b": {"t": 2}}


def settled() -> dict[TopicPartition, str]:
    owners: dict[TopicPartition, str] = {}
    for member in MEMBERS:
        owners |= assignment_of(member, MEMBERS, PARTITIONS)
    return owners


def texts(owners: dict[TopicPartition, str]) -> list[str]:
    found = problems(GroupPicture(MEMBERS, PARTITIONS, owners))
    return [f"{one.name}: {one.text}" for one in found]


def test_a_settled_group_has_no_problem() -> None:
    assert len(settled()) == 4
    assert texts(settled()) == []


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        ("", "t/0-0: it has no owner"),
        ("g_dead-0", "t/0-0: its owner g_dead-0 is not a registered thread"),
        ("g_b-7", "t/0-0: its owner g_b-7 is not a registered thread"),
        ("g_b-0", "t/0-0: g_b-0 owns it, but g_a-0 should"),
    ],
)
def test_each_way_to_be_wrong_has_its_words(owner: str, text: str) -> None:
    owners = settled()
    owners.pop(TopicPartition("t", 0, 0))
    if owner:
        owners[TopicPartition("t", 0, 0)] = owner
    assert texts(owners) == [text]


def test_an_owner_of_what_is_on_no_live_broker_is_told() -> None:
    owners = {**settled(), TopicPartition("t", 9, 0): "g_a-0"}
    assert texts(owners) == ["t/9-0: g_a-0 owns it, but it is on no live broker"]


def test_a_real_group_is_looked_at_wildcards_and_garbage_included(deployment: Deployment) -> None:
    deployment.broker(0)
    deployment.topic("t", {0: 2})
    deployment.topic("u", {0: 1})
    first, second = deployment.connector(), deployment.connector()
    one_stream(first)
    second.create_message_streams_by_filter(whitelist("t|u"))
    deployment.admin.put(paths.consumer_id_path("g", "g_odd"), b"nonsense")
    deployment.admin.put(paths.consumer_id_path("g", "g_worse"), b"*1*((")
    deployment.admin.put("/consumers/g/owners/t/odd", b"x")
    wait_until(
        lambda: problems(read_registry(deployment.admin, "g")) == [],
        lambda: f"settled: {read_registry(deployment.admin, 'g')}",
    )
    picture = read_registry(deployment.admin, "g")
    assert picture.unreadable == ("g_odd", "g_worse")
    assert sorted(picture.partitions) == ["t", "u"]
    assert picture.members[second.consumer_id] == {"t": 1, "u": 1}
