"""Schemas as projects have them, changed as projects change them: the verdict, by hand and by
fastavro, which must agree. B: the new one reads the old one's data, F: the other way round."""

import copy
import json
from collections.abc import Callable

import pytest

from kafka2011.events.schemas import schema_text
from kafka2011.services.schema_registry.compatibility import check
from tests.unit.services.schema_registry.schemas import (
    Json,
    array,
    enum,
    field,
    map_of,
    reads,
    record,
    root,
)

OPTIONAL = ["null", "string"]
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
ADDRESS = record(field("street", "string"), field("zip", OPTIONAL, default=None), name="Address")
ORDER = record(
    field("id", "string"),
    field("placed_at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("amount", "int"),
    field("state", enum("State", "NEW", "PAID")),
    field("ship_to", ADDRESS),
    field("bill_to", ["null", "Address"], default=None),
    field("lines", array("string")),
    field("tags", map_of("string"), default={}),
    name="Order",
    namespace="shop.orders",
)
ROW = record(field("id", "long"), field("mail", OPTIONAL), name="Row")
CHANGE = record(
    field("op", "string"),
    field("before", ["null", ROW], default=None),
    field("after", ["null", "Row"], default=None),
    name="Envelope",
    namespace="db.customers",
)
READING = record(
    field("device", "string"),
    field("value", "float"),
    field("unit", enum("Unit", "C", "F")),
    field("history", array("float")),
    name="Reading",
)
PAGE_VIEW = json.loads(schema_text("page-view"))

Change = Callable[[Json], object]


def field_of(schema: Json, name: str) -> Json:
    return next(part for part in schema["fields"] if part["name"] == name)


def adds(name: str, type_: Json, **more: Json) -> Change:
    return lambda schema: schema["fields"].append(field(name, type_, **more))


def drops(name: str) -> Change:
    return lambda schema: schema["fields"].remove(field_of(schema, name))


def sets(name: str, /, **changed: Json) -> Change:
    return lambda schema: field_of(schema, name).update(changed)


def row_gets(name: str, type_: Json, **more: Json) -> Change:
    return lambda schema: adds(name, type_, **more)(field_of(schema, "before")["type"][1])


@pytest.mark.parametrize(
    ("old", "change", "ways"),
    [
        pytest.param(old, change, ways, id=what)
        for what, old, change, ways in [
            ("a field with a default", PAGE_VIEW, adds("lang", "string", default="en"), "BF"),
            ("a field without a default", PAGE_VIEW, adds("lang", "string"), "F"),
            ("a field goes that has no default", PAGE_VIEW, drops("host"), "B"),
            ("a field goes that has a default", PAGE_VIEW, drops("agent"), "BF"),
            ("a wider number", PAGE_VIEW, sets("status", type="long"), "B"),
            ("a narrower number", PAGE_VIEW, sets("member_id", type="int"), "F"),
            ("a number becomes a text", PAGE_VIEW, sets("status", type="string"), ""),
            ("null from now on", PAGE_VIEW, sets("path", type=OPTIONAL), "B"),
            ("null no more", PAGE_VIEW, sets("referer", type="string", default=""), "F"),
            ("another doc", PAGE_VIEW, lambda schema: schema.update(doc="other words"), "BF"),
            ("another name", PAGE_VIEW, lambda schema: schema.update(name="PageSeen"), ""),
            ("renamed", ORDER, sets("amount", name="total"), ""),
            ("with alias", ORDER, sets("amount", name="total", aliases=["amount"]), "B"),
            ("a symbol more", ORDER, sets("state", type=enum("State", "NEW", "PAID", "SENT")), "B"),
            ("a symbol less", ORDER, sets("state", type=enum("State", "NEW")), "F"),
            ("and a default", ORDER, sets("state", type=enum("State", "NEW", default="NEW")), "BF"),
            ("int to decimal", ORDER, sets("amount", type=MONEY), ""),
            ("text to bytes inside an array", ORDER, sets("lines", type=array("bytes")), "BF"),
            ("an array of more", ORDER, sets("lines", type=array(OPTIONAL)), "B"),
            ("a map of numbers", ORDER, sets("tags", type=map_of("long")), ""),
            ("an optional column", CHANGE, row_gets("name", OPTIONAL, default=None), "BF"),
            ("a required column", CHANGE, row_gets("name", "string"), "F"),
            ("float to double", READING, sets("value", type="double"), "B"),
            ("float to double in an array", READING, sets("history", type=array("double")), "B"),
            ("a union of numbers", READING, sets("value", type=["float", "long"]), "BF"),
        ]
    ],
)
def test_the_verdict(old, change, ways) -> None:
    new = copy.deepcopy(old)
    change(new)
    verdicts = {
        level: check(level, root(new), [(1, root(old))]) == []
        for level in ("BACKWARD", "FORWARD", "FULL")
    }
    assert verdicts == {"BACKWARD": "B" in ways, "FORWARD": "F" in ways, "FULL": ways == "BF"}
    assert (reads(new, old), reads(old, new)) == ("B" in ways, "F" in ways)
