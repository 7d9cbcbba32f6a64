"""Each kind of change has its line, and what is the same has none."""

import json
from typing import Any

import pytest

from kafka2011.services.schema_registry.avro import parse
from kafka2011.services.schema_registry.changes import changes


def record(kind: Any, **more: Any) -> Any:
    fields = [{"name": "f", "type": kind, **more}]
    return {"type": "record", "name": "R", "fields": fields}


def enum(*symbols: str, **more: Any) -> Any:
    return {"type": "enum", "name": "E", "symbols": symbols, **more}


INNER = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]}
WIDER = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "long"}]}
RENAMED = {**record("int"), "fields": [{"name": "g", "type": "int", "aliases": ["f"]}]}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (record("int"), record("int"), []),
        (LIST, LIST | {"doc": "d"}, ["only docs, logical types or other attributes change"]),
        (record("int"), record("long"), ["f: int is promoted to long"]),
        (record("int"), record("string"), ["f: int becomes string"]),
        (record("int"), record("int", default=1), ["f: default none becomes 1"]),
        (record("int"), record(["null", "int"]), ["f: int becomes null or int"]),
        (record("int"), RENAMED, ["g: renamed, was f (an alias)"]),
        (
            record(["null", "int"]),
            record(["null", "long"]),
            ["f: type long added", "f: type int removed"],
        ),
        (record(enum("A")), record(enum("A", "B")), ["f: symbol B added"]),
        (
            record(enum("A")),
            record(enum("A", default="A")),
            ["f: the enum's default none becomes A"],
        ),
        (record(INNER), record(WIDER), ["f.a: int is promoted to long"]),
        (
            record({"type": "array", "items": INNER}),
            record({"type": "array", "items": WIDER}),
            ["f[].a: int is promoted to long"],
        ),
        (
            record({"type": "map", "values": "int"}),
            record({"type": "map", "values": "long"}),
            ["f{}: int is promoted to long"],
        ),
        (
            record({"type": "fixed", "name": "F", "size": 2}),
            record({"type": "fixed", "name": "F", "size": 3}),
            ["f: 2 bytes become 3"],
        ),
        (record("int"), record("int") | {"name": "S"}, ["schema: record R is named S now"]),
        ("int", "string", ["schema: int becomes string"]),
    ],
)
def test_a_change_is_said_with_its_field(old: Any, new: Any, lines: list[str]) -> None:
    assert changes(parse(json.dumps(old)), parse(json.dumps(new))) == lines
