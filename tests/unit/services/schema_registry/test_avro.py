"""What is a schema and what is refused, hostile ones first."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events.schemas import names, schema_text
from kafka2011.services.schema_registry.avro import Limits, parse
from kafka2011.services.schema_registry.errors import SchemaInvalid
from tests.unit.services.schema_registry.schemas import Json, enum, field, fixed, record


@pytest.mark.parametrize("name", names())
def test_the_shipped_schemas_are_schemas(name) -> None:
    assert parse(schema_text(name)).root.kind == "record"


def test_the_same_schema_written_in_two_ways_has_one_canonical_form() -> None:
    one = '{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"int"}}]}'
    two = ' {"fields":[{"type":"int","name":"x"}],"namespace":"a","name":"R","type":"record"}'
    assert parse(one).canonical == parse(two).canonical
    assert parse('"int"').canonical == parse("int").canonical == '"int"'
    assert parse("null").root.kind == "null"


def test_a_default_makes_another_schema() -> None:
    plain, with_default = record(field("x", "int")), record(field("x", "int", default=1))
    assert parse(json.dumps(plain)).canonical != parse(json.dumps(with_default)).canonical


def bomb(levels: int) -> Json:
    """Each record's default is two of the next: 2^levels values."""
    left: Json = "int"
    right, default = left, 0
    for level in range(levels):
        name = f"R{level}"
        left = record(field("l", left, default=default), field("r", right, default=default))
        left["name"] = right = name
        default = {}
    return left


def union_bomb(levels: int) -> Json:
    """A default of so many levels that fits no branch of the unions it may be in."""
    inner = record(field("f", ["null", "A", "B"]), name="B")
    outer = record(field("f", ["null", "A", inner]), name="A")
    default: Json = "fits nothing"
    for _ in range(levels):
        default = {"f": default}
    return record(field("a", outer, default=default))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "brackets deep"),
        ('"' + "x" * 10_000_000 + '"', "larger than"),
        ('{"type":"array","items":' * 70 + '"int"' + "}" * 70, "nest more than 64"),
        ("{", "not JSON"),
        ("NaN", "not JSON"),
        ('{"type":"string","rank":-1e999}', "not JSON: -1e999 is not a finite number"),
        ('{"type":"record","type":"enum","name":"E","symbols":[]}', "stands twice"),
    ],
    ids=["deep", "large", "nested", "cut", "NaN", "infinite", "twice"],
)
def test_text_that_is_refused(text, reason) -> None:
    with pytest.raises(SchemaInvalid, match=reason) as caught:
        parse(text)
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (bomb(40), "makes more than"),
        (union_bomb(60), "does not fit"),
        (3, "is not a type"),
        ({}, "is not a type"),
        ({"type": "array"}, "has no items"),
        ({"type": "enum"}, "has no name"),
        ({"type": "record", "name": "R"}, "no list of fields"),
        (record(name="1R"), "not a legal name"),
        (fixed("F", -1), "no legal size"),
        (fixed("F", True), "no legal size"),
        (enum("E", "A", "A"), "symbol twice"),
        (enum("E", "A", default="B"), "not a symbol"),
        (["int", ["null"]], "directly in a union"),
        (["int", "int"], "int twice"),
        ("Unknown", "undefined type"),
        ([record(name="A"), record(name="A")], "defined twice"),
        (record(field("x", "int"), field("x", "int")), "twice"),
        (record(field("x", "int", default="a")), "does not fit"),
        (record(field("x", "int", default=2**31)), "does not fit"),
        (record(field("x", "R", default={})), "refers to itself"),
    ],
)
def test_schemas_that_are_refused(schema, reason) -> None:
    test_text_that_is_refused(json.dumps(schema), reason)


WORDS = ["record", "enum", "fixed", "array", "map", "int", "R"]
KEYS = ["type", "name", "fields", "items", "values", "symbols", "size", "default", "aliases"]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner)


LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(WORDS)


@given(st.recursive(LEAVES, nested, max_leaves=30))
def test_any_json_is_a_schema_or_refused(node) -> None:
    try:
        parse(json.dumps(node), limits=Limits(depth=8))
    except SchemaInvalid:
        pass
