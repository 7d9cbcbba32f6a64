"""Verdicts of compatibility: by example with their paths, and against what fastavro can read."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.services.schema_registry.compatibility import LEVELS, can_read, check
from tests.unit.services.schema_registry.schemas import (
    SAMPLES,
    Json,
    array,
    enum,
    field,
    fixed,
    map_of,
    reads,
    record,
    root,
)

A = field("a", "int")
B = field("b", "int")
NEXT = field("next", ["null", "R"])
Z = field("z", "int", aliases=["a"])
X_Y = enum("E", "X", "Y")


def reasons(reader: Json, writer: Json) -> list[tuple[str, str]]:
    return [(reason.kind, reason.path) for reason in can_read(root(reader), root(writer))]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("double", "long"),
        ("string", "bytes"),
        (["null", "long"], "int"),
        ("long", ["int", "long"]),
        (record(A, field("b", "int", default=1)), record(A)),
        (record(A), record(A, B)),
        (record(field("z", "int", aliases=["a"])), record(A)),
        (record(A, field("z", "int", aliases=["a", "b"])), record(A, B)),
        (record(A, field("z", "string", aliases=["a"], default="")), record(A)),
        (record(field("a", "int", aliases=["a", "b", "b"])), record(A)),
        (record(A, name="S", aliases=["R"]), record(A)),
        (enum("E", "X", default="X"), X_Y),
        (record(NEXT), record(NEXT, A)),
    ],
)
def test_can_be_read(reader, writer) -> None:
    assert reasons(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "path"),
    [
        ("int", "long", "TYPE_MISMATCH", "/"),
        (record(A, B), record(A), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1"),
        (record(field("a", "string")), record(A), "TYPE_MISMATCH", "/fields/0/type"),
        # What is read into one field is not there for another's alias: the last of them has it.
        (record(A, Z), record(A), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1"),
        (record(Z, A), record(A), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0"),
        (
            record(Z, {**Z, "name": "y"}),
            record(A),
            "READER_FIELD_MISSING_DEFAULT_VALUE",
            "/fields/0",
        ),
        # Of two fields of the writer for one: fastavro takes one or fails, by their order.
        (record({**B, "aliases": ["a"]}), record(A, B), "NAME_MISMATCH", "/fields/0/aliases"),
        (
            record(field("c", "int", aliases=["b", "a"], default=0)),
            record(A, B),
            "NAME_MISMATCH",
            "/fields/0/aliases",
        ),
        (enum("E", "X"), X_Y, "MISSING_ENUM_SYMBOLS", "/symbols"),
        (fixed("F", 3), fixed("F", 4), "FIXED_SIZE_MISMATCH", "/size"),
        (record(A, name="S"), record(A), "NAME_MISMATCH", "/name"),
        (["null", "int"], "string", "MISSING_UNION_BRANCH", "/"),
        ("int", ["null", "int"], "TYPE_MISMATCH", "/"),
        (map_of(array("int")), map_of(array("string")), "TYPE_MISMATCH", "/values/items"),
        (record(NEXT, A), record(NEXT), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1"),
    ],
)
def test_cannot_be_read_and_says_where(reader, writer, kind, path) -> None:
    assert set(reasons(reader, writer)) == {(kind, path)}


def test_a_refusal_names_the_field_and_the_version() -> None:
    plain, more = root(record(A)), root(record(A, B))
    for level in ("BACKWARD", "FULL", "FULL_TRANSITIVE"):
        assert any("'b' at path '/fields/1'" in line for line in check(level, more, [(1, plain)]))
    lines = check("BACKWARD_TRANSITIVE", more, [(2, more), (1, plain)])
    assert "{oldSchemaVersion: 1}" in lines


def test_a_deep_chain_and_wide_unions_are_no_work() -> None:
    chain: Json = ["null"]
    for number in range(3000):
        before = "int" if number == 0 else f"R{number - 1}"
        chain.append(record(field("f", before), name=f"R{number}"))
    assert reasons(chain, chain) == []
    changed = copy.deepcopy(chain)
    changed[1]["fields"].append(field("must", "int"))
    ((kind, path),) = reasons(changed, chain)
    assert kind == "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert path.endswith("/fields/1")


# --- against fastavro ------------------------------------------------------------------------

PRIMITIVES = st.sampled_from(sorted(SAMPLES))
UNIONS = st.lists(PRIMITIVES, min_size=1, max_size=3, unique=True)
SIMPLE = PRIMITIVES | UNIONS
NESTED = SIMPLE | SIMPLE.map(array) | SIMPLE.map(map_of)
TYPES = NESTED | NESTED.map(array) | NESTED.map(map_of)
# Named types as real schemas use them, in versions that differ a little.
NAMED = st.sampled_from(
    [
        enum("E", "A", "B"),
        enum("E", "A", "B", "C"),
        enum("E", "A", default="A"),
        record(field("x", "int"), name="N"),
        record(field("x", "long"), field("y", "int", default=0), name="N"),
        record(field("z", "string"), name="N"),
    ]
)
DEFAULTS = {"null": None, "int": 7, "long": 7, "double": 7}


@st.composite
def histories(draw: st.DrawFn) -> list[Json]:
    """Versions of one record, oldest first. Most fields keep their type, or all is incompatible."""
    versions: list[Json] = []
    types: dict[str, Json] = {}
    for number in range(draw(st.integers(2, 4))):
        names = draw(st.lists(st.sampled_from("abcn"), unique=True))
        fields: list[Json] = []
        for name in names:
            if name not in types or draw(st.booleans()):
                new = NAMED if name == "n" else st.sampled_from(["int", "long", "double"]) | TYPES
                types[name] = draw(new)
            made = field(name, types[name])
            first = types[name][0] if isinstance(types[name], list) else types[name]
            if isinstance(first, str) and first in DEFAULTS and draw(st.booleans()):
                made["default"] = DEFAULTS[first]
            fields.append(made)
        for new_name in draw(st.sets(st.sampled_from([f"new_{number}", f"newer_{number}"]))):
            old = draw(st.sampled_from("abc"))  # it may be there by its own name as well
            renamed = field(new_name, types.get(old, "int"), aliases=[old])
            if renamed["type"] in ("int", "long") and draw(st.booleans()):
                renamed["default"] = 7
            fields.insert(draw(st.integers(0, len(fields))), renamed)
        versions.append(record(*fields))
    return versions


@settings(max_examples=200)
@given(histories())
def test_every_level_allows_what_fastavro_reads_in_its_direction(versions) -> None:
    *old, new = versions
    back = [reads(new, other) for other in reversed(old)]
    forth = [reads(other, new) for other in reversed(old)]
    allowed = {
        "NONE": True,
        "BACKWARD": back[0],
        "FORWARD": forth[0],
        "FULL": back[0] and forth[0],
        "BACKWARD_TRANSITIVE": all(back),
        "FORWARD_TRANSITIVE": all(forth),
        "FULL_TRANSITIVE": all(back) and all(forth),
    }
    stored = [(number, root(version)) for number, version in enumerate(old, start=1)][::-1]
    assert {level: check(level, root(new), stored) == [] for level in LEVELS} == allowed
