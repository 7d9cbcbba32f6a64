"""What is a schema and what is refused, hostile ones first (R2)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events.schemas import names, schema_text
from kafka2011.services.schema_registry.avro import Limits, parse
from kafka2011.services.schema_registry.errors import SchemaInvalid


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


@pytest.mark.parametrize("name", names())
def test_the_shipped_schemas_are_schemas(name: str) -> None:
    assert parse(schema_text(name)).root.kind == "record"


def test_the_same_schema_written_in_two_ways_has_one_canonical_form() -> None:
    one = '{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"int"}}]}'
    two = ' {"fields":[{"type":"int","name":"x"}],"namespace":"a","name":"R","type":"record"}'
    assert parse(one).canonical == parse(two).canonical
    assert parse('"int"').canonical == parse("int").canonical == '"int"'


def test_a_default_makes_another_schema() -> None:
    plain = record({"name": "x", "type": "int"})
    with_default = record({"name": "x", "type": "int", "default": 1})
    assert parse(json.dumps(plain)).canonical != parse(json.dumps(with_default)).canonical


def _bomb(levels: int) -> Any:
    """Each record's default is two of the next: 2^levels values."""
    type_: Any = "int"
    default: Any = 0
    for level in range(levels):
        type_ = record(
            {"name": "l", "type": type_, "default": default},
            {
                "name": "r",
                "type": type_ if isinstance(type_, str) else type_["name"],
                "default": default,
            },
            name=f"R{level}",
        )
        default = {}
    return type_


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "brackets deep"),
        ('"' + "x" * 10_000_000 + '"', "larger than"),
        ('{"type":"array","items":' * 70 + '"int"' + "}" * 70, "nest more than 64"),
        (json.dumps(_bomb(40)), "makes more than"),
        ("{", "not JSON"),
        ("NaN", "not JSON"),
        ("null", None),
        ("3", "is not a type"),
        ("{}", "is not a type"),
        ('{"type":"record","type":"enum","name":"E","symbols":[]}', "stands twice"),
        ('{"type":"record","name":"R"}', "no list of fields"),
        ('{"type":"record","name":"1R","fields":[]}', "not a legal name"),
        ('{"type":"fixed","name":"F","size":-1}', "no legal size"),
        ('{"type":"fixed","name":"F","size":true}', "no legal size"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "symbol twice"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "not a symbol"),
        ('["int",["null"]]', "directly in a union"),
        ('["int","int"]', "int twice"),
        ('"Unknown"', "undefined type"),
        (json.dumps([record(name="A"), record(name="A")]), "defined twice"),
        (json.dumps(record({"name": "x", "type": "int"}, {"name": "x", "type": "int"})), "twice"),
        (json.dumps(record({"name": "x", "type": "int", "default": "a"})), "does not fit"),
        (json.dumps(record({"name": "x", "type": "int", "default": 2**31})), "does not fit"),
        (json.dumps(record({"name": "x", "type": "R", "default": {}})), "refers to itself"),
    ],
)
def test_refused_with_a_reason(text: str, says: str | None) -> None:
    if says is None:
        assert parse(text).root.kind == "null"
        return
    with pytest.raises(SchemaInvalid, match=says) as caught:
        parse(text)
    assert len(caught.value.message) < 1000


def test_defaults_of_unions_of_records_are_not_tried_without_end() -> None:
    union = ["null", "A", "B"]
    inner = record({"name": "f", "type": union}, name="B")
    outer = record({"name": "f", "type": ["null", "A", inner]}, name="A")
    default: Any = "fits nothing"
    for _ in range(60):
        default = {"f": default}
    whole = record({"name": "a", "type": outer, "default": default})
    with pytest.raises(SchemaInvalid, match="does not fit"):
        parse(json.dumps(whole))


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "R"]),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "name",
                        "fields",
                        "items",
                        "values",
                        "symbols",
                        "size",
                        "default",
                        "aliases",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=30,
    )
)
def test_any_json_is_a_schema_or_refused(node: Any) -> None:
    try:
        parse(json.dumps(node), limits=Limits(depth=8))
    except SchemaInvalid:
        pass
