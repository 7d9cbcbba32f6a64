"""A batch query's ranges: offsets, times, segments, and what was retired."""

from contextlib import closing

import pytest

from kafka2011.consumer.spark.planning import DataLoss, PartitionAway, SourcePlanner
from tests.unit.consumer.spark.conftest import SegmentedBroker

START_AT_11 = {"startingOffsets": '{"t": {"11-0": 11}}'}


@pytest.fixture
def broker(broker: SegmentedBroker) -> SegmentedBroker:
    """Ten messages in partition 0, two to a segment, and twenty in partition 1; 11 bytes each."""
    broker.append("t", 0, [b"x"] * 10)
    broker.append("t", 1, [b"x"] * 20)
    broker.segments[0] = [110, 88, 66, 44, 22, 0]
    broker.by_time = {5000: 22, 6000: 88, 7000: 66}  # the last one that was closed then
    return broker


def ranges(broker: SegmentedBroker, options: dict[str, str]) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each range."""
    with closing(SourcePlanner(broker.options(**options))) as planner:
        planned = planner.batch_ranges()
    assert all(placed.address == broker.address for placed in planned)
    assert all(placed.offsets[:2] == ("t", 11) for placed in planned)
    return [placed.offsets[2:] for placed in planned]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [(0, 0, 110)], id="everything by default"),
        pytest.param({"topic": "empty"}, [], id="an empty topic"),
        pytest.param(
            {
                "partitions": "2",
                "startingOffsets": '{"t": {"11-0": 11, "11-1": "latest"}}',
                "endingOffsets": '{"t": {"11-0": 22}}',
            },
            [(0, 11, 22)],
            id="offsets per partition",
        ),
        pytest.param(
            {"partitions": "2", "endingOffsets": '{"t": {"11-1": 22}}'},
            [(0, 0, 110), (1, 0, 22)],
            id="the offset of one partition",
        ),
        pytest.param({"startingTimestamp": "5000"}, [(0, 22, 110)], id="since a segment's time"),
        pytest.param({"startingTimestamp": "4000"}, [(0, 0, 110)], id="since before all segments"),
        # The segment after the last that was closed then was open up to the next one's start.
        pytest.param({"endingTimestamp": "5000"}, [(0, 0, 66)], id="until a segment was open"),
        pytest.param({"endingTimestamp": "4000"}, [(0, 0, 22)], id="until the first one was open"),
        pytest.param({"endingTimestamp": "6000"}, [(0, 0, 110)], id="until the last one was open"),
        pytest.param(
            {"startingTimestamp": "5000", "endingTimestamp": "7000"},
            [(0, 22, 110)],
            id="between two times",
        ),
        pytest.param(
            {"split.bytes": "30"},
            [(0, start, start + 22) for start in range(0, 110, 22)],
            id="cut at segment starts",
        ),
        pytest.param({"ranges": '[["t", 11, 2, 11, 33]]'}, [(2, 11, 33)], id="exact ranges"),
    ],
)
def test_the_ranges_of_a_batch(
    broker: SegmentedBroker, options: dict[str, str], expected: list[tuple[int, int, int]]
) -> None:
    assert ranges(broker, options) == expected


def test_retired_offsets_are_an_error_unless_loss_is_accepted(broker: SegmentedBroker) -> None:
    broker.retire("t", 0, 33)
    with pytest.raises(DataLoss, match="requested 11"):
        ranges(broker, START_AT_11)
    assert ranges(broker, {**START_AT_11, "failOnDataLoss": "false"}) == [(0, 33, 110)]
    with pytest.raises(DataLoss):
        ranges(broker, {"endingOffsets": '{"t": {"11-0": 1000}}'})


def test_a_range_of_a_broker_that_is_away_is_an_error(broker: SegmentedBroker) -> None:
    with pytest.raises(PartitionAway, match="t/12-0"):
        ranges(broker, {"ranges": '[["t", 12, 0, 11, 33]]'})
