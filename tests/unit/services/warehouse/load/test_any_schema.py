"""Events of a schema that only the registry has: each type as a column, and later versions."""

import datetime
import decimal
import io
import json
import math
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafka2011.events.bounds import DEPTH_MAX
from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.schema_cache import RegisteredSchema
from kafka2011.events.topic_codec import TopicCodec, id_prefix
from kafka2011.services.warehouse.load.column_types import TypesDiffer, joined
from kafka2011.services.warehouse.load.columns import EventColumns
from kafka2011.services.warehouse.load.schema_columns import HEADER_FIELDS
from tests.support.registries import DirectRegistry


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


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
TREE_OF_NUMBERS = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "v", "type": "double"}, {"name": "next", "type": ["null", "T"]}],
}
NOT_NUMBERS = {"v": math.nan, "next": {"v": -math.inf, "next": None}}
NOT_NUMBERS_TEXT = '{"v":"NaN","next":{"v":"-Infinity","next":null}}'
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
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
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
        ([COLOUR, "string"], "blue", {"C": None, "member0": "blue"}),
        ([COLOUR, "string"], ("shop.C", "red"), {"C": "red", "member0": None}),
        ([ADDRESS, "int"], {"zip": 1}, {"Address": {"zip": 1}, "member0": None}),
        (["int", "null", "long"], 2**40, 2**40),
        (["float", "double"], 0.5, 0.5),
        (
            ["double", "float", "string"],
            1e300,
            {"member0": 1e300, "member1": None, "member2": None},
        ),
        (["float", "double", "string"], 0.1, {"member0": None, "member1": 0.1, "member2": None}),
        (["string", "float"], 0.5, {"member0": None, "member1": 0.5}),
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
        (TREE_OF_NUMBERS, {"v": 0.5, "next": NOT_NUMBERS}, {"v": 0.5, "next": NOT_NUMBERS_TEXT}),
        ({"type": "record", "name": "N", "fields": []}, {}, "{}"),
        ({"type": "array", "items": "null"}, [None], "[null]"),
    ],
)
def test_every_type_becomes_a_column(order: Order, node: Any, value: Any, shown: Any) -> None:
    payload = order.event([field("a", node)], value)
    if shown is ...:
        shown = list(value.items()) if isinstance(value, dict) else value
    assert order.rows(payload, payload) == [{"a": shown}] * 2


@pytest.mark.parametrize("day", [-(2**31), -719_163, 2_932_897, 2**31 - 1])
@pytest.mark.parametrize("in_python", [False, True])
def test_a_date_outside_the_years_1_to_9999_is_no_row(
    order: Order, day: int, in_python: bool
) -> None:
    """DuckDB shows 9999-12-31 for one of them, Spark ends at it, delta-rs panics at others."""
    date = {"type": "int", "logicalType": "date"}
    first, last = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
    flat = [field("a", date)]
    nested = [*flat, field("all", {"type": "array", "items": ["null", date]}, default=[])]
    payloads = [
        order.event(flat, day),
        order.event(flat, first),
        order.event(nested, last, [None, day]),
        order.event(nested, last, [None, first]),
    ]
    decode = order.columns.decode_in_python if in_python else order.columns.decode
    found = decode(payloads)
    reason = "a date lies outside the years 1 to 9999"
    assert found.rejected == [(0, reason), (2, reason)]
    assert found.batch.column("a").to_pylist() == [first, last]


def test_a_named_type_is_used_again_beside_a_union_of_several(order: Order) -> None:
    inner = {"type": "record", "name": "Q", "fields": [field("n", "int")]}
    fields = [
        field("q", ["null", inner]),
        field("again", {"type": "array", "items": ["null", "shop.Q"]}),
        field("either", ["shop.Q", "string"]),
    ]
    payload = order.event(fields, {"n": 1}, [{"n": 2}, None], {"n": 3})
    either = {"Q": {"n": 3}, "member0": None}
    assert order.rows(payload) == [{"q": {"n": 1}, "again": [{"n": 2}, None], "either": either}]


def test_a_record_inside_itself_is_the_same_text_beside_a_union_of_several(order: Order) -> None:
    tree = record(
        "T",
        field("left", ["null", "T"]),
        field("all", {"type": "array", "items": ["null", "T"]}),
        field("named", {"type": "map", "values": "T"}),
        field("hue", ["null", COLOUR]),
    )
    end = {"left": None, "all": [], "named": {}, "hue": "red"}
    inner = {"left": end, "all": [end, None], "named": {"k": end}, "hue": None}
    value = {**end, "left": inner}
    alone = order.event([field("tree", tree)], value)
    both = order.event([field("tree", tree), field("u", ["int", "string"], default=1)], value, 1)
    (without,), (beside,) = order.rows(alone), order.rows(both)
    assert json.loads(without["tree"]["left"]) == inner
    assert beside["tree"] == without["tree"]
    # The type of a value that may be of several stands before it.
    leaf = record("Leaf", field("n", "int"))
    tree = record("T2", field("next", ["null", "T2", leaf, "string"]))
    node = {"next": ("shop.T2", {"next": ("shop.Leaf", {"n": 1})})}
    row = order.rows(order.event([field("t", tree, default={"next": None})], {"next": node}))[0]
    assert row["t"]["next"]["T2"] == '{"next":["shop.T2",{"next":["shop.Leaf",{"n":1}]}]}'


def test_an_event_too_deep_in_itself_is_rejected_and_its_neighbours_are_rows(order: Order) -> None:
    fields = [field("tree", TREE)]
    good = order.event(fields, {"next": {"next": None}})
    for links in (DEPTH_MAX, 1_100, 10_000):
        for found in (
            order.columns.decode([good, good[:5] + b"\2" * links + b"\0", good]),
            order.columns.decode_in_python([good, good[:5] + b"\2" * links + b"\0", good]),
        ):
            assert found.batch.column("tree").to_pylist() == [{"next": '{"next":null}'}] * 2
            (rejected,) = found.rejected
            assert rejected == (1, f"the event nests more than {DEPTH_MAX} deep")


def test_types_that_nest_too_deep_for_columns_are_rejected(order: Order) -> None:
    good = order.event([field("a", "int")], 1)
    kinds = [record("R0", field("a", "int"))]
    kinds += [record(f"R{number}", field("a", f"R{number - 1}")) for number in range(1, 400)]
    *parts, whole = map(json.dumps, [*kinds, record("Order", field("deep", "R399"))])
    deep = RegisteredSchema(whole, tuple(parts), subjects=(SUBJECT,))
    assert len(order.rows(good)) == 1
    order.columns._codec.learn({99: deep})
    order.registry.is_down = True  # what was learnt is asked for
    found = order.columns.decode([good, id_prefix(99) + b"\0", good])
    assert found.batch.num_rows == 2
    ((index, reason),) = found.rejected
    assert (index, "RecursionError" in reason or "too deep" in reason) == (1, True)


def test_a_record_that_is_called_an_error_is_a_record(order: Order) -> None:
    fields = [field("a", {**ADDRESS, "type": "error"})]
    assert order.rows(order.event(fields, {"zip": 1})) == [{"a": {"zip": 1}}]


def test_reserved_names_and_names_that_differ_by_case_are_told_apart(order: Order) -> None:
    fields = [field("hour", "int"), field("Amount", "int"), field("amount", "int")]
    row = {"event_hour": 1, "Amount": 2, "amount_2": 3}
    assert order.rows(order.event(fields, 1, 2, 3)) == [row]


@pytest.mark.parametrize("names", [("hour", "event_hour"), ("event_hour", "hour")])
def test_a_field_called_as_anothers_column_is_a_column_too(
    order: Order, names: tuple[str, str]
) -> None:
    event = order.event([field(name, "int") for name in names], *map(len, names))
    assert order.rows(event) == [
        dict(zip(map("event_{}".format, names), map(len, names), strict=True))
    ]
    alone = order.event([field("event_hour", "int")], 7)
    assert order.rows(alone)[0]["event_event_hour"] == 7
    again = Order(order.registry)
    again.columns = EventColumns(TOPIC, order.columns._codec, order.columns.table_schema)
    assert again.rows(event, alone) == order.rows(event, alone)


def test_names_that_are_taken_inside_of_a_record_take_nothing_of_another(
    versions: "Versions",
) -> None:
    fields = [field("a", "int"), field("A", "int"), field("A_2", "int")]
    for kind, value in (
        (record("R", *fields), {"a": 1, "A": 2, "A_2": 3}),
        (
            {"type": "map", "values": record("R", *fields)},
            {"k": {"a": 1, "A": 2, "A_2": 3}},
        ),
    ):
        row = Order(versions.registry).rows(versions.event([field("r", kind)], value))[0]
        found = row["r"]
        inner = found if isinstance(found, dict) else found[0][1]
        assert sorted(inner.values()) == [1, 2, 3]


class Versions(Order):
    """The events of one topic whose versions need not be compatible."""

    def __init__(self, registry: DirectRegistry) -> None:
        super().__init__(registry)
        registry.ask("PUT", f"/config/{SUBJECT}", b'{"compatibility":"NONE"}')

    def after(self, *payloads: bytes) -> "Versions":
        """The same in a later load than those of these events."""
        later = Versions(self.registry)
        self.columns.decode(payloads)
        later.columns = EventColumns(TOPIC, self.columns._codec, self.columns.table_schema)
        return later

    def reason(self, payload: bytes) -> str:
        """Why the event is not taken; it must leave the columns as they are."""
        before = self.columns.event_schema
        (rejected,) = self.columns.decode([payload]).rejected
        assert self.columns.event_schema == before
        return rejected.reason


@pytest.fixture
def versions(registry: DirectRegistry) -> Versions:
    return Versions(registry)


@pytest.mark.parametrize("second", ["amount_long", "AMOUNT_long"])
def test_a_promoted_field_beside_one_of_the_new_columns_name_is_not_taken(
    versions: Versions, second: str
) -> None:
    narrow = versions.event([field("amount", "int"), field(second, "long")], 1, 2)
    wide = versions.event([field("amount", "long"), field(second, "long")], 10**12, 7)
    later = versions.after(narrow)
    said = f"column amount_long would have the values of amount and of {second}"
    assert said in later.reason(wide)
    assert later.rows(narrow) == [{"amount": 1, second: 2}]


def test_of_two_fields_with_the_alias_of_a_column_the_second_is_a_new_one(
    versions: Versions,
) -> None:
    old = versions.event([field("a", "int")], 1)
    both = [field("b", "int", aliases=["a"]), field("c", "int", aliases=["a"])]
    row = {"a": 5, "c": 6}
    assert versions.after(old).rows(versions.event(both, 5, 6)) == [row]
    assert versions.after(old, versions.event(both, 5, 6)).rows(
        versions.event(both[::-1], 6, 5)
    ) == [row]


def test_a_field_whose_very_name_is_a_column_has_it(versions: Versions) -> None:
    old = versions.event([field("Foo", "int")], 1)
    other = versions.event([field("foo", "int"), field("Foo", "int")], 2, 3)
    later = versions.after(old)
    assert later.rows(old, other) == [{"Foo": 1, "foo_2": None}, {"Foo": 3, "foo_2": 2}]
    assert later.after(other).rows(other) == [{"Foo": 3, "foo_2": 2}]
    turned = versions.event([field("Foo", "int"), field("foo", "int")], 3, 2)
    assert later.after(turned).rows(turned, other) == [{"Foo": 3, "foo_2": 2}] * 2
    assert versions.after(turned).rows(other) == [{"Foo": 3, "foo_2": 2}]


def test_a_table_that_has_the_second_of_two_names_keeps_what_is_in_which(
    versions: Versions,
) -> None:
    both = versions.event([field("foo", "int"), field("Foo", "int")], 2, 3)
    columns = pa.schema(
        [*HEADER_FIELDS, pa.field("Foo", pa.int32()), pa.field("Foo_2", pa.int32())]
    )
    versions.columns = EventColumns(TOPIC, versions.columns._codec, columns)
    assert versions.rows(both) == [{"Foo": 2, "Foo_2": 3}]


def test_a_column_that_may_be_of_either_of_two_fields_has_neither(versions: Versions) -> None:
    both = versions.event([field("hour", "int"), field("event_hour", "int")], 1, 2)
    for name in ("hour", "event_hour"):
        one = versions.event([field(name, "int")], 3)
        assert "event_hour may be that of" in versions.after(one).reason(both)


INSIDE: list[Any] = [
    lambda kind: kind,
    lambda kind: {"type": "array", "items": kind},
    lambda kind: {"type": "map", "values": kind},
    lambda kind: record("Outer", field("inner", {"type": "array", "items": kind})),
]
WRAPPED: list[Any] = [
    lambda value: value,
    lambda value: [value],
    lambda value: {"k": value},
    lambda value: {"inner": [value]},
]


def unwrapped(value: Any) -> Any:
    """What is inside of it, as a column has it."""
    while not isinstance(value, dict) or "inner" in value:
        value = value["inner"] if isinstance(value, dict) else value[-1]
    return value


@pytest.mark.parametrize("nesting", range(4), ids=["record", "array", "map", "record of array"])
def test_a_field_inside_of_a_record_changes_its_case_and_keeps_its_values(
    versions: Versions, nesting: int
) -> None:
    def event(name: str, value: int, *more: Any) -> bytes:
        kind = record("I", field(name, "int"), *(field(each, "int") for each in more))
        inner = {name: value, **dict.fromkeys(more, 9)}
        return versions.event([field("r", INSIDE[nesting](kind))], WRAPPED[nesting](inner))

    later = versions.after(event("a", 1, "b"))
    found = later.rows(event("a", 1, "b"), event("A", 2, "b"), event("B", 3), event("A", 4, "c"))
    assert [unwrapped(row["r"]) for row in found] == [
        {"a": 1, "b": 9, "c": None},
        {"a": 2, "b": 9, "c": None},
        {"a": None, "b": 3, "c": None},
        {"a": 4, "b": None, "c": 9},
    ]


def test_two_fields_inside_of_a_record_that_may_have_changed_places_are_not_taken(
    versions: Versions,
) -> None:
    def event(**fields: int) -> bytes:
        kind = record("I", *(field(name, "int") for name in fields))
        return versions.event([field("r", kind)], fields)

    for first, second in [
        (event(Foo=1), event(foo=2, Foo=3)),
        (event(Foo=1, foo=2), event(foo=2, Foo=1)),
        (event(foo=1), event(Foo=2, foo=3)),
    ]:
        assert "differ by case only" in Versions(versions.registry).after(first).reason(second)
        assert Versions(versions.registry).after(second).rows(second)


def test_files_of_two_tasks_have_the_same_names_inside_of_records() -> None:
    def schema(*names: str) -> pa.Schema:
        struct = pa.struct([(name, pa.int32()) for name in names])
        return pa.schema([("r", pa.list_(struct)), ("m", pa.map_(pa.string(), struct))])

    assert joined(schema("a"), schema("a", "b")) == schema("a", "b")
    with pytest.raises(TypesDiffer, match="column r is list<item: struct<a: int32>> in the table"):
        joined(schema("a"), schema("A"))


CREATED = record("Created", field("id", "int"))
DELETED = record("Deleted", field("id", "int"))
WITH_MORE = record("Created", field("id", "int"), field("by", ["null", "string"], default=None))
RENAMED = record("Renamed", field("id", "int"), field("to", "string"))


def event_of(versions: Order, kinds: list[Any], name: str, **value: Any) -> bytes:
    return versions.event([field("u", kinds)], (f"shop.{name}", value))


def test_a_member_of_a_union_keeps_its_column_wherever_it_stands(versions: Versions) -> None:
    first = event_of(versions, [CREATED, DELETED], "Deleted", id=1)
    turned = event_of(versions, [DELETED, CREATED], "Deleted", id=2)
    more = event_of(versions, [RENAMED, "null", WITH_MORE, DELETED], "Deleted", id=3)
    grown = event_of(versions, [RENAMED, "null", WITH_MORE, DELETED], "Created", id=4, by="x")
    found = versions.rows(first, turned, more, grown)
    assert [{name: value for name, value in row["u"].items() if value} for row in found] == [
        {"Deleted": {"id": 1}},
        {"Deleted": {"id": 2}},
        {"Deleted": {"id": 3}},
        {"Created": {"id": 4, "by": "x"}},
    ]


def test_a_named_type_that_comes_into_a_union_leaves_the_others_their_columns(
    versions: Versions,
) -> None:
    first = versions.event([field("u", ["string", CREATED, "int"])], 1)
    second = versions.event([field("u", [DELETED, "string", COLOUR, CREATED, "int"])], 2)
    none = {"member0": None, "Created": None, "Deleted": None, "C": None}
    assert versions.after(first).rows(first, second) == [
        {"u": {**none, "member1": number}} for number in (1, 2)
    ]


def test_members_of_one_name_in_two_namespaces_are_two_columns(versions: Versions) -> None:
    kinds = [{**CREATED, "namespace": "a"}, {**CREATED, "namespace": "b"}]
    for number, kind in enumerate(kinds):
        event = versions.event([field("u", kinds)], (f"{'ab'[number]}.Created", {"id": number}))
        row = {"a_Created": None, "b_Created": None, f"{kind['namespace']}_Created": {"id": number}}
        assert versions.rows(event) == [{"u": row}]


def by_number(versions: Versions, *members: pa.DataType) -> Versions:
    """The topic with a table of an earlier version, whose members have numbers."""
    numbered = pa.struct([(f"member{n}", kind) for n, kind in enumerate(members)])
    columns = pa.schema(
        [*HEADER_FIELDS, pa.field("u", numbered), pa.field("l", pa.list_(numbered))]
    )
    found = Versions(versions.registry)
    found.columns = EventColumns(TOPIC, versions.columns._codec, columns)
    return found


ID = pa.struct([("id", pa.int32())])
ID_AND_TO = pa.struct([("id", pa.int32()), ("to", pa.string())])


def test_members_in_a_table_of_an_earlier_version_keep_their_numbers(versions: Versions) -> None:
    one = event_of(versions, [CREATED, RENAMED, "string"], "Renamed", id=1, to="x")
    assert by_number(versions, ID, ID_AND_TO, pa.string()).rows(one) == [
        {"l": None, "u": {"member0": None, "member1": {"id": 1, "to": "x"}, "member2": None}}
    ]
    kind = {"type": "array", "items": [CREATED, RENAMED, DELETED]}
    several = versions.event([field("l", kind)], [("shop.Deleted", {"id": 2})])
    row = {"member0": None, "member1": None, "member2": {"id": 2}}
    assert by_number(versions, ID, ID_AND_TO).rows(several) == [{"u": None, "l": [row]}]
    unlike = record("Unlike", field("k", "int"))
    grown = record("Unlike", field("k", "int"), field("more", "int"))
    known = by_number(versions, ID, pa.struct([("k", pa.int32())]))
    for kinds, value in (([CREATED, grown], {"k": 1, "more": 2}), ([CREATED, unlike], {"k": 1})):
        found = known.rows(event_of(versions, kinds, "Unlike", **value))
        assert found[0]["u"]["member1"] == {"more": None, **value}


def test_members_with_numbers_that_may_have_changed_places_are_not_taken(
    versions: Versions,
) -> None:
    known = by_number(versions, ID, ID_AND_TO)
    for kinds in ([RENAMED, CREATED], [COLOUR, CREATED, RENAMED], [WITH_MORE, RENAMED]):
        name = "Renamed" if RENAMED in kinds else "Created"
        reason = known.reason(event_of(versions, kinds, name, id=1, to="x"))
        assert "in the table its members have numbers" in reason


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
        assert "is not a schema of the topic" in reasons[2]
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
