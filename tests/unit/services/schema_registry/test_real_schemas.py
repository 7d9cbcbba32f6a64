"""Schemas as projects have them, changed as projects change them: the verdict, by hand and by
fastavro, which must agree. B: the new one reads the old one's data, F: the other way round."""

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from kafka2011.events.schemas import schema_text
from kafka2011.services.schema_registry.avro import parse
from kafka2011.services.schema_registry.compatibility import check

Json = Any
ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [
        {"name": "street", "type": "string"},
        {"name": "zip", "type": ["null", "string"], "default": None},
    ],
}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.orders",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "int"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "ship_to", "type": ADDRESS},
        {"name": "bill_to", "type": ["null", "Address"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}
CHANGE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "db.customers",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "before", "type": ["null", "Row"], "default": None},
        {"name": "after", "type": ["null", "Row"], "default": None},
    ],
}
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "mail", "type": ["null", "string"]}],
}
CHANGE["fields"][1]["type"][1] = ROW
READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "value", "type": "float"},
        {"name": "unit", "type": {"type": "enum", "name": "Unit", "symbols": ["C", "F"]}},
        {"name": "history", "type": {"type": "array", "items": "float"}},
    ],
}
PAGE_VIEW = json.loads(schema_text("page-view"))


def field_of(schema: Json, name: str) -> Json:
    return next(part for part in schema["fields"] if part["name"] == name)


def adds(**made: Json) -> Callable[[Json], None]:
    return lambda schema: schema["fields"].append(made)


def drops(name: str) -> Callable[[Json], None]:
    return lambda schema: schema["fields"].remove(field_of(schema, name))


def sets(name: str, /, **changed: Json) -> Callable[[Json], None]:
    return lambda schema: field_of(schema, name).update(changed)


def renames(old: str, new: str, *aliases: str) -> Callable[[Json], None]:
    return sets(old, name=new, **({"aliases": list(aliases)} if aliases else {}))


def row_gets(**made: Json) -> Callable[[Json], None]:
    return lambda schema: schema["fields"][1]["type"][1]["fields"].append(made)


def state(*symbols: str, **more: Json) -> Callable[[Json], None]:
    return sets("state", type={"type": "enum", "name": "State", "symbols": list(symbols), **more})


CASES: list[tuple[str, Json, Callable[[Json], None], str]] = [
    ("a field with a default", PAGE_VIEW, adds(name="lang", type="string", default="en"), "BF"),
    ("a field without a default", PAGE_VIEW, adds(name="lang", type="string"), "F"),
    ("a field goes that has no default", PAGE_VIEW, drops("host"), "B"),
    ("a field goes that has a default", PAGE_VIEW, drops("agent"), "BF"),
    ("a wider number", PAGE_VIEW, sets("status", type="long"), "B"),
    ("a narrower number", PAGE_VIEW, sets("member_id", type="int"), "F"),
    ("a number becomes a text", PAGE_VIEW, sets("status", type="string"), ""),
    ("null is allowed from now on", PAGE_VIEW, sets("path", type=["null", "string"]), "B"),
    ("null is not allowed any more", PAGE_VIEW, sets("referer", type="string", default=""), "F"),
    ("another doc", PAGE_VIEW, lambda schema: schema.update(doc="other words"), "BF"),
    ("another name", PAGE_VIEW, lambda schema: schema.update(name="PageSeen"), ""),
    ("renamed without alias", ORDER, renames("amount", "total"), ""),
    ("renamed with alias", ORDER, renames("amount", "total", "amount"), "B"),
    ("a symbol more", ORDER, state("NEW", "PAID", "SENT"), "B"),
    ("a symbol less", ORDER, state("NEW"), "F"),
    ("a symbol less, with a default", ORDER, state("NEW", default="NEW"), "BF"),
    ("int to decimal", ORDER, sets("amount", type=MONEY), ""),
    ("text to bytes inside an array", ORDER,
     sets("lines", type={"type": "array", "items": "bytes"}), "BF"),
    ("an array of more", ORDER,
     sets("lines", type={"type": "array", "items": ["null", "string"]}), "B"),
    ("a map of numbers", ORDER, sets("tags", type={"type": "map", "values": "long"}), ""),
    ("an optional column in a change event", CHANGE,
     row_gets(name="name", type=["null", "string"], default=None), "BF"),
    ("a required column in a change event", CHANGE, row_gets(name="name", type="string"), "F"),
    ("float to double", READING, sets("value", type="double"), "B"),
    ("float to double inside an array", READING,
     sets("history", type={"type": "array", "items": "double"}), "B"),
    ("a union of numbers", READING, sets("value", type=["float", "long"]), "BF"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "old", "change", "ways"), CASES, ids=[case[0] for case in CASES])
def test_the_verdict(what: str, old: Json, change: Callable[[Json], None], ways: str) -> None:
    new = copy.deepcopy(old)
    change(new)
    before, after = parse(json.dumps(old)).root, parse(json.dumps(new)).root
    verdicts = {level: not check(level, after, [(1, before)]) for level in ("BACKWARD", "FORWARD")}
    assert verdicts == {"BACKWARD": "B" in ways, "FORWARD": "F" in ways}
    assert verdicts == {"BACKWARD": reads(new, old), "FORWARD": reads(old, new)}
    assert (not check("FULL", after, [(1, before)])) == (ways == "BF")


def reads(reader: Json, writer: Json) -> bool:
    """By fastavro, without logical types, which it would turn into Python's own."""
    parsed_reader = fastavro.parse_schema(plain(reader))
    parsed_writer = fastavro.parse_schema(plain(writer))
    for value in values(plain(writer), {}):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed_writer, value)
        written.seek(0)
        try:
            fastavro.schemaless_reader(written, parsed_writer, parsed_reader)
        except Exception:
            return False
    return True


SAMPLES: dict[str, Json] = {"null": None, "int": 1, "long": 2**40, "float": 0.5, "double": 1e300}
SAMPLES |= {"bytes": b"ab", "string": "ab"}


def values(node: Json, names: dict[str, Json]) -> list[Json]:
    """Values that show what a reader of the type cannot take: every symbol, every branch."""
    if isinstance(node, list):
        return [value for branch in node for value in values(branch, names)]
    if isinstance(node, str):
        return values(names[node], names) if node in names else [SAMPLES[node]]
    if "name" in node:
        names[node["name"]] = node
    if node["type"] == "enum":
        return list(node["symbols"])
    if node["type"] == "fixed":
        return [bytes(node["size"])]
    if node["type"] == "array":
        return [values(node["items"], names)]
    if node["type"] == "map":
        return [dict(enumerated(values(node["values"], names)))]
    parts = {part["name"]: values(part["type"], names) for part in node["fields"]}
    count = max(map(len, parts.values()))
    return [{name: v[pick % len(v)] for name, v in parts.items()} for pick in range(count)]


def enumerated(found: list[Json]) -> list[tuple[str, Json]]:
    return [(str(number), value) for number, value in enumerate(found)]


def plain(node: Json) -> Json:
    if isinstance(node, list):
        return [plain(part) for part in node]
    if isinstance(node, dict):
        kept = {
            k: plain(v)
            for k, v in node.items()
            if k not in ("logicalType", "precision", "scale", "doc")
        }
        return kept["type"] if set(kept) == {"type"} else kept
    return node
