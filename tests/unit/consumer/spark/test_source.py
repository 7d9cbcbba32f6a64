"""The data source without Spark's JVM: streams' offsets, pickling, names."""

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import pyspark_kafka2011
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark.options import SourceOptions, parse_options
from kafka2011.consumer.spark.planning import DataLoss, SourcePlanner
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.consumer.spark.source import (
    SPARK_SCHEMA,
    Kafka2011Reader,
    Kafka2011StreamReader,
)
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from tests.unit.consumer.spark.conftest import Logs

ZERO = TopicPartition("t", 11, 0)
ONE = TopicPartition("t", 11, 1)


def options(**changed: str) -> SourceOptions:
    return parse_options({"brokers": "11:127.0.0.1:9092", "topic": "t", **changed})


def test_an_empty_topic_has_no_rows(logs: Logs) -> None:
    reader = Kafka2011Reader(options())
    assert reader.partitions() == []
    # Spark reads an empty plan as one partition without a range.
    assert list(reader.read(InputPartition(None))) == []  # type: ignore[arg-type]


def stream(**changed: str) -> Kafka2011StreamReader:
    return Kafka2011StreamReader(options(**changed))


def test_a_stream_advances_to_the_ends(logs: Logs) -> None:
    reader = stream(partitions="2")
    start = reader.initialOffset()
    assert start == {"t/11-0": 0, "t/11-1": 0}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    end = logs.append(ZERO, [b"x"] * 10)
    latest = reader.latestOffset(start, ReadAllAvailable())
    assert latest == {"t/11-0": end, "t/11-1": 0}
    (split,) = reader.partitions(start, latest)
    assert split.value.offsets == OffsetRange("t", 11, 0, 0, end)
    assert reader.partitions(latest, latest) == []
    assert reader.reportLatestOffset() == latest


def test_a_stream_can_start_at_the_end(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    assert stream(startingOffsets="latest").initialOffset() == {"t/11-0": end}


def test_a_partition_that_appears_is_read_from_its_start(logs: Logs) -> None:
    first_end = logs.append(ZERO, [b"x"])
    second_end = logs.append(ONE, [b"x"] * 3)
    reader = stream(partitions="2")
    end = reader.latestOffset({"t/11-0": first_end}, ReadAllAvailable())
    assert end == {"t/11-0": first_end, "t/11-1": second_end}
    (split,) = reader.partitions({"t/11-0": first_end}, end)
    assert split.value.offsets == OffsetRange("t", 11, 1, 0, second_end)


def test_a_partition_that_is_away_stays_where_it_is(logs: Logs) -> None:
    start = {"t/11-0": 0, "t/12-0": 500}
    end = logs.append(ZERO, [b"x"])
    assert stream().latestOffset(start, ReadAllAvailable()) == {"t/11-0": end, "t/12-0": 500}


def test_a_log_that_was_replaced_is_data_loss(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 3)
    start = {"t/11-0": end + 500}
    with pytest.raises(DataLoss, match=f"read up to {end + 500}, but its log ends at {end}"):
        stream().latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss):
        stream().partitions(start, {"t/11-0": end})


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxBytes(50), ReadMaxRows(2)])
def test_a_log_that_was_replaced_is_read_from_its_start_if_loss_is_accepted(
    logs: Logs, limit: Any
) -> None:
    end = logs.append(ZERO, [b"x"] * 30)
    logs.first[ZERO] = 11
    reader = stream(failOnDataLoss="false")
    offsets = {"t/11-0": end + 500}
    read: list[tuple[int, int]] = []
    while offsets["t/11-0"] != end:
        end_of_batch = reader.latestOffset(offsets, limit)
        (split,) = reader.partitions(offsets, end_of_batch)
        # Spark may read the batch again after a failure, when the log has grown.
        (again,) = stream(failOnDataLoss="false").partitions(offsets, end_of_batch)
        assert again.value == split.value
        read.append((split.value.offsets.start, split.value.offsets.end))
        offsets = end_of_batch
    assert (read[0][0], read[-1][1]) == (11, end)
    assert all(first[1] == second[0] for first, second in pairwise(read))
    assert reader.latestOffset(offsets, ReadAllAvailable()) == offsets


def test_available_now_stops_at_the_ends_at_its_start(logs: Logs) -> None:
    first_end = logs.append(ZERO, [b"x"] * 5)
    reader = stream(partitions="2")
    reader.prepareForTriggerAvailableNow()
    logs.append(ZERO, [b"later"] * 5)
    logs.append(ONE, [b"later"] * 5)
    end = reader.latestOffset({"t/11-0": 0}, ReadAllAvailable())
    assert end["t/11-0"] == first_end
    assert end.get("t/11-1", 0) == 0
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_limit_in_rows_holds_and_all_rows_are_read(logs: Logs) -> None:
    entry = len(message_set.encode([b"x"]))
    logs.append(ZERO, [b"x"] * 25)
    logs.append(ONE, [b"x"] * 7)
    reader = stream(partitions="2", maxRowsPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    offsets = reader.initialOffset()
    rows = []
    while True:
        end = reader.latestOffset(offsets, ReadMaxRows(10))
        if end == offsets:
            break
        rows.append((sum(end.values()) - sum(offsets.values())) // entry)
        offsets = end
    assert max(rows) <= 10
    assert sum(rows) == 32


def test_a_compressed_set_counts_whole(logs: Logs) -> None:
    first = logs.append(ZERO, [b"x"] * 6, Codec.GZIP)
    logs.append(ZERO, [b"x"] * 6, Codec.GZIP)
    reader = stream()
    assert reader.latestOffset({"t/11-0": 0}, ReadMaxRows(8)) == {"t/11-0": first}
    assert reader.latestOffset({"t/11-0": 0}, ReadMaxRows(2)) == {"t/11-0": first}


def test_a_limit_in_bytes_ends_at_an_entry(logs: Logs) -> None:
    entry = len(message_set.encode([b"x"]))
    total = logs.append(ZERO, [b"x"] * 100)
    reader = stream(maxBytesPerTrigger="250")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(250)
    offsets = {"t/11-0": 0}
    steps = 0
    while offsets["t/11-0"] < total:
        end = reader.latestOffset(offsets, ReadMaxBytes(250))
        read_bytes = end["t/11-0"] - offsets["t/11-0"]
        assert 0 < read_bytes <= 250
        assert end["t/11-0"] % entry == 0
        offsets = end
        steps += 1
    assert steps >= total // 250


def test_spark_may_lift_the_limit(logs: Logs) -> None:
    total = logs.append(ZERO, [b"x"] * 100)
    reader = stream(maxRowsPerTrigger="1")
    assert reader.latestOffset({"t/11-0": 0}, ReadAllAvailable()) == {"t/11-0": total}


def test_readers_go_to_executors_without_their_connections(logs: Logs) -> None:
    reader = stream()
    reader.initialOffset()
    assert isinstance(reader._planner, SourcePlanner)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._planner is None
    assert copy._options == reader._options
    pickle.loads(pickle.dumps(Kafka2011Reader(options())))
    reader.stop()
    assert reader._planner is None


def test_spark_finds_the_source_by_its_name() -> None:
    assert pyspark_kafka2011.DefaultSource.name() == "kafka2011"
    assert Path(pyspark_kafka2011.__file__).name == "pyspark_kafka2011.py"
    assert [part.split()[0] for part in SPARK_SCHEMA.split(", ")] == MESSAGE_SCHEMA.names
