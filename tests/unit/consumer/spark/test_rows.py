"""Messages as Spark's rows: offsets of entries, a fixed schema, and both ways to make them."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.spark import rows as spark_rows
from kafka2011.consumer.spark.rows import (
    MESSAGE_SCHEMA,
    MessageRows,
    Unreadable,
    entry_next_offsets,
    entry_offsets,
)
from kafka2011.events import codec
from kafka2011.events.forms import Form, Forms
from kafka2011.events.schemas import fingerprint, schema_for
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import InvalidMessage
from tests.unit.services.warehouse.samples import HEADER_TIME_MS, access_log_event


def chunk(data: bytes, offset: int = 0, topic: str = "t") -> Chunk:
    return Chunk(topic, 11, 3, offset, data, offset + len(data))


def message_batches(found: Chunk) -> Iterator[pa.RecordBatch]:
    return MessageRows().batches(found)


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


def test_a_batch_has_the_columns_of_the_schema() -> None:
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


def test_an_id_of_the_registry_is_a_number() -> None:
    event = b"\x00\x00\x00\x01\x02" + codec.encode(ACCESS_LOG, access_log_event(1))[17:]
    rows = MessageRows(("schema_id", "timestamp"), forms=Forms(Form.ID))
    (batch,) = rows.batches(chunk(message_set.encode([event, b"junk"])))
    first, second = batch.to_pylist()
    assert first["schema_id"] == "258"
    assert first["timestamp"].timestamp() * 1000 == HEADER_TIME_MS + 1
    assert second == {"schema_id": None, "timestamp": None}


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


def test_a_damaged_entry_is_a_row_with_its_error() -> None:
    entries = [message_set.encode([payload]) for payload in (b"a", b"b", b"c")]
    damaged = bytearray(entries[1])
    damaged[-1] ^= 1
    data = entries[0] + bytes(damaged) + entries[2]
    rows = [row for batch in message_batches(chunk(data, 50)) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == [b"a", bytes(damaged), b"c"]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert rows[1]["offset"] == 50 + len(entries[0])
    assert all(batch.schema == MESSAGE_SCHEMA for batch in message_batches(chunk(data)))


def test_a_damaged_entry_goes_to_the_quarantine_with_its_offsets() -> None:
    entries = [message_set.encode([payload]) for payload in (b"a", b"b", b"c")]
    damaged = entries[1][:-1] + b"?"
    aside: list[Unreadable] = []
    rows = MessageRows(("offset", "payload"), aside.append)
    data = entries[0] + damaged + entries[2]
    found = [row for batch in rows.batches(chunk(data, 50)) for row in batch.to_pylist()]
    assert found == [{"offset": 50, "payload": b"a"}, {"offset": 72, "payload": b"c"}]
    (message,) = aside
    assert message[:5] == ("t", 11, 3, 61, 72)
    assert message.payload == damaged
    assert "damaged entry" in message.error


def test_an_impossible_length_is_an_error() -> None:
    data = message_set.encode([b"a"]) + b"\x00\x00\x00\x01\x00" * 5
    with pytest.raises(InvalidMessage):
        list(message_batches(chunk(data)))


def test_a_batch_has_only_the_requested_columns() -> None:
    data = message_set.encode([b"a", b"bb"])
    (batch,) = MessageRows(("next_offset", "topic")).batches(chunk(data, 7))
    assert batch.to_pylist() == [
        {"next_offset": 18, "topic": "t"},
        {"next_offset": 7 + len(data), "topic": "t"},
    ]


def _events() -> st.SearchStrategy[bytes]:
    """Events of two schemas, cut events, events with bytes changed, and any bytes."""
    whole = st.builds(
        lambda n, time: codec.encode(ACCESS_LOG, access_log_event(n, header_time=time)),
        st.integers(0, 5),
        st.sampled_from([0, HEADER_TIME_MS, 253_402_300_799_999, 253_402_300_800_000, -1]),
    )
    other = whole.map(lambda event: b"\x00" + bytes(16) + event[17:])
    with_id = whole.map(lambda event: b"\x00\x00\x00\x01\x02" + event[17:])
    cut = st.builds(lambda event, size: event[:size], whole, st.integers(0, 80))
    changed = st.builds(
        lambda event, at, byte: event[: at % len(event)] + bytes([byte]) + event[at % len(event) :],
        whole,
        st.integers(0, 70),
        st.integers(0, 255),
    )
    return st.one_of(whole, other, with_id, cut, changed, st.binary(max_size=60))


@pytest.mark.skipif(not spark_rows.COMPILED, reason="the pure build has one way")
@given(
    st.lists(_events(), max_size=12),
    st.sampled_from([0, 1]),
    st.integers(0, 2**40),
    st.sampled_from(Form),
)
def test_both_ways_give_the_same_rows(
    payloads: list[bytes], magic: int, offset: int, form: Form
) -> None:
    found = chunk(message_set.encode(payloads, magic), offset)
    rows = MessageRows(forms=Forms(form))
    slow = [row for batch in rows._in_python(found) for row in batch.to_pylist()]
    fast = list(rows.batches(found))
    assert [row for batch in fast for row in batch.to_pylist()] == slow
    for batch in fast:
        batch.validate(full=True)
        assert batch.schema == MESSAGE_SCHEMA


@pytest.mark.skipif(not spark_rows.COMPILED, reason="the pure build has one way")
@given(st.data())
def test_the_compiled_way_reads_only_sets_that_the_other_reads(data: st.DataObject) -> None:
    good = bytearray(message_set.encode([b"first", b"second", b"third"]))
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    found = spark_rows.compiled.rows_of(bytes(good), 0, 17, True, True)
    if found is not None:
        # It was a bit of the attributes that says nothing.
        assert message_set.payloads(bytes(good)) == [b"first", b"second", b"third"]
    assert spark_rows.compiled.rows_of(bytes(good)[:-1], 0, 17, True, True) is None
