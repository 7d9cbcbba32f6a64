"""The compiled decoder against the Python one: the same rows and the same rejections, always."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.events import codec, schemas
from kafka2011.events.topic_codec import shipped_writer
from kafka2011.events.topics import ACCESS_LOG, ACTIVITY_TOPICS, unreadable_topic
from kafka2011.services.warehouse.load import fast_columns
from kafka2011.services.warehouse.load.columns import EventColumns
from kafka2011.services.warehouse.load.fast_columns import FastDecoder, Times, fast_decoder
from kafka2011.services.warehouse.load.schema_columns import HEADER_FIELDS, SchemaColumns
from tests.unit.services.warehouse.samples import access_log_event, access_log_payload

pytestmark = pytest.mark.skipif(fast_columns.compiled is None, reason="no compiled twin was built")

TOPICS = [*ACTIVITY_TOPICS, ACCESS_LOG, unreadable_topic(ACCESS_LOG)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=40),
    "bytes": st.binary(max_size=40),
    "long": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-1000, 2_000_000_000_000)),
    "int": st.integers(-(2**31), 2**31 - 1),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
}


@pytest.fixture(autouse=True)
def compiled_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled twin is tested here, also in a run of the pure twins."""
    monkeypatch.setattr(fast_columns, "COMPILED", True)


def decode_compiled(payloads: list[Any]) -> tuple[pa.RecordBatch, list[int]]:
    """The rows of the access log's events, and the indexes of those left to Python."""
    prefix = codec.prefix_of(ACCESS_LOG)
    decoder = SchemaColumns(shipped_writer(ACCESS_LOG), prefix)
    assert decoder.is_fast
    return decoder.decode(payloads)


def values_of(node: Any, fixed: dict[str, int]) -> st.SearchStrategy[Any]:
    if isinstance(node, list):
        return st.one_of([st.none() if n == "null" else values_of(n, fixed) for n in node])
    if isinstance(node, dict) and node["type"] == "record":
        return st.fixed_dictionaries(
            {part["name"]: values_of(part["type"], fixed) for part in node["fields"]}
        )
    if isinstance(node, dict):
        fixed[node["name"]] = node["size"]
        node = node["name"]
    if node in fixed:
        return st.binary(min_size=fixed[node], max_size=fixed[node])
    return VALUES[node]


def payloads_of(topic: str) -> st.SearchStrategy[bytes]:
    schema = schemas.physical_schema(codec.schema_name(topic))
    whole = values_of(schema, {}).map(lambda record: codec.encode(topic, record))

    def damaged(payload: bytes) -> st.SearchStrategy[bytes]:
        place = st.integers(0, len(payload))
        changed = st.tuples(place, st.binary(max_size=3), st.integers(0, 3)).map(
            lambda change: payload[: change[0]] + change[1] + payload[change[0] + change[2] :]
        )
        return st.one_of(st.just(payload), changed)

    return whole.flatmap(damaged)


@pytest.mark.parametrize("topic", TOPICS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_decoders_agree(topic: str, data: st.DataObject) -> None:
    payloads = data.draw(st.lists(payloads_of(topic), max_size=8))
    columns = EventColumns(topic)
    assert SchemaColumns(shipped_writer(codec.schema_name(topic)), b"").is_fast
    fast, slow = columns.decode(payloads), columns.decode_in_python(payloads)
    assert fast.rejected == slow.rejected
    fast.batch.validate(full=True)
    assert fast.batch.schema == slow.batch.schema
    # As text: a damaged double may be a NaN, which equals nothing.
    assert str(fast.batch.to_pylist()) == str(slow.batch.to_pylist())


def test_a_row_that_breaks_off_leaves_nothing_behind() -> None:
    """Each cut of a payload, between two whole ones."""
    whole = access_log_payload(1)
    for length in range(len(whole)):
        batch, left = decode_compiled([whole, whole[:length], whole])
        assert left == [1]
        first, second = batch.to_pylist()
        assert first == second


def test_the_payload_must_be_bytes() -> None:
    with pytest.raises(TypeError):
        decode_compiled([bytearray(b"x")])


def decoder_for(arrow_type: pa.DataType, *nodes: Any) -> tuple[Any, FastDecoder | None]:
    """The schema of events with a field x0, x1, ... of each Avro type, and its decoder if any."""
    header = json.loads(schemas.schema_text("click"))["fields"][0]
    fields = [{"name": f"x{number}", "type": node} for number, node in enumerate(nodes)]
    schema = fastavro.parse_schema({"type": "record", "name": "E", "fields": [header, *fields]})
    columns = pa.schema([*HEADER_FIELDS, *((part["name"], arrow_type) for part in fields)])
    return schema, fast_decoder(schema, columns, Times(0, 2**62, 1), {})


@pytest.mark.parametrize(
    ("kind", "arrow_type", "value_of"),
    [
        ("boolean", pa.bool_(), lambda row: row % 3 == 0),
        ("float", pa.float32(), lambda row: row * 0.5),
        ("double", pa.float64(), lambda row: row * 0.5),
        ("int", pa.int32(), int),
        ("string", pa.string(), str),
    ],
)
def test_values_that_are_never_sometimes_and_always_null(
    kind: str, arrow_type: pa.DataType, value_of: Callable[[int], Any]
) -> None:
    schema, decoder = decoder_for(arrow_type, kind, ["null", kind], [kind, "null"], ["null", kind])
    assert decoder is not None
    values = [(row % 2 == 0, value_of(row)) for row in range(20)]
    rows = [
        {
            "x0": value,
            "x1": value if is_even else None,
            "x2": None if is_even else value,
            "x3": None,
        }
        for is_even, value in values
    ]
    payloads = []
    for row in rows:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, {"header": access_log_event(1)["header"], **row})
        payloads.append(body.getvalue())
    batch, left = decoder.decode(payloads, b"")
    assert left == []
    batch.validate(full=True)
    assert batch.select(["x0", "x1", "x2", "x3"]).to_pylist() == rows
    assert batch.column("x3").null_count == 20


@pytest.mark.parametrize(
    "node",
    [
        {"type": "array", "items": "int"},
        ["null", "int", "string"],
        ["int", "string"],
        {"type": "map", "values": "int"},
        {"type": "enum", "name": "C", "symbols": ["a"]},
    ],
)
def test_other_schemas_are_left_to_python(node: Any) -> None:
    assert decoder_for(pa.string(), node)[1] is None
