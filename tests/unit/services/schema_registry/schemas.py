"""Avro schemas in few words, and what fastavro says of two of them."""

import io
import json
from typing import Any

import fastavro

from kafka2011.services.schema_registry import avro

Json = Any
SAMPLES: dict[str, Json] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2**40,
    "float": 0.5,
    "double": 1e300,
    "bytes": b"ab",
    "string": "ab",
}


def record(*fields: Json, name: str = "R", **more: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Json, **more: Json) -> Json:
    return {"name": name, "type": type_, **more}


def enum(name: str, *symbols: str, **more: Json) -> Json:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def map_of(values: Json) -> Json:
    return {"type": "map", "values": values}


def fixed(name: str, size: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size}


def root(schema: Json) -> avro.Type:
    """The schema as the registry parses it."""
    return avro.parse(json.dumps(schema)).root


def reads(reader: Json, writer: Json) -> bool:
    """Whether fastavro reads with one schema whatever the other one wrote.

    Logical types are left out: fastavro would turn them into Python's own.
    """
    parsed_reader, parsed_writer = (fastavro.parse_schema(plain(one)) for one in (reader, writer))
    for value in values(plain(writer), {}):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed_writer, value)
        written.seek(0)
        try:
            fastavro.schemaless_reader(written, parsed_writer, parsed_reader)
        except Exception:
            return False
    return True


def values(node: Json, names: dict[str, Json]) -> list[Json]:
    """Values that show what a reader of the type cannot take: every symbol, every branch."""
    if isinstance(node, list):
        return [value for branch in node for value in values(branch, names)]
    if isinstance(node, str):
        return values(names[node], names) if node in names else [SAMPLES[node]]
    if "name" in node:
        names[node["name"]] = node
    match node["type"]:
        case "enum":
            return list(node["symbols"])
        case "fixed":
            return [bytes(node["size"])]
        case "array":
            return [values(node["items"], names)]
        case "map":
            return [{str(n): value for n, value in enumerate(values(node["values"], names))}]
    parts = {part["name"]: values(part["type"], names) for part in node["fields"]}
    count = max(map(len, parts.values()), default=1)
    return [{name: v[pick % len(v)] for name, v in parts.items()} for pick in range(count)]


def plain(node: Json) -> Json:
    """The schema without documentation and logical types."""
    if isinstance(node, list):
        return [plain(part) for part in node]
    if isinstance(node, dict):
        left_out = ("logicalType", "precision", "scale", "doc")
        kept = {key: plain(value) for key, value in node.items() if key not in left_out}
        return kept["type"] if set(kept) == {"type"} else kept
    return node
