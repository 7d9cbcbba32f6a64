"""What a load reads: starts, ends, gaps, absences, and the sharing out."""

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


def state(
    committed: int | None, earliest: int | None, latest: int | None, *, away: bool = False
) -> PartitionState:
    return PartitionState("t", SOURCE, committed, None if away else ADDRESS, earliest, latest)


@pytest.mark.parametrize(
    ("committed", "earliest", "latest", "start", "end"),
    [
        (None, 0, 500, 0, 500),
        (None, 100, 500, 100, 500),
        (200, 0, 500, 200, 500),
        (200, 200, 500, 200, 500),
        (None, 0, 5000, 0, 1000),
        (4500, 0, 5000, 4500, 5000),
    ],
)
def test_start_is_the_commit_or_the_earliest(
    committed: int | None, earliest: int, latest: int, start: int, end: int
) -> None:
    planned, problem = plan_partition(state(committed, earliest, latest), 1000)
    assert planned is not None
    assert problem is None
    assert (planned.committed, planned.start, planned.end) == (committed, start, end)
    assert planned.latest == latest


@pytest.mark.parametrize(("committed", "latest"), [(500, 500), (None, 0)])
def test_nothing_new_is_no_range(committed: int | None, latest: int) -> None:
    assert plan_partition(state(committed, 0, latest), 1000) == (None, None)


def test_a_broker_that_is_away_is_reported() -> None:
    planned, problem = plan_partition(state(70, None, None, away=True), 1000)
    assert planned is None
    assert problem is not None
    assert problem.kind == BROKER_AWAY
    assert problem.text == "t 11-0: its broker 11 is away; loaded up to 70"


def test_a_broker_that_does_not_answer_is_away() -> None:
    _, problem = plan_partition(state(70, None, None), 1000)
    assert problem is not None
    assert problem.kind == BROKER_AWAY


def test_retired_offsets_are_a_gap_and_the_rest_is_read() -> None:
    planned, problem = plan_partition(state(100, 300, 500), 1000)
    assert planned is not None
    assert problem is not None
    assert (planned.committed, planned.start, problem.kind) == (100, 300, GAP)
    assert "100 to 300" in problem.detail


def test_a_log_that_became_shorter_is_not_loaded() -> None:
    planned, problem = plan_partition(state(900, 0, 500), 1000)
    assert planned is None
    assert problem is not None
    assert problem.kind == BEYOND_END


def planned_range(topic: str, broker_id: int, size_bytes: int) -> PlannedRange:
    return PlannedRange(
        topic, BrokerPartition(broker_id, 0), ADDRESS, None, 0, size_bytes, size_bytes
    )


def test_little_data_is_one_task() -> None:
    ranges = [planned_range(topic, broker, 1000) for topic in "abc" for broker in (1, 2)]
    (task,) = pack(ranges, 4)
    assert sorted(task, key=str) == sorted(ranges, key=str)


def test_much_data_is_spread_and_small_topics_stay_whole() -> None:
    ranges = [planned_range("big", broker, TASK_BYTES_MIN) for broker in (1, 2, 3, 4)]
    ranges += [planned_range("small", broker, 10) for broker in (1, 2)]
    tasks = pack(ranges, 2)
    assert len(tasks) == 2
    assert sorted((r for task in tasks for r in task), key=str) == sorted(ranges, key=str)
    assert [len([r for r in task if r.topic == "big"]) for task in tasks] == [2, 2]
    assert sum(any(r.topic == "small" for r in task) for task in tasks) == 1


def test_no_ranges_are_no_tasks() -> None:
    assert pack([], 4) == []
