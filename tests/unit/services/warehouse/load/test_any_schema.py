"""Events of a schema that only the registry has: each type as a column, and later versions."""

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.topic_codec import TopicCodec, id_prefix
from kafka2011.services.warehouse.load.columns import EventColumns
from tests.support.registries import DirectRegistry

TOPIC = "order"
SUBJECT = "order-value"
UTC = datetime.UTC

POINT = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "x", "type": ["null", "int"]},
        {"name": "X", "type": "int"},
        {"name": "none", "type": "null"},
    ],
}
TREE = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
COLOUR = {"type": "enum", "name": "C", "symbols": ["red"]}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
FIXED_MONEY = {
    "type": "fixed",
    "name": "M",
    "size": 2,
    **MONEY,
    "precision": 4,
}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


class Order:
    """The topic's schemas in a registry, and its events."""

    def __init__(self, registry: DirectRegistry) -> None:
        self.registry = registry
        self.columns = EventColumns(TOPIC, TopicCodec(FORMS_DEFAULT, registry.client()))

    def event(self, fields: list[dict[str, Any]], *values: Any, subject: str = SUBJECT) -> bytes:
        """An event of a schema with these fields, which is registered if it was not."""
        schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
        number = self.registry.client().id_of(subject, json.dumps(schema))
        body = io.BytesIO()
        names = [field["name"] for field in fields]
        parsed = fastavro.parse_schema(schema)
        fastavro.schemaless_writer(body, parsed, dict(zip(names, values, strict=True)))
        return id_prefix(number) + body.getvalue()

    def rows(self, *payloads: bytes) -> list[dict[str, Any]]:
        """The rows' own columns; every message must be one."""
        found = self.columns.decode(payloads)
        assert found.rejected == []
        found.batch.validate(full=True)
        assert found.batch.schema == self.columns.event_schema
        return found.batch.drop_columns(["guid", "header_time", "server", "service"]).to_pylist()


@pytest.fixture
def order(registry: DirectRegistry) -> Order:
    return Order(registry)


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("node", "value", "shown"),
    [
        ({"type": "array", "items": "string"}, ["a", "b"], ["a", "b"]),
        ({"type": "map", "values": "long"}, {"k": 1}, [("k", 1)]),
        (POINT, {"x": None, "X": 2, "none": None}, {"x": None, "X_2": 2}),
        (["null", POINT], None, None),
        (["null", "int", "string"], 5, {"member0": 5, "member1": None}),
        (["null", "int", "string"], None, None),
        (["string", "bytes"], b"\xff", {"member0": None, "member1": b"\xff"}),
        (["int", "string", "long"], 2**40, {"member0": None, "member1": None, "member2": 2**40}),
        ([COLOUR, "string"], "blue", {"member0": None, "member1": "blue"}),
        ([COLOUR, "string"], ("shop.C", "red"), {"member0": "red", "member1": None}),
        (["int", "null", "long"], 2**40, 2**40),
        (["float", "double"], 0.5, 0.5),
        ({"type": "int", "logicalType": "date"}, datetime.date(2015, 5, 17), ...),
        (MICROS, EPOCH.replace(microsecond=1), ...),
        ({"type": "array", "items": ["null", MICROS]}, [EPOCH, None], ...),
        (LOCAL, datetime.datetime(1970, 1, 1, 0, 0, 0, 1000), ...),
        (MONEY, decimal.Decimal("-123456789012345678901234567890123456.78"), ...),
        ({"type": "map", "values": FIXED_MONEY}, {"a": decimal.Decimal("-1.23")}, ...),
        (UUID, bytes(15) + b"\1", "00000000-0000-0000-0000-000000000001"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
        (["null", COLOUR], "red", "red"),
        (TREE, {"next": {"next": None}}, {"next": '{"next":null}'}),
        ({"type": "record", "name": "N", "fields": []}, {}, "{}"),
        ({"type": "array", "items": "null"}, [None], "[null]"),
    ],
)
def test_every_type_becomes_a_column(order: Order, node: Any, value: Any, shown: Any) -> None:
    payload = order.event([field("a", node)], value)
    if shown is ...:
        shown = list(value.items()) if isinstance(value, dict) else value
    assert order.rows(payload, payload) == [{"a": shown}] * 2


def test_a_named_type_is_used_again_beside_a_union_of_several(order: Order) -> None:
    inner = {"type": "record", "name": "Q", "fields": [field("n", "int")]}
    fields = [
        field("q", ["null", inner]),
        field("again", {"type": "array", "items": ["null", "shop.Q"]}),
        field("either", ["shop.Q", "string"]),
    ]
    payload = order.event(fields, {"n": 1}, [{"n": 2}, None], {"n": 3})
    either = {"member0": {"n": 3}, "member1": None}
    assert order.rows(payload) == [{"q": {"n": 1}, "again": [{"n": 2}, None], "either": either}]


def test_reserved_names_and_names_that_differ_by_case_are_told_apart(order: Order) -> None:
    fields = [field("hour", "int"), field("Amount", "int"), field("amount", "int")]
    row = {"event_hour": 1, "Amount": 2, "amount_2": 3}
    assert order.rows(order.event(fields, 1, 2, 3)) == [row]


def test_an_event_without_a_header_is_known_by_its_payload(order: Order) -> None:
    fields = [field("a", "int")]
    payloads = [order.event(fields, number) for number in (1, 2, 1)]
    for found in (order.columns.decode(payloads), order.columns.decode_in_python(payloads)):
        one, two, three = found.batch.to_pylist()
        assert one == three != two
        assert (len(one["guid"]), one["header_time"], one["server"]) == (16, None, None)


def test_versions_in_any_order_are_rows_of_one_table(order: Order) -> None:
    first = [field("id", "long"), field("to", {**POINT, "fields": POINT["fields"][:1]})]
    point = {**POINT, "fields": [*POINT["fields"][:1], field("z", "string", default="")]}
    second = [
        field("number", "long", aliases=["id"]),
        field("to", point),
        field("vip", "boolean", default=False),
    ]
    old, new = order.event(first, 1, {"x": 1}), order.event(second, 2, {"x": 2, "z": "b"}, True)
    row_old = {"id": 1, "to": {"x": 1, "z": None}, "vip": None}
    row_new = {"id": 2, "to": {"x": 2, "z": "b"}, "vip": True}
    assert order.rows(old) == [{"id": 1, "to": {"x": 1}}]
    assert order.rows(old, new, old) == [row_old, row_new, row_old]
    # A process that begins with the table's columns has the same.
    again = Order(order.registry)
    again.columns = EventColumns(TOPIC, order.columns._codec, order.columns.table_schema)
    assert again.rows(old, new, old) == [row_old, row_new, row_old]


def test_a_promoted_type_is_a_column_beside(order: Order) -> None:
    narrow = order.event([field("n", "int")], 1)
    wide = order.event([field("n", "long")], 2**40)
    assert order.rows(narrow, wide) == [{"n": 1, "n_long": None}, {"n": None, "n_long": 2**40}]
    later = Order(order.registry)
    assert later.rows(wide, narrow) == [{"n": 2**40}, {"n": 1}]


def test_what_is_none_of_the_topics_events_is_rejected_with_its_reason(order: Order) -> None:
    good = order.event([field("n", "int"), field("s", ["null", "string"], default=None)], 1, "x")
    foreign = order.event([field("m", "int")], 1, subject="click-value")
    unknown = b"\0\0\0\3\3junk"
    payloads = [good, good[:-1], foreign, unknown, b"", b"text", good + b"x", good]
    for in_python in (False, True):
        columns = EventColumns(TOPIC, order.columns._codec)
        found = columns.decode_in_python(payloads) if in_python else columns.decode(payloads)
        assert found.batch.num_rows == 2
        reasons = {reject.message_index: reject.reason for reject in found.rejected}
        assert [*reasons] == [1, 2, 3, 4, 5, 6]
        assert "body" in reasons[1]
        assert "no schema of the topic" in reasons[2]
        assert "no schema with id" in reasons[3]
        assert "byte 0" in reasons[4]
        assert "byte 0" in reasons[5]
        assert "left over" in reasons[6]
        assert "m" not in columns.event_schema.names


def test_a_version_that_does_not_fit_the_columns_is_rejected_whole(order: Order) -> None:
    order.registry.ask("PUT", f"/config/{SUBJECT}", b'{"compatibility":"NONE"}')
    good = order.event([field("n", "int")], 1)
    odd = order.event([field("n", {"type": "array", "items": "int"}), field("k", "int")], [1], 2)
    found = order.columns.decode([good, odd, good])
    assert found.batch.num_rows == 2
    assert [reject.message_index for reject in found.rejected] == [1]
    assert "column n is int32 in the table, list<" in found.rejected[0].reason
    assert "k" not in order.columns.event_schema.names


def test_flat_events_are_read_by_the_compiled_twin_as_by_python(order: Order) -> None:
    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [field("id", "long"), field("at", at), field("name", ["null", "string"])]
    payloads = [order.event(fields, n, EPOCH, None if n % 3 else str(n)) for n in range(50)]
    payloads[7] = payloads[7][:-1]
    fast, slow = order.columns.decode(payloads), order.columns.decode_in_python(payloads)
    assert fast.batch.equals(slow.batch)
    assert fast.rejected == slow.rejected != []
    assert pa.types.is_timestamp(fast.batch.schema.field("at").type)
