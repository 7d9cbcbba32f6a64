"""The compiled decoder against the Python one: the same rows and the same rejections, always."""

import functools
import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.events import codec, schemas
from kafka2011.events.topics import ACCESS_LOG, ACTIVITY_TOPICS, unreadable_topic
from kafka2011.services.warehouse.load import fast_columns
from kafka2011.services.warehouse.load.columns import EventColumns
from kafka2011.services.warehouse.load.fast_columns import Times, fast_decoder
from tests.unit.services.warehouse.samples import access_log_event, access_log_payload

pytestmark = pytest.mark.skipif(fast_columns.compiled is None, reason="no compiled twin was built")

PREFIX = codec.prefix_of(ACCESS_LOG)
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


@pytest.fixture(autouse=True, scope="module")
def compiled_in_use() -> Iterator[None]:
    """The compiled twin is tested here, also in a run of the pure twins."""
    before, fast_columns.COMPILED = fast_columns.COMPILED, True
    columns_of.cache_clear()
    yield
    fast_columns.COMPILED = before
    columns_of.cache_clear()


@functools.cache
def columns_of(topic: str) -> EventColumns:
    return EventColumns(topic)


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
def test_every_topics_schema_is_read_by_the_compiled_decoder(topic: str) -> None:
    assert columns_of(topic)._fast is not None


@pytest.mark.parametrize("topic", TOPICS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_decoders_agree(topic: str, data: st.DataObject) -> None:
    payloads = data.draw(st.lists(payloads_of(topic), max_size=8))
    columns = columns_of(topic)
    fast, slow = columns.decode(payloads), columns.decode_in_python(payloads)
    assert fast.rejected == slow.rejected
    fast.batch.validate(full=True)
    assert fast.batch.schema == slow.batch.schema
    # As text: a damaged double may be a NaN, which equals nothing.
    assert str(fast.batch.to_pylist()) == str(slow.batch.to_pylist())


def test_a_row_that_breaks_off_leaves_nothing_behind() -> None:
    """Each cut of a payload, between two whole ones."""
    whole = access_log_payload(1)
    columns = columns_of(ACCESS_LOG)
    for length in range(len(whole)):
        batch, left = columns._fast.decode([whole, whole[:length], whole], PREFIX)  # type: ignore[union-attr]
        assert left == [1]
        first, second = batch.to_pylist()
        assert first == second


def test_every_row_null_and_no_row_null() -> None:
    columns = columns_of(ACCESS_LOG)
    for value, count in ((None, 20), ("x", 0)):
        payloads = [access_log_payload(n, referer=value, agent=value) for n in range(20)]
        batch, left = columns._fast.decode(payloads, PREFIX)  # type: ignore[union-attr]
        assert left == []
        assert batch.column("referer").null_count == count
        assert batch.column("agent").to_pylist() == [value] * 20


def test_the_payload_must_be_bytes() -> None:
    columns = columns_of(ACCESS_LOG)
    with pytest.raises(TypeError):
        columns._fast.decode([bytearray(b"x")], PREFIX)  # type: ignore[union-attr, list-item]


def decoder_for(*fields: Any) -> Any:
    header = json.loads(schemas.schema_text("click"))["fields"][0]
    schema = fastavro.parse_schema({"type": "record", "name": "E", "fields": [header, *fields]})
    types = {"boolean": pa.bool_(), "float": pa.float32(), "double": pa.float64()}
    types["int"] = pa.int32()
    arrow = [*columns_of("click").event_schema][:4]
    for part in fields:
        node = part["type"]
        kind = next((name for name in types if name == node or name in node), "string")
        arrow.append(pa.field(part["name"], types.get(kind, pa.string())))
    decoder = fast_decoder(schema, pa.schema(arrow), Times(0, 2**62, 1), {})
    return schema, decoder


@pytest.mark.parametrize("kind", ["boolean", "float", "double", "int"])
def test_optional_numbers_and_booleans(kind: str) -> None:
    nodes = [kind, ["null", kind], [kind, "null"]]
    fields = [{"name": f"x{number}", "type": node} for number, node in enumerate(nodes)]
    schema, decoder = decoder_for(*fields)

    def value(row: int, number: int) -> Any:
        if number and (row + number) % 2 == 0:
            return None
        return {"boolean": row % 3 == 0, "int": row}.get(kind, row * 0.5)

    wanted = [{f"x{number}": value(row, number) for number in range(3)} for row in range(19)]
    payloads = []
    for record in wanted:
        out = io.BytesIO()
        event = {"header": access_log_event(1)["header"], **record}
        fastavro.schemaless_writer(out, schema, event)
        payloads.append(out.getvalue())
    batch, left = decoder.decode(payloads, b"")
    assert left == []
    batch.validate(full=True)
    assert batch.select(list(wanted[0])).to_pylist() == wanted


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
    assert decoder_for({"name": "x", "type": node})[1] is None
