"""`kafka2011 status`: what it makes of the process registry and of the groups."""

from kafka2011.cli.status import as_document, lag_bytes, unowned
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.tools.cluster_state import GroupPartition, GroupState
from kafka2011.coordination.processes import ProcessRecord

BROKER = ProcessRecord("live", "broker-1", "broker")
GONE = ProcessRecord("live", "mirror-1", "mirror")
ALIVE = {
    ("live", "broker-1"): ProcessRecord(
        "live", "broker-1", "broker", "broker-1:9101", "broker-1:8080", 7
    )
}


def group(*partitions: tuple[str, int | None, int | None]) -> GroupState:
    return GroupState(
        "online",
        {"online_a": "{}"},
        [
            GroupPartition(TopicPartition("page-view", 1, number), owner, offset, end)
            for number, (owner, offset, end) in enumerate(partitions)
        ],
    )


def test_the_lag_is_the_sum_over_partitions() -> None:
    assert lag_bytes(group(("a", 10, 30), ("a", 5, 5))) == 20
    assert lag_bytes(group()) == 0


def test_a_lag_that_is_not_known_of_one_partition_is_not_known() -> None:
    assert lag_bytes(group(("a", 10, 30), ("a", None, 5))) is None
    assert lag_bytes(group(("a", 10, None))) is None


def test_partitions_without_owner_are_counted() -> None:
    assert unowned(group(("a", 0, 0), ("", 0, 0), ("", 0, 0))) == 2


def test_the_document_says_who_is_alive() -> None:
    document = as_document([BROKER, GONE], ALIVE, [("zk:2181", group(("a", 1, 2)))])
    assert document == {
        "processes": [
            {
                "datacenter": "live",
                "name": "broker-1",
                "kind": "broker",
                "alive": True,
                "address": "broker-1:9101",
                "metrics": "broker-1:8080",
            },
            {
                "datacenter": "live",
                "name": "mirror-1",
                "kind": "mirror",
                "alive": False,
                "address": None,
                "metrics": None,
            },
        ],
        "groups": [
            {
                "zookeeper": "zk:2181",
                "group": "online",
                "members": 1,
                "partitions": 1,
                "unowned": 0,
                "lag_bytes": 1,
            }
        ],
    }
