"""Hypothesis strategies that make records for any shipped schema, and events with known headers."""

from typing import Any

from hypothesis import strategies as st

from kafka2011.events.codec import encode
from kafka2011.events.schemas import Schema
from kafka2011.events.topics import PAGE_VIEW

GUIDS = st.binary(min_size=16, max_size=16)
NAMES = st.text(st.characters(codec="utf-8"), max_size=80).filter(lambda t: len(t.encode()) <= 255)
TIMES = st.integers(0, 2**63 - 1)
HEADERS = st.fixed_dictionaries({"guid": GUIDS, "time": TIMES, "server": NAMES, "service": NAMES})
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=64),
    "string": st.text(st.characters(codec="utf-8"), max_size=64),
    "kafka2011.Guid": GUIDS,
}


def values(node: Any) -> st.SearchStrategy[Any]:
    """Values of an Avro schema node as fastavro parsed it (named types in full)."""
    if isinstance(node, list):
        return st.one_of(*map(values, node))
    if isinstance(node, str):
        return PRIMITIVES[node]
    kind = node["type"]
    if kind == "record":
        return records(node)
    if kind == "array":
        return st.lists(values(node["items"]), max_size=4)
    if kind == "fixed":
        return st.binary(min_size=node["size"], max_size=node["size"])
    return values(kind)


def records(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    fields = {field["name"]: values(field["type"]) for field in schema["fields"]}
    return st.fixed_dictionaries(fields | ({"header": HEADERS} if "header" in fields else {}))


def page_view(
    time_ms: int, server: str = "frontend-1", service: str = "site", guid: bytes = bytes(16)
) -> bytes:
    """A page view with that header."""
    return encode(
        PAGE_VIEW,
        {
            "header": {"guid": guid, "time": time_ms, "server": server, "service": service},
            "event_time": time_ms,
            "member_id": 7,
            "path": "/in/ada?trk=nav",
            "referer": None,
            "status": 200,
            "bytes": 5120,
            "host": "192.0.2.7",
            "agent": "Mozilla/5.0",
        },
    )
