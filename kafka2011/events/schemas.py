"""The shipped schemas: each file of `schemas/` here, parsed once, by topic and by MD5.

The fingerprint is the MD5 of the Avro Parsing Canonical Form, so doc texts, defaults and logical
types can change without changing it. `physical_schema` is the same schema without logical types: it
encodes and decodes a time as whole milliseconds, which is faster than a datetime and cannot fail on
a hostile value; the fingerprint is the same by definition.
"""

import functools
import json
from importlib import resources
from typing import Any

import fastavro.schema

from kafka2011.events.errors import UnknownSchema

Schema = dict[str, Any]

FINGERPRINT_BYTES = 16


@functools.cache
def schema_text(name: str) -> str:
    """The shipped file of that name. Raises UnknownSchema when there is none."""
    if name not in names():  # the name may come from any client: never use it as a path
        raise UnknownSchema(f"no schema is shipped for {name!r}")
    file = resources.files("kafka2011.events") / "schemas" / f"{name}.avsc"
    return file.read_text(encoding="utf-8")


@functools.cache
def schema_named(name: str) -> Schema:
    """The parsed schema of a file of `kafka2011/events/schemas`."""
    parsed: Schema = fastavro.schema.parse_schema(json.loads(schema_text(name)))
    return parsed


@functools.cache
def physical_schema(name: str) -> Schema:
    """The parsed schema without logical types, as the codec uses it."""
    plain = without_logical_types(json.loads(schema_text(name)))
    parsed: Schema = fastavro.schema.parse_schema(plain)
    return parsed


def fingerprint(schema: Schema) -> bytes:
    """MD5 of the Parsing Canonical Form, 16 bytes."""
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "MD5"))


@functools.cache
def fingerprint_of_name(name: str) -> bytes:
    return fingerprint(schema_named(name))


@functools.cache
def names() -> tuple[str, ...]:
    """Every shipped schema's name, sorted."""
    files = (resources.files("kafka2011.events") / "schemas").iterdir()
    return tuple(sorted(f.name.removesuffix(".avsc") for f in files if f.name.endswith(".avsc")))


@functools.cache
def _names_by_fingerprint() -> dict[bytes, str]:
    return {fingerprint_of_name(name): name for name in names()}


def shipped_name(md5: bytes) -> str | None:
    """The name of the shipped schema with that fingerprint, None if there is none."""
    return _names_by_fingerprint().get(bytes(md5))


def name_by_fingerprint(md5: bytes) -> str:
    """The name of the shipped schema with that fingerprint. Raises UnknownSchema."""
    name = shipped_name(md5)
    if name is None:
        raise UnknownSchema(f"no shipped schema has the fingerprint {bytes(md5).hex()}")
    return name


def without_logical_types(node: Any) -> Any:
    """A schema's JSON without logical types: times are plain numbers."""
    if isinstance(node, dict):
        kept = {k: without_logical_types(v) for k, v in node.items() if k != "logicalType"}
        return kept["type"] if set(kept) == {"type"} else kept
    if isinstance(node, list):
        return [without_logical_types(part) for part in node]
    return node
