"""The data source without Spark's JVM: streams' offsets, pickling, names."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import pyspark_kafka2011
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark.planning import DataLoss, SourcePlanner
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.consumer.spark.source import (
    FROM,
    SPARK_SCHEMA,
    Kafka2011Reader,
    Kafka2011StreamReader,
)
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import OffsetOutOfRange
from tests.unit.consumer.spark.conftest import SegmentedBroker

ENTRY = 11  # bytes of the message b"x"
ALL = ReadAllAvailable()
Offsets = dict[str, int]


def ends_of(offsets: Offsets) -> Offsets:
    """Without what a stream's first offsets also say."""
    return {name: offset for name, offset in offsets.items() if not name.endswith(FROM)}


def batch_ends(reader: Kafka2011StreamReader, start: Offsets, limit: Any) -> Iterator[Offsets]:
    """The end of each batch, until nothing is left to read."""
    while (end := reader.latestOffset(start, limit)) != start:
        yield end
        start = end


def test_an_empty_topic_has_no_rows(broker: SegmentedBroker) -> None:
    reader = Kafka2011Reader(broker.options())
    assert reader.partitions() == []
    # Spark reads an empty plan as one partition without a range.
    assert list(reader.read(InputPartition(None))) == []  # type: ignore[arg-type]


def test_a_stream_advances_to_the_ends_and_can_start_there(broker: SegmentedBroker) -> None:
    reader = broker.stream(partitions="2")
    start = reader.initialOffset()
    assert start == {"t/11-0": 0, "t/11-1": 0}
    assert ends_of(reader.latestOffset(start, ALL)) == start
    end = broker.append("t", 0, [b"x"] * 10)
    latest = reader.latestOffset(start, ALL)
    assert ends_of(latest) == {"t/11-0": end, "t/11-1": 0}
    assert reader.latestOffset(latest, ALL) == latest
    (split,) = reader.partitions(start, latest)
    assert split.value.offsets == OffsetRange("t", 11, 0, 0, end)
    assert reader.partitions(latest, latest) == []
    assert reader.reportLatestOffset() == ends_of(latest)
    last = broker.stream(partitions="2", startingOffsets="latest").initialOffset()
    assert last == ends_of(latest)


def test_a_first_batch_that_died_is_read_again_from_where_the_stream_began(
    broker: SegmentedBroker,
) -> None:
    began = broker.append("t", 0, [b"before"] * 3)
    reader = broker.stream(startingOffsets="latest")
    start = reader.initialOffset()
    end_of_batch = broker.append("t", 0, [b"x"] * 2)
    end = reader.latestOffset(start, ALL)
    assert ends_of(end) == {"t/11-0": end_of_batch}
    broker.append("t", 0, [b"later"] * 4)
    # Spark has the batch's end in its checkpoint, and asks anew where the stream began.
    again = broker.stream(startingOffsets="latest")
    for each in (reader, again):
        (split,) = each.partitions(each.initialOffset(), end)
        assert split.value.offsets == OffsetRange("t", 11, 0, began, end_of_batch)
    newest = again.latestOffset(end, ALL)
    (split,) = again.partitions(end, newest)
    assert split.value.offsets.start == end_of_batch
    # Of an empty one, and as versions before have left it, there is nothing to read: no loss.
    for first in ({"t/11-0": began, "t/11-0/from": began}, {"t/11-0": began}):
        assert list(again.partitions(again.initialOffset(), first)) == []


def test_a_new_partition_is_read_from_its_start_and_one_that_is_away_stays_where_it_is(
    broker: SegmentedBroker,
) -> None:
    ends = {"t/11-0": broker.append("t", 0, [b"x"]), "t/11-1": broker.append("t", 1, [b"x"] * 3)}
    start = {"t/11-0": ends["t/11-0"], "t/12-0": 500}
    reader = broker.stream(partitions="2")
    end = reader.latestOffset(start, ALL)
    assert end == {**ends, "t/12-0": 500}
    (split,) = reader.partitions(start, end)
    assert split.value.offsets == OffsetRange("t", 11, 1, 0, ends["t/11-1"])


def test_a_log_that_was_replaced_is_data_loss(broker: SegmentedBroker) -> None:
    end = broker.append("t", 0, [b"x"] * 3)
    start = {"t/11-0": end + 500}
    with pytest.raises(DataLoss, match=f"read up to {end + 500}, but its log ends at {end}"):
        broker.stream().latestOffset(start, ALL)
    with pytest.raises(DataLoss):
        broker.stream().partitions(start, {"t/11-0": end})


@pytest.mark.parametrize("limit", [ALL, ReadMaxBytes(50), ReadMaxRows(2)])
def test_a_log_that_was_replaced_is_read_from_its_start_if_loss_is_accepted(
    broker: SegmentedBroker, limit: Any
) -> None:
    end = broker.append("t", 0, [b"x"] * 30)
    broker.retire("t", 0, 11)
    offsets, read_up_to = {"t/11-0": end + 500}, 11
    reader = broker.stream(failOnDataLoss="false")
    for end_of_batch in batch_ends(reader, offsets, limit):
        (split,) = reader.partitions(offsets, end_of_batch)
        # Spark may read the batch again after a failure, when the log has grown.
        (again,) = broker.stream(failOnDataLoss="false").partitions(offsets, end_of_batch)
        assert again.value == split.value
        assert split.value.offsets.start == read_up_to
        read_up_to = split.value.offsets.end
        offsets = end_of_batch
    assert offsets == {"t/11-0": read_up_to} == {"t/11-0": end}
    assert reader.latestOffset(offsets, ALL) == offsets


def test_a_log_that_was_replaced_and_is_longer_again(broker: SegmentedBroker) -> None:
    """What was read up to is in the middle of an entry now."""
    start, end = {"t/11-0": ENTRY + 3}, {"t/11-0": broker.append("t", 0, [b"x"] * 9)}

    def read(reader: Kafka2011StreamReader) -> list[bytes]:
        (split,) = reader.partitions(start, end)
        return [row for part in reader.read(split) for row in part.column("payload").to_pylist()]

    with pytest.raises(DataLoss, match=f"t/11-0 was read up to {ENTRY + 3}, and no entry begins"):
        read(broker.stream())
    assert read(broker.stream(failOnDataLoss="false")) == [b"x"] * 9


def read_all(reader: Kafka2011StreamReader, start: Offsets, limit: Any) -> list[Any]:
    """The payloads of all batches from `start` on, or the error in their place."""
    found: list[Any] = []
    for end in batch_ends(reader, start, limit):
        for split in reader.partitions(start, end):
            for part in reader.read(split):
                rows = part.select(["payload", "error"]).to_pylist()
                found += [row["error"] or row["payload"] for row in rows]
        start = end
    return found


LIMITS = pytest.mark.parametrize("limit", [ALL, ReadMaxBytes(50), ReadMaxRows(2)])


@LIMITS
def test_what_was_retired_before_it_was_read_is_skipped_if_loss_is_accepted(
    broker: SegmentedBroker, limit: Any
) -> None:
    broker.append("t", 0, [b"x"] * 30)
    broker.retire("t", 0, 10 * ENTRY)
    start = {"t/11-0": ENTRY}
    assert read_all(broker.stream(failOnDataLoss="false"), start, limit) == [b"x"] * 20
    with pytest.raises((DataLoss, OffsetOutOfRange)):
        read_all(broker.stream(), start, limit)


@LIMITS
def test_a_longer_log_in_the_place_of_another_is_read_from_its_start_under_a_limit(
    broker: SegmentedBroker, limit: Any
) -> None:
    broker.append("t", 0, [b"x"] * 9)
    start = {"t/11-0": ENTRY + 3}
    assert read_all(broker.stream(failOnDataLoss="false"), start, limit) == [b"x"] * 9
    with pytest.raises(DataLoss, match="no entry begins there"):
        read_all(broker.stream(), start, limit)


@LIMITS
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_damaged_entry_is_one_row_under_a_limit(
    broker: SegmentedBroker, limit: Any, codec: Codec
) -> None:
    ends = [broker.append("t", 0, [b"x"] * 3, codec) for _ in range(3)]
    broker.logs["t", 0][ends[1] - 1] ^= 0xFF
    found = read_all(broker.stream(), {"t/11-0": 0}, limit)
    [error] = [each for each in found if isinstance(each, str)]
    assert error.startswith("damaged entry: wrong CRC")
    assert len(found) == (9 if codec is Codec.NONE else 7)


def test_available_now_stops_at_the_ends_at_its_start(broker: SegmentedBroker) -> None:
    first_end = broker.append("t", 0, [b"x"] * 5)
    reader = broker.stream(partitions="2")
    reader.prepareForTriggerAvailableNow()
    broker.append("t", 0, [b"later"] * 5)
    broker.append("t", 1, [b"later"] * 5)
    end = reader.latestOffset({"t/11-0": 0}, ALL)
    assert end["t/11-0"] == first_end
    assert end.get("t/11-1", 0) == 0
    assert reader.latestOffset(end, ALL) == end


@pytest.mark.parametrize(
    ("option", "limit", "bytes_max"),
    [
        ({"maxRowsPerTrigger": "10"}, ReadMaxRows(10), 10 * ENTRY),
        ({"maxBytesPerTrigger": "250"}, ReadMaxBytes(250), 250),
    ],
)
def test_a_limit_holds_unless_spark_lifts_it_and_everything_is_read(
    broker: SegmentedBroker, option: dict[str, str], limit: Any, bytes_max: int
) -> None:
    ends = {
        "t/11-0": broker.append("t", 0, [b"x"] * 100),
        "t/11-1": broker.append("t", 1, [b"x"] * 7),
    }
    reader = broker.stream(partitions="2", **option)
    assert reader.getDefaultReadLimit() == limit
    offsets = start = reader.initialOffset()
    for end in batch_ends(reader, start, limit):
        read = sum(ends_of(end).values()) - sum(ends_of(offsets).values())
        assert 0 < read <= bytes_max
        assert all(offset % ENTRY == 0 for offset in end.values())
        offsets = end
    assert ends_of(offsets) == ends
    assert ends_of(reader.latestOffset(start, ALL)) == ends


@pytest.mark.parametrize("rows", [2, 8])
def test_a_compressed_set_counts_whole(broker: SegmentedBroker, rows: int) -> None:
    first = broker.append("t", 0, [b"x"] * 6, Codec.GZIP)
    broker.append("t", 0, [b"x"] * 6, Codec.GZIP)
    end = broker.stream().latestOffset({"t/11-0": 0}, ReadMaxRows(rows))
    assert end == {"t/11-0": first}


def test_readers_go_to_executors_without_their_connections(broker: SegmentedBroker) -> None:
    reader = broker.stream()
    reader.initialOffset()
    assert isinstance(reader._planner, SourcePlanner)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._planner is None
    assert copy._options == reader._options
    pickle.loads(pickle.dumps(Kafka2011Reader(broker.options())))
    reader.stop()
    assert reader._planner is None


def test_spark_finds_the_source_by_its_name() -> None:
    assert pyspark_kafka2011.DefaultSource.name() == "kafka2011"
    assert Path(pyspark_kafka2011.__file__).name == "pyspark_kafka2011.py"
    assert [part.split()[0] for part in SPARK_SCHEMA.split(", ")] == MESSAGE_SCHEMA.names
