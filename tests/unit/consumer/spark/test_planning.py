"""A batch query's ranges: offsets, times, segments, and what was retired."""

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark.options import parse_options
from kafka2011.consumer.spark.planning import DataLoss, PartitionAway, PlacedRange, SourcePlanner
from tests.unit.consumer.spark.conftest import Logs

ADDRESS = ("127.0.0.1", 9092)
ZERO = TopicPartition("t", 11, 0)
ONE = TopicPartition("t", 11, 1)


def planned(**options: str) -> list[PlacedRange]:
    return SourcePlanner(parse_options({"brokers": "11:127.0.0.1:9092", **options})).batch_ranges()


def ranges(**options: str) -> list[OffsetRange]:
    return [placed.offsets for placed in planned(topic="t", **options)]


def test_a_batch_is_everything_by_default(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    assert ranges() == [OffsetRange("t", 11, 0, 0, end)]


def test_an_empty_topic_is_no_partition(logs: Logs) -> None:
    assert ranges() == []


def test_offsets_are_taken_per_partition(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    second_end = logs.append(ONE, [b"x"] * 20)
    found = ranges(
        partitions="2",
        startingOffsets='{"t": {"11-0": 11, "11-1": "latest"}}',
        endingOffsets='{"t": {"11-0": 22}}',
    )
    assert found == [OffsetRange("t", 11, 0, 11, 22)]
    assert ranges(partitions="2", endingOffsets='{"t": {"11-1": 22}}') == [
        OffsetRange("t", 11, 0, 0, end),
        OffsetRange("t", 11, 1, 0, 22),
    ]
    assert second_end > end


def test_a_time_starts_at_a_segment(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    logs.by_time[5000] = 44
    assert ranges(startingTimestamp="5000") == [OffsetRange("t", 11, 0, 44, end)]
    assert ranges(startingTimestamp="4000") == [OffsetRange("t", 11, 0, 0, end)]


def test_a_time_ends_behind_the_segment_that_was_open_then(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    assert end == 110
    logs.segments[ZERO] = [110, 88, 66, 44, 22, 0]
    logs.by_time[5000] = 22  # the last one that was closed; the next was open up to 66
    assert ranges(endingTimestamp="5000") == [OffsetRange("t", 11, 0, 0, 66)]
    assert ranges(endingTimestamp="4000") == [OffsetRange("t", 11, 0, 0, 22)]
    logs.by_time[6000] = 88
    assert ranges(endingTimestamp="6000") == [OffsetRange("t", 11, 0, 0, end)]
    logs.by_time[7000] = 66
    assert ranges(startingTimestamp="5000", endingTimestamp="7000") == [
        OffsetRange("t", 11, 0, 22, end)
    ]


def test_retired_offsets_are_an_error_unless_loss_is_accepted(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    logs.first[ZERO] = 33
    wanted = '{"t": {"11-0": 11}}'
    with pytest.raises(DataLoss, match="requested 11"):
        ranges(startingOffsets=wanted)
    assert ranges(startingOffsets=wanted, failOnDataLoss="false") == [
        OffsetRange("t", 11, 0, 33, end)
    ]
    with pytest.raises(DataLoss):
        ranges(endingOffsets='{"t": {"11-0": 1000}}')


def test_ranges_are_cut_at_segment_starts(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 100)
    logs.segments[ZERO] = [end, 880, 660, 440, 220, 0]
    found = ranges(**{"split.bytes": "300"})
    bounds = [offset for part in found for offset in (part.start, part.end)]
    assert bounds == [0, 220, 220, 440, 440, 660, 660, 880, 880, end]


def test_exact_ranges_are_taken_as_they_are(logs: Logs) -> None:
    assert planned(ranges='[["t", 11, 2, 11, 33]]') == [
        PlacedRange(ADDRESS, OffsetRange("t", 11, 2, 11, 33))
    ]


def test_a_range_of_a_broker_that_is_away_is_an_error(logs: Logs) -> None:
    with pytest.raises(PartitionAway, match="t/12-0"):
        planned(ranges='[["t", 12, 0, 11, 33]]')
