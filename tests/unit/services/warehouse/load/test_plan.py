"""The plan of a load: starts, ends, gaps, absent brokers, and the ranges of each task."""

import pytest

from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.services.warehouse.load import plan

SOURCE = BrokerPartition(11, 0)
ADDRESS = BrokerAddress("127.0.0.1", 9092)
AWAY = plan.BROKER_AWAY, "its broker 11 is away; loaded up to 70"


@pytest.mark.parametrize(
    ("committed", "earliest", "latest", "read"),
    [
        (None, 0, 500, (0, 500)),
        (None, 100, 500, (100, 500)),
        (200, 0, 500, (200, 500)),
        (200, 200, 500, (200, 500)),
        (None, 0, 5000, (0, 1000)),  # up to the limit of one load
        (4500, 0, 5000, (4500, 5000)),
        (500, 0, 500, None),
        (None, 0, 0, None),
    ],
)
def test_a_partition_is_read_from_the_commit_or_the_earliest_offset(
    committed: int | None, earliest: int, latest: int, read: tuple[int, int] | None
) -> None:
    state = plan.PartitionState("t", SOURCE, committed, ADDRESS, earliest, latest)
    planned = read and plan.PlannedRange("t", SOURCE, ADDRESS, committed, *read, latest)
    assert plan.plan_partition(state, 1000) == (planned, None)


@pytest.mark.parametrize(
    ("state", "read", "kind", "detail"),
    [
        ((70, None, 0, 90), None, *AWAY),
        ((70, ADDRESS, None, None), None, *AWAY),
        ((10, ADDRESS, 30, 50), (30, 50), plan.GAP, "offsets 10 to 30 were retired"),
        ((90, ADDRESS, 0, 50), None, plan.BEYOND_END, "loaded up to 90, but the log ends at 50"),
    ],
    ids=["its broker is away", "its broker gives no answer", "a gap", "a replaced log"],
)
def test_a_problem_is_named(
    state: tuple[int, BrokerAddress | None, int | None, int | None],
    read: tuple[int, int] | None,
    kind: str,
    detail: str,
) -> None:
    planned, problem = plan.plan_partition(plan.PartitionState("t", SOURCE, *state), 1000)
    assert (planned and (planned.start, planned.end)) == read
    assert problem == plan.Problem("t", SOURCE, kind, problem.detail)
    assert problem.text.startswith(f"t 11-0: {detail}")


def planned_range(topic: str, broker_id: int, size_bytes: int) -> plan.PlannedRange:
    source = BrokerPartition(broker_id, 0)
    return plan.PlannedRange(topic, source, ADDRESS, None, 0, size_bytes, size_bytes)


def test_little_data_is_one_task_and_none_is_no_task() -> None:
    ranges = [planned_range(topic, broker, 1000) for topic in "abc" for broker in (1, 2)]
    assert plan.pack(ranges, 4) == [ranges]
    assert plan.pack([], 4) == []


def test_much_data_is_spread_and_small_topics_stay_whole() -> None:
    big = [planned_range("big", broker, plan.TASK_BYTES_MIN) for broker in (1, 2, 3, 4)]
    small = [planned_range("small", broker, 10) for broker in (1, 2)]
    first, second = plan.pack([*big, *small], 2)
    assert sorted(first + second, key=str) == sorted(big + small, key=str)
    assert [sum(part in big for part in task) for task in (first, second)] == [2, 2]
    assert sum(any(part in small for part in task) for task in (first, second)) == 1
