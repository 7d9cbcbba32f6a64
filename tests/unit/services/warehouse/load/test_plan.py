"""The plan of a load: starts, ends, gaps, absent brokers, and the ranges of each task."""

import pytest

from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.services.warehouse.load.plan import (
    BEYOND_END,
    BROKER_AWAY,
    GAP,
    TASK_BYTES_MIN,
    PartitionState,
    PlannedRange,
    pack,
    plan_partition,
)

SOURCE = BrokerPartition(11, 0)
ADDRESS = BrokerAddress("127.0.0.1", 9092)


@pytest.mark.parametrize(
    ("committed", "earliest", "latest", "read", "kind"),
    [
        (None, 0, 500, (0, 500), None),
        (None, 100, 500, (100, 500), None),
        (200, 0, 500, (200, 500), None),
        (200, 200, 500, (200, 500), None),
        (None, 0, 5000, (0, 1000), None),  # up to the limit of one load
        (4500, 0, 5000, (4500, 5000), None),
        (500, 0, 500, None, None),
        (None, 0, 0, None, None),
        (70, None, None, None, BROKER_AWAY),  # no answer
        (100, 300, 500, (300, 500), GAP),
        (900, 0, 500, None, BEYOND_END),
    ],
)
def test_a_partition_is_read_from_the_commit_or_the_earliest_offset(
    committed: int | None,
    earliest: int | None,
    latest: int | None,
    read: tuple[int, int] | None,
    kind: str | None,
) -> None:
    state = PartitionState("t", SOURCE, committed, ADDRESS, earliest, latest)
    planned, problem = plan_partition(state, 1000)
    assert (problem and problem.kind) == kind
    assert (planned and (planned.start, planned.end)) == read
    if planned is not None:
        assert (planned.committed, planned.latest) == (committed, latest)
    if problem is not None and kind == GAP:
        assert "100 to 300" in problem.detail


def test_a_broker_that_is_away_is_named_with_the_offset_reached() -> None:
    planned, problem = plan_partition(PartitionState("t", SOURCE, 70), 1000)
    assert planned is None
    assert problem is not None
    assert problem.kind == BROKER_AWAY
    assert problem.text == "t 11-0: its broker 11 is away; loaded up to 70"


def planned_range(topic: str, broker_id: int, size_bytes: int) -> PlannedRange:
    source = BrokerPartition(broker_id, 0)
    return PlannedRange(topic, source, ADDRESS, None, 0, size_bytes, size_bytes)


def test_little_data_is_one_task_and_none_is_no_task() -> None:
    ranges = [planned_range(topic, broker, 1000) for topic in "abc" for broker in (1, 2)]
    (task,) = pack(ranges, 4)
    assert sorted(task, key=str) == sorted(ranges, key=str)
    assert pack([], 4) == []


def test_much_data_is_spread_and_small_topics_stay_whole() -> None:
    ranges = [planned_range("big", broker, TASK_BYTES_MIN) for broker in (1, 2, 3, 4)]
    ranges += [planned_range("small", broker, 10) for broker in (1, 2)]
    tasks = pack(ranges, 2)
    assert len(tasks) == 2
    assert sorted((r for task in tasks for r in task), key=str) == sorted(ranges, key=str)
    assert [len([r for r in task if r.topic == "big"]) for task in tasks] == [2, 2]
    assert sum(any(r.topic == "small" for r in task) for task in tasks) == 1
