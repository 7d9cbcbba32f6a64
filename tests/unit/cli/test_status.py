"""`kafka2011 status`: what it makes of the process registry and of the groups."""

import pytest

from kafka2011.cli.status import as_document, lag_bytes, unowned
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.tools.cluster_state import GroupPartition, GroupState
from kafka2011.coordination.processes import ProcessRecord

Partition = tuple[str, int | None, int | None]  # owner, offset, end


def group(*partitions: Partition) -> GroupState:
    found = [
        GroupPartition(TopicPartition("page-view", 1, number), owner, offset, end)
        for number, (owner, offset, end) in enumerate(partitions)
    ]
    return GroupState("online", {"online_a": "{}"}, found)


@pytest.mark.parametrize(
    ("partitions", "lag"),
    [
        ([("a", 10, 30), ("a", 5, 5)], 20),
        ([], 0),
        ([("a", 10, 30), ("a", None, 5)], None),
        ([("a", 10, None)], None),
    ],
)
def test_the_lag_is_the_sum_over_partitions_if_each_is_known(
    partitions: list[Partition], lag: int | None
) -> None:
    assert lag_bytes(group(*partitions)) == lag


def test_partitions_without_owner_are_counted() -> None:
    assert unowned(group(("a", 0, 0), ("", 0, 0), ("", 0, 0))) == 2


def test_the_document_says_which_processes_are_alive() -> None:
    broker = ProcessRecord("live", "broker-1", "broker")
    gone = ProcessRecord("live", "mirror-1", "mirror")
    alive = ProcessRecord("live", "broker-1", "broker", "broker-1:9101", "broker-1:8080", 7)
    groups = [("zk:2181", group(("a", 1, 2)))]
    processes = [
        ("live", "broker-1", "broker", True, "broker-1:9101", "broker-1:8080"),
        ("live", "mirror-1", "mirror", False, None, None),
    ]
    validated = {("zk:2181", "online"): {"state": "complete"}}
    assert as_document([broker, gone], {("live", "broker-1"): alive}, groups, validated) == {
        "processes": [
            dict(
                zip(("datacenter", "name", "kind", "alive", "address", "metrics"), row, strict=True)
            )
            for row in processes
        ],
        "groups": [
            {
                "zookeeper": "zk:2181",
                "group": "online",
                "members": 1,
                "partitions": 1,
                "unowned": 0,
                "lag_bytes": 1,
                "validated": {"state": "complete"},
            }
        ],
    }
