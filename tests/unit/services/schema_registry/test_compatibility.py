"""Verdicts of compatibility: by example with their paths, and against what fastavro can read."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.services.schema_registry.avro import parse
from kafka2011.services.schema_registry.compatibility import LEVELS, can_read, check

Json = Any


def record(*fields: Json, name: str = "R", **more: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def reasons(reader: Json, writer: Json) -> list[tuple[str, str]]:
    found = can_read(parse(json.dumps(reader)).root, parse(json.dumps(writer)).root)
    return [(reason.kind, reason.path) for reason in found]


A = {"name": "a", "type": "int"}
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("double", "long"),
        ("string", "bytes"),
        (["null", "long"], "int"),
        ("long", ["int", "long"]),
        (record(A, {"name": "b", "type": "int", "default": 1}), record(A)),
        (record(A), record(A, {"name": "b", "type": "int"})),
        (record({"name": "z", "type": "int", "aliases": ["a"]}), record(A)),
        (record(A, name="S", aliases=["R"]), record(A)),
        ({**ENUM, "symbols": ["X"], "default": "X"}, ENUM),
        (
            record({"name": "next", "type": ["null", "R"]}),
            record({"name": "next", "type": ["null", "R"]}, A),
        ),
    ],
)
def test_can_be_read(reader: Json, writer: Json) -> None:
    assert reasons(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "path"),
    [
        ("int", "long", "TYPE_MISMATCH", "/"),
        (record(A, {"name": "b", "type": "int"}), record(A), "READER_FIELD_MISSING", "/fields/1"),
        (record({**A, "type": "string"}), record(A), "TYPE_MISMATCH", "/fields/0/type"),
        ({**ENUM, "symbols": ["X"]}, ENUM, "MISSING_ENUM_SYMBOLS", "/symbols"),
        (
            {"type": "fixed", "name": "F", "size": 3},
            {"type": "fixed", "name": "F", "size": 4},
            "FIXED_SIZE_MISMATCH",
            "/size",
        ),
        (record(A, name="S"), record(A), "NAME_MISMATCH", "/name"),
        (["null", "int"], "string", "MISSING_UNION_BRANCH", "/"),
        ("int", ["null", "int"], "TYPE_MISMATCH", "/"),
        (
            {"type": "map", "values": {"type": "array", "items": "int"}},
            {"type": "map", "values": {"type": "array", "items": "string"}},
            "TYPE_MISMATCH",
            "/values/items",
        ),
        (
            record({"name": "next", "type": ["null", "R"]}, A),
            record({"name": "next", "type": ["null", "R"]}),
            "READER_FIELD_MISSING",
            "/fields/1",
        ),
    ],
)
def test_cannot_be_read_and_says_where(reader: Json, writer: Json, kind: str, path: str) -> None:
    (found,) = set(reasons(reader, writer))
    assert found[0].startswith(kind)
    assert found[1] == path


def test_levels_look_in_their_direction_and_as_far_back_as_they_say() -> None:
    plain = parse(json.dumps(record(A))).root
    more = parse(json.dumps(record(A, {"name": "b", "type": "int"}))).root
    assert check("NONE", more, [(1, plain)]) == []
    assert check("FORWARD", more, [(1, plain)]) == []
    for level in ("BACKWARD", "FULL", "FULL_TRANSITIVE"):
        assert any("'b' at path '/fields/1'" in line for line in check(level, more, [(1, plain)]))
    older = [(2, more), (1, plain)]
    assert check("BACKWARD", more, older) == []
    assert "{oldSchemaVersion: 1}" in check("BACKWARD_TRANSITIVE", more, older)
    assert check("FORWARD", plain, older) != []


def test_a_deep_chain_and_wide_unions_are_no_work() -> None:
    chain: Json = ["null"]
    for number in range(3000):
        before = "int" if number == 0 else f"R{number - 1}"
        chain.append(record({"name": "f", "type": before}, name=f"R{number}"))
    assert reasons(chain, chain) == []
    changed = json.loads(json.dumps(chain))
    changed[1]["fields"].append({"name": "must", "type": "int"})
    ((kind, path),) = reasons(changed, chain)
    assert kind == "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert path.endswith("/fields/1")


# --- against fastavro ------------------------------------------------------------------------

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def types(depth: int) -> st.SearchStrategy[Json]:
    simple = st.sampled_from(PRIMITIVES)
    if depth == 0:
        return simple
    inner = types(depth - 1)
    return st.one_of(
        simple,
        st.builds(lambda t: {"type": "array", "items": t}, inner),
        st.builds(lambda t: {"type": "map", "values": t}, inner),
        st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True),
    )


FIELDS = st.dictionaries(st.sampled_from("abc"), types(2), max_size=3)


@st.composite
def readers_and_writers(draw: st.DrawFn) -> tuple[Json, Json]:
    written = draw(FIELDS)
    wanted = draw(FIELDS)
    for name in list(wanted):  # mostly the same or nearly the same types, or all is incompatible
        if name in written and draw(st.booleans()):
            wanted[name] = draw(st.sampled_from([written[name], "double", "long"]))
    reader = []
    for name, type_ in wanted.items():
        made: Json = {"name": name, "type": type_}
        if draw(st.booleans()) and type_ in ("null", ["null"]):
            made["default"] = None
        elif draw(st.booleans()) and type_ in ("int", "long"):
            made["default"] = 7
        elif name not in written and draw(st.booleans()):
            made["aliases"] = [draw(st.sampled_from("abc"))]
        reader.append(made)
    used = [alias for made in reader for alias in made.get("aliases", ())]
    if len(set(used)) != len(used) or set(used) & set(wanted):
        reader = [{k: v for k, v in made.items() if k != "aliases"} for made in reader]
    writer = [{"name": name, "type": type_} for name, type_ in written.items()]
    return record(*reader), record(*writer)


def some_value(type_: Json, pick: int) -> Json:
    """A value of the type; `pick` chooses the branch of unions and whether containers are full."""
    if isinstance(type_, list):
        return some_value(type_[pick % len(type_)], pick)
    if isinstance(type_, dict):
        inner = type_.get("items", type_.get("values"))
        value = some_value(inner, pick)
        return [value] if type_["type"] == "array" else {"k": value}
    return {
        "null": None,
        "boolean": True,
        "int": 1,
        "long": 2**40,
        "float": 0.5,
        "double": 1e300,
        "bytes": b"ab",
        "string": "ab",
    }[type_]


@settings(max_examples=150, deadline=None)
@given(readers_and_writers())
def test_the_verdict_is_what_fastavro_can_really_read(pair: tuple[Json, Json]) -> None:
    reader, writer = pair
    can = reasons(reader, writer) == []
    parsed_writer = fastavro.parse_schema(writer)
    parsed_reader = fastavro.parse_schema(reader)
    failures = []
    for pick in range(6):
        value = {f["name"]: some_value(f["type"], pick) for f in writer["fields"]}
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed_writer, value)
        written.seek(0)
        try:
            fastavro.schemaless_reader(written, parsed_writer, parsed_reader)
        except Exception as error:
            failures.append(error)
    assert can == (not failures), (can, failures)


# Named types as real schemas use them, each in versions that differ a little.
NAMED: tuple[Json, ...] = (
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]},
    {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
    {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int"}]},
    {
        "type": "record",
        "name": "N",
        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "int", "default": 0}],
    },
    {"type": "record", "name": "N", "fields": [{"name": "z", "type": "string"}]},
)


@st.composite
def histories(draw: st.DrawFn) -> list[Json]:
    """Versions of one schema, oldest first; each field of one of a few types in each."""
    found = []
    for _ in range(draw(st.integers(2, 4))):
        fields = []
        if draw(st.booleans()):
            fields.append({"name": "a", "type": draw(st.sampled_from(NAMED))})
        if draw(st.booleans()):
            made: Json = {"name": "b", "type": draw(st.sampled_from(["int", "long", "double"]))}
            fields.append({**made, "default": 1} if draw(st.booleans()) else made)
        if draw(st.booleans()):
            fields.append({"name": "c", "type": ["null", "string"], "default": None})
        found.append(record(*fields))
    return found


def values_of(node: Json) -> list[Json]:
    """Values that show what a reader of the type cannot take."""
    if isinstance(node, list):
        return [value for branch in node for value in values_of(branch)]
    if isinstance(node, dict) and node["type"] == "enum":
        return list(node["symbols"])
    if isinstance(node, dict):
        parts = {part["name"]: values_of(part["type"]) for part in node["fields"]}
        count = max(map(len, parts.values()), default=1)
        return [{n: v[pick % len(v)] for n, v in parts.items()} for pick in range(count)]
    return [some_value(node, 0)]


def really_reads(reader: Json, writer: Json) -> bool:
    parsed_writer, parsed_reader = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for value in values_of(writer):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed_writer, value)
        written.seek(0)
        try:
            fastavro.schemaless_reader(written, parsed_writer, parsed_reader)
        except Exception:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(histories())
def test_every_level_allows_what_fastavro_reads_in_its_direction(versions: list[Json]) -> None:
    *old, new = versions
    back = [really_reads(new, other) for other in reversed(old)]
    forth = [really_reads(other, new) for other in reversed(old)]
    allowed = {
        "NONE": True,
        "BACKWARD": back[0],
        "FORWARD": forth[0],
        "FULL": back[0] and forth[0],
        "BACKWARD_TRANSITIVE": all(back),
        "FORWARD_TRANSITIVE": all(forth),
        "FULL_TRANSITIVE": all(back) and all(forth),
    }
    assert set(allowed) == set(LEVELS)
    stored = [(n, parse(json.dumps(v)).root) for n, v in enumerate(old, start=1)][::-1]
    root = parse(json.dumps(new)).root
    assert {level: check(level, root, stored) == [] for level in LEVELS} == allowed
