"""verify-rebalance: what counts as a rebalance that came to its end."""

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.topic_filters import whitelist
from kafka2011.consumer.tools.rebalance_check import GroupPicture, problems, read_registry
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.support.memory_deployment import Deployment, one_stream
from tests.support.waiting import wait_until

PARTITIONS = {"t": tuple(BrokerPartition(*name) for name in ((0, 0), (0, 1), (10, 0), (10, 1)))}
MEMBERS = {"g_a": {"t": 1}, "g_b": {"t": 2}}
SETTLED = {
    TopicPartition("t", 0, 0): "g_a-0",
    TopicPartition("t", 0, 1): "g_a-0",
    TopicPartition("t", 10, 0): "g_b-0",
    TopicPartition("t", 10, 1): "g_b-1",
}


@pytest.mark.parametrize(
    ("partition", "owner", "texts"),
    [
        ((0, 0), "g_a-0", []),
        ((0, 0), "", ["t/0-0: it has no owner"]),
        ((0, 0), "g_dead-0", ["t/0-0: its owner g_dead-0 is not a registered thread"]),
        ((0, 0), "g_b-7", ["t/0-0: its owner g_b-7 is not a registered thread"]),
        ((0, 0), "g_b-0", ["t/0-0: g_b-0 owns it, but g_a-0 should"]),
        ((9, 0), "g_a-0", ["t/9-0: g_a-0 owns it, but it is on no live broker"]),
    ],
)
def test_each_way_to_be_wrong_has_its_words(
    partition: tuple[int, int], owner: str, texts: list[str]
) -> None:
    owners = {**SETTLED, TopicPartition("t", *partition): owner}
    owners = {name: found for name, found in owners.items() if found}
    found = problems(GroupPicture(MEMBERS, PARTITIONS, owners))
    assert [f"{one.name}: {one.text}" for one in found] == texts


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
