"""The data source without Spark's JVM: options, planning, streams' offsets, pickling."""

import pickle
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import pyspark_kafka2011
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark import planning as spark_planning
from kafka2011.consumer.spark.options import OptionError, SourceOptions, parse_options
from kafka2011.consumer.spark.planning import DataLoss, PartitionAway, PlacedRange, SourcePlanner
from kafka2011.consumer.spark.source import (
    SPARK_SCHEMA,
    Kafka2011Reader,
    Kafka2011StreamReader,
    RangeSplit,
)
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import MessageLargerThanFetchSize

ADDRESS = ("127.0.0.1", 9092)
ZERO = TopicPartition("t", 11, 0)
ONE = TopicPartition("t", 11, 1)
BASE = {"brokers": "11:127.0.0.1:9092", "topic": "t"}


def options(**changed: str) -> SourceOptions:
    return parse_options({**BASE, **{k.replace("_", "."): v for k, v in changed.items()}})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": "t"}, "exactly one of zk.connect and brokers"),
        ({"brokers": "11:h:1"}, "exactly one of topic"),
        ({**BASE, "topicsPattern": "x"}, "exactly one of topic"),
        ({"brokers": "11:h:1", "topicsPattern": "x"}, "needs zk.connect"),
        ({**BASE, "startingOffset": "latest"}, "unknown option 'startingoffset'"),
        ({**BASE, "startingOffsets": "middle"}, "startingoffsets='middle'"),
        ({**BASE, "startingOffsets": '{"t": {"11": 5}}'}, "must be broker-partition"),
        ({**BASE, "startingOffsets": '{"t": {"11-0": -5}}'}, "must be an offset"),
        ({**BASE, "startingOffsets": "latest", "startingTimestamp": "5"}, "not both"),
        ({**BASE, "endingOffsets": "latest", "endingTimestamp": "5"}, "not both"),
        ({**BASE, "event.forms": "t:3"}, "must be topic:id or topic:2011"),
        ({"brokers": "11:h:1", "ranges": '[["t", 11, 0, 5]]'}, "each must be"),
        ({"brokers": "11:h:1", "ranges": '[["t", 11, 0, 5, 4]]'}, "runs backwards"),
        ({**BASE, "fetch.size": "0"}, "at least 1"),
        ({**BASE, "brokers": "h:1"}, "must be id:host:port"),
        ({"zk.connect": "z", "topicsPattern": "("}, "topicspattern"),
    ],
)
def test_bad_options_are_one_line(given: Mapping[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(given)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_are_read_whatever_their_case() -> None:
    found = parse_options(
        {
            "zk.connect": "z:1",
            "TOPICS": "a,b",
            "StartingOffsets": "LATEST",
            "failOnDataLoss": "false",
        }
    )
    assert found.topics == ("a", "b")
    assert found.starting == "latest"
    assert not found.fail_on_data_loss
    assert found.selects("a")
    assert not found.selects("c")


def test_a_pattern_matches_whole_names() -> None:
    found = parse_options({"zk.connect": "z:1", "topicsPattern": "page-.*"})
    assert found.selects("page-view")
    assert not found.selects("home-page-view")


class Logs:
    """Partitions' logs in memory, seen through the seams of the planner."""

    def __init__(self) -> None:
        self.data: dict[TopicPartition, bytes] = {}
        self.first: dict[TopicPartition, int] = {}
        self.segments: dict[TopicPartition, list[int]] = {}
        self.by_time: dict[int, int] = {}

    def append(self, name: TopicPartition, payloads: list[bytes], codec: int = 0) -> int:
        added = (
            message_set.encode_compressed(payloads, codec)
            if codec
            else message_set.encode(payloads)
        )
        self.data[name] = self.data.get(name, b"") + added
        return len(self.data[name])

    def client(self, *_: Any, **__: Any) -> Any:
        return self

    def earliest(self, topic: str, partition: int) -> int:
        return self.first.get(TopicPartition(topic, 11, partition), 0)

    def latest(self, topic: str, partition: int) -> int:
        return len(self.data.get(TopicPartition(topic, 11, partition), b""))

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, count: int) -> list[int]:
        if time_ms >= 0:
            return [self.by_time[time_ms]] if time_ms in self.by_time else []
        return self.segments.get(TopicPartition(topic, 11, partition), [])[:count]

    def close(self) -> None:
        pass

    def read_range(
        self,
        _address: object,
        topic: str,
        broker: int,
        partition: int,
        start: int,
        end: int,
        **_: Any,
    ) -> Iterator[Chunk]:
        data = self.data[TopicPartition(topic, broker, partition)]
        offset = start
        while offset < end:
            fetched = data[offset : min(end, offset + 100)]
            try:
                valid = message_set.split(fetched)
            except MessageLargerThanFetchSize:
                if offset > start and offset + 100 >= end:
                    return
                valid = next(message_set.entries(data[offset:])).next_offset
                fetched = data[offset : offset + valid]
            yield Chunk(topic, broker, partition, offset, fetched[:valid], offset + valid)
            offset += valid


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs()
    monkeypatch.setattr(spark_planning, "SimpleConsumer", made.client)
    monkeypatch.setattr(spark_planning, "read_range", made.read_range)
    return made


def ranges(**changed: str) -> list[OffsetRange]:
    return [split.placed.offsets for split in Kafka2011Reader(options(**changed)).partitions()]


def test_a_batch_is_everything_by_default(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    assert ranges() == [OffsetRange("t", 11, 0, 0, end)]


def test_an_empty_topic_is_no_partition(logs: Logs) -> None:
    assert ranges() == []
    assert list(Kafka2011Reader(options()).read(RangeSplit(None))) == []  # type: ignore[arg-type]


def test_places_are_taken_per_partition(logs: Logs) -> None:
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


def test_offsets_that_are_gone_are_an_error_unless_told_otherwise(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 10)
    logs.first[ZERO] = 33
    asked = '{"t": {"11-0": 11}}'
    with pytest.raises(DataLoss, match="requested 11"):
        ranges(startingOffsets=asked)
    assert ranges(startingOffsets=asked, failOnDataLoss="false") == [
        OffsetRange("t", 11, 0, 33, end)
    ]
    with pytest.raises(DataLoss):
        ranges(endingOffsets='{"t": {"11-0": 1000}}')


def test_ranges_are_cut_at_segment_starts(logs: Logs) -> None:
    end = logs.append(ZERO, [b"x"] * 100)
    logs.segments[ZERO] = [end, 880, 660, 440, 220, 0]
    found = ranges(**{"split.bytes": "300"})
    places = [place for part in found for place in (part.start, part.end)]
    assert places == [0, 220, 220, 440, 440, 660, 660, 880, 880, end]


def test_exact_ranges_are_taken_as_they_are(logs: Logs) -> None:
    given = parse_options({"brokers": "11:127.0.0.1:9092", "ranges": '[["t", 11, 2, 11, 33]]'})
    (split,) = Kafka2011Reader(given).partitions()
    assert split.value == PlacedRange(ADDRESS, OffsetRange("t", 11, 2, 11, 33))


def test_a_range_of_a_broker_that_is_away_is_an_error(logs: Logs) -> None:
    given = parse_options({"brokers": "11:127.0.0.1:9092", "ranges": '[["t", 12, 0, 11, 33]]'})
    with pytest.raises(PartitionAway, match="t/12-0"):
        Kafka2011Reader(given).partitions()


# --- streams --------------------------------------------------------------------------------------


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
def test_a_log_that_was_replaced_is_read_from_its_start_when_told_to(
    logs: Logs, limit: Any
) -> None:
    end = logs.append(ZERO, [b"x"] * 30)
    logs.first[ZERO] = 11
    reader = stream(failOnDataLoss="false")
    offsets = {"t/11-0": end + 500}
    read: list[tuple[int, int]] = []
    while offsets["t/11-0"] != end:
        place = reader.latestOffset(offsets, limit)
        (split,) = reader.partitions(offsets, place)
        # Spark may ask for the batch again after a failure, when the log has grown.
        assert stream(failOnDataLoss="false").partitions(offsets, place)[0].value == split.value
        read.append((split.value.offsets.start, split.value.offsets.end))
        offsets = place
    assert (read[0][0], read[-1][1]) == (11, end)
    assert all(first[1] == second[0] for first, second in pairwise(read))
    assert reader.latestOffset(offsets, ReadAllAvailable()) == offsets


def test_available_now_stops_at_what_was_there(logs: Logs) -> None:
    first_end = logs.append(ZERO, [b"x"] * 5)
    reader = stream(partitions="2")
    reader.prepareForTriggerAvailableNow()
    logs.append(ZERO, [b"later"] * 5)
    logs.append(ONE, [b"later"] * 5)
    end = reader.latestOffset({"t/11-0": 0}, ReadAllAvailable())
    assert end["t/11-0"] == first_end
    assert end.get("t/11-1", 0) == 0
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_limit_in_rows_is_kept_and_everything_comes_in_the_end(logs: Logs) -> None:
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


def test_no_limit_when_spark_says_so(logs: Logs) -> None:
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
    from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA

    assert [part.split()[0] for part in SPARK_SCHEMA.split(", ")] == MESSAGE_SCHEMA.names
