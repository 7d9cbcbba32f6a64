"""A range in a Spark task: patience, offsets of entries, batches with a fixed schema."""

from collections.abc import Iterator

import pytest

from consumer import spark_reading
from consumer.chunk import Chunk
from consumer.errors import BrokerUnavailable
from consumer.planning import OffsetRange
from consumer.spark_reading import (
    MESSAGE_SCHEMA,
    PATIENCE_S,
    entry_next_offsets,
    entry_offsets,
    message_batches,
    read_patiently,
)
from events import codec
from events.schemas import fingerprint, schema_for
from events.topics import ACCESS_LOG
from protocol import message_set
from protocol.compression import Codec
from tests.unit.warehouse.samples import HEADER_TIME_MS, access_log_event

ADDRESS = ("127.0.0.1", 9092)
RANGE = OffsetRange("t", 11, 0, 0, 100)


def chunk(data: bytes, offset: int = 0, topic: str = "t") -> Chunk:
    return Chunk(topic, 11, 3, offset, data, offset + len(data))


@pytest.mark.parametrize(
    ("stored", "offset", "ends", "starts"),
    [
        ([], 0, [], []),
        ([110, 120], 100, [110, 120], [100, 110]),
        # a wrapper of three messages at 100, ending at 150
        ([100, 100, 150], 100, [150, 150, 150], [100, 100, 100]),
        # plain entry ending at 110, wrapper of two up to 150, plain entry up to 160
        ([110, 110, 150, 160], 100, [110, 150, 150, 160], [100, 110, 110, 150]),
        # two wrappers of two
        ([100, 150, 150, 190], 100, [150, 150, 190, 190], [100, 100, 150, 150]),
    ],
)
def test_messages_of_a_wrapper_have_the_wrappers_ends(
    stored: list[int], offset: int, ends: list[int], starts: list[int]
) -> None:
    assert entry_next_offsets(stored, offset) == ends
    assert entry_offsets(ends, offset) == starts


def test_a_batch_has_the_columns_that_spark_was_told() -> None:
    event = codec.encode(ACCESS_LOG, access_log_event(1))
    data = message_set.encode([event, b"plain"])
    (batch,) = message_batches(chunk(data, 1000, ACCESS_LOG))
    assert batch.schema == MESSAGE_SCHEMA
    first, second = batch.to_pylist()
    assert (first["topic"], first["broker"], first["partition"]) == (ACCESS_LOG, 11, 3)
    assert (first["offset"], first["next_offset"]) == (1000, second["offset"])
    assert second["next_offset"] == 1000 + len(data)
    assert first["timestamp"].timestamp() * 1000 == HEADER_TIME_MS + 1
    assert first["schema_id"] == fingerprint(schema_for(ACCESS_LOG)).hex()
    assert (first["payload"], second["payload"]) == (event, b"plain")
    assert second["timestamp"] is second["schema_id"] is None
    assert first["error"] is second["error"] is None


def test_a_hostile_time_is_null() -> None:
    event = codec.encode(ACCESS_LOG, access_log_event(1, header_time=2**62))
    (batch,) = message_batches(chunk(message_set.encode([event])))
    assert batch.column("timestamp").to_pylist() == [None]


def test_messages_in_wrappers_are_rows() -> None:
    data = message_set.encode([b"a"]) + message_set.encode_compressed([b"b", b"c"], Codec.GZIP)
    (batch,) = message_batches(chunk(data))
    assert batch.column("payload").to_pylist() == [b"a", b"b", b"c"]
    assert batch.column("next_offset").to_pylist()[1:] == [len(data), len(data)]


def test_nothing_is_no_batch() -> None:
    assert list(message_batches(chunk(b""))) == []


def test_a_damaged_entry_is_a_row_that_says_so() -> None:
    entries = [message_set.encode([payload]) for payload in (b"a", b"b", b"c")]
    damaged = bytearray(entries[1])
    damaged[-1] ^= 1
    data = entries[0] + bytes(damaged) + entries[2]
    rows = [row for batch in message_batches(chunk(data, 50)) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == [b"a", bytes(damaged), b"c"]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert rows[1]["offset"] == 50 + len(entries[0])
    assert all(batch.schema == MESSAGE_SCHEMA for batch in message_batches(chunk(data)))


class Outage:
    """A `read_range` that breaks off; `monotonic` and `pause` are its own time."""

    def __init__(self, down_s: float) -> None:
        self.now_s = 0.0
        self.back_s = down_s
        self.starts: list[int] = []

    def monotonic(self) -> float:
        return self.now_s

    def pause(self, duration_s: float) -> None:
        self.now_s += duration_s

    def read_range(
        self, _address: object, _topic: str, _broker: int, _partition: int, start: int, *_: object
    ) -> Iterator[Chunk]:
        self.starts.append(start)
        if not self.starts[1:]:
            yield Chunk("t", 11, 0, 0, b"x" * 40, 40)
        if self.now_s < self.back_s:
            raise BrokerUnavailable("away")
        yield Chunk("t", 11, 0, start, b"x" * (100 - start), 100)


def read(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(spark_reading, "read_range", lambda *args, **_: outage.read_range(*args))
    chunks = read_patiently(ADDRESS, RANGE, pause=outage.pause, monotonic=outage.monotonic)
    return [found.next_offset for found in chunks]


def test_reading_goes_on_where_it_stopped_when_the_broker_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outage = Outage(down_s=PATIENCE_S / 2)
    assert read(outage, monkeypatch) == [40, 100]
    assert outage.starts[0] == 0
    assert set(outage.starts[1:]) == {40}


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(down_s=PATIENCE_S * 10)
    with pytest.raises(BrokerUnavailable):
        read(outage, monkeypatch)
    assert PATIENCE_S <= outage.now_s < PATIENCE_S + 1
