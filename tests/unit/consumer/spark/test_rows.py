"""Messages as Spark's rows: offsets of entries, a fixed schema, and both ways to make them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.spark import rows as spark_rows
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA, MessageRows, Unreadable
from kafka2011.events import codec
from kafka2011.events.forms import Form, Forms
from kafka2011.events.schemas import fingerprint_of_name
from kafka2011.events.topics import ACCESS_LOG, schema_name
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import InvalidMessage
from tests.support.bombs import BOMB_BYTES, BOMBS_COUNT, bombs, bounded_memory
from tests.unit.services.warehouse.samples import HEADER_TIME_MS, access_log_event


def chunk(data: bytes, offset: int = 0, topic: str = "t") -> Chunk:
    return Chunk(topic, 11, 3, offset, data, offset + len(data))


def rows_of(found: Chunk, rows: MessageRows | None = None) -> list[dict[str, Any]]:
    """The rows of all batches, each of which has the columns of its schema."""
    batches = list((rows or MessageRows()).batches(found))
    for batch in batches:
        batch.validate(full=True)
        assert rows or batch.schema == MESSAGE_SCHEMA
    return [row for batch in batches for row in batch.to_pylist()]


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
    assert spark_rows.entry_next_offsets(stored, offset) == ends
    assert spark_rows.entry_offsets(ends, offset) == starts


def test_a_row_has_the_columns_of_the_schema() -> None:
    event = codec.encode(ACCESS_LOG, access_log_event(1))
    data = message_set.encode([event, b"plain"])
    first, second = rows_of(chunk(data, 1000, ACCESS_LOG))
    middle = second["offset"]
    assert first.pop("timestamp").timestamp() * 1000 == HEADER_TIME_MS + 1
    assert second.pop("timestamp") is None
    assert first == {
        "topic": ACCESS_LOG,
        "broker": 11,
        "partition": 3,
        "offset": 1000,
        "next_offset": middle,
        "payload": event,
        "schema_id": fingerprint_of_name(schema_name(ACCESS_LOG)).hex(),
        "error": None,
    }
    plain = {"next_offset": 1000 + len(data), "payload": b"plain", "schema_id": None}
    assert second == {**first, "offset": middle, **plain}


def test_an_id_of_the_registry_is_a_number() -> None:
    event = b"\x00\x00\x00\x01\x02" + codec.encode(ACCESS_LOG, access_log_event(1))[17:]
    rows = MessageRows(("schema_id", "timestamp"), forms=Forms(Form.ID))
    first, second = rows_of(chunk(message_set.encode([event, b"junk"])), rows)
    assert first["schema_id"] == "258"
    assert first["timestamp"].timestamp() * 1000 == HEADER_TIME_MS + 1
    assert second == {"schema_id": None, "timestamp": None}


def test_a_hostile_time_is_null() -> None:
    event = codec.encode(ACCESS_LOG, access_log_event(1, header_time=2**62))
    assert [row["timestamp"] for row in rows_of(chunk(message_set.encode([event])))] == [None]


def test_messages_in_wrappers_are_rows_and_no_message_is_no_batch() -> None:
    data = message_set.encode([b"a"]) + message_set.encode_compressed([b"b", b"c"], Codec.GZIP)
    rows = rows_of(chunk(data))
    assert [row["payload"] for row in rows] == [b"a", b"b", b"c"]
    assert [row["next_offset"] for row in rows[1:]] == [len(data), len(data)]
    assert list(MessageRows().batches(chunk(b""))) == []


def test_a_set_of_many_messages_is_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_rows, "ROWS_MAX", 2)
    data = message_set.encode_compressed([b"a", b"b", b"c"], Codec.GZIP)
    batches = list(MessageRows(("offset", "next_offset", "payload")).batches(chunk(data, 7)))
    assert [batch.num_rows for batch in batches] == [2, 1]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert rows == [(7, 7 + len(data), payload) for payload in (b"a", b"b", b"c")]


def test_bombs_are_rows_piece_by_piece() -> None:
    data = bombs() + message_set.encode([b"last"])
    sizes = []
    with bounded_memory():
        for batch in MessageRows(("next_offset", "payload")).batches(chunk(data, 1000)):
            sizes += [len(payload) for payload in batch.column("payload").to_pylist()]
    assert sizes == [BOMB_BYTES] * BOMBS_COUNT + [4]
    assert batch.column("next_offset").to_pylist()[-1] == 1000 + len(data)


def test_a_damaged_entry_is_a_row_with_its_error_or_goes_to_the_quarantine() -> None:
    entries = [message_set.encode([payload]) for payload in (b"a", b"b", b"c")]
    entries[1] = entries[1][:-1] + b"?"
    found = chunk(b"".join(entries), 50)
    rows = rows_of(found)
    assert [row["payload"] for row in rows] == [b"a", entries[1], b"c"]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert [row["offset"] for row in rows] == [50, 61, 72]
    aside: list[Unreadable] = []
    assert rows_of(found, MessageRows(("offset", "payload"), aside.append)) == [
        {"offset": 50, "payload": b"a"},
        {"offset": 72, "payload": b"c"},
    ]
    (message,) = aside
    assert message[:5] == ("t", 11, 3, 61, 72)
    assert message.payload == entries[1]
    assert "damaged entry" in message.error


def test_an_impossible_length_is_an_error() -> None:
    data = message_set.encode([b"a"]) + b"\x00\x00\x00\x01\x00" * 5
    with pytest.raises(InvalidMessage):
        rows_of(chunk(data))


def test_a_batch_has_only_the_requested_columns() -> None:
    data = message_set.encode([b"a", b"bb"])
    assert rows_of(chunk(data, 7), MessageRows(("next_offset", "topic"))) == [
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
    assert rows_of(found, rows) == slow


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
