"""Events of any topic to payloads and back, in the form that the settings give the topic.

In the form `id` a topic's schemas are in the registry under the subject `<topic>-value`; a payload
is decoded with the schema of its id, which may be another version than the shipped one. The 2011
form needs no registry (events.codec).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fastavro.schema

from kafka2011.events import codec
from kafka2011.events.codec import Record
from kafka2011.events.errors import HeaderUnreadable, UnknownSchema
from kafka2011.events.forms import Form, Forms
from kafka2011.events.header import FORM_BYTE, GUID_BYTES, PREFIX_BYTES_ID
from kafka2011.events.registry_client import RegistryClient, RegistryError, RegistryRefused
from kafka2011.events.schema_cache import RegisteredSchema
from kafka2011.events.schemas import (
    Schema,
    fingerprint,
    physical_schema,
    schema_named,
    schema_text,
    shipped_name,
    without_logical_types,
)
from kafka2011.events.topics import schema_name

SCHEMAS_MAX = 10_000  # parsed and kept

_PARSE_FAILURES = (
    fastavro.schema.SchemaParseException,
    ValueError,
    KeyError,
    TypeError,
    RecursionError,
)
_HEADER_FIELDS = [("guid", "fixed"), ("time", "long"), ("server", "string"), ("service", "string")]


class RegistryMissing(RegistryError):
    """A topic is in the form `id`, and no registry is configured."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"events of {topic} carry ids of a schema registry, and none is set: set "
            f"schema.registry.url, or event.forms={topic}:2011 if they are in the 2011 form"
        )


class _Known(NamedTuple):
    """An id's schema: as parsed, and without logical types."""

    schema: Schema
    physical: Schema


def subject_of(topic: str) -> str:
    """The registry's subject of a topic's schemas."""
    return f"{topic}-value"


class TopicCodec:
    """`registry` may be None if every topic used is in the 2011 form.

    Every method may raise RegistryUnavailable (try again later; the event is not at fault),
    RegistryRefused and RegistryMissing. Thread-safe.
    """

    def __init__(self, forms: Forms, registry: RegistryClient | None = None) -> None:
        self.forms = forms
        self._registry = registry
        self._known: dict[int, _Known] = {}

    def known(self) -> dict[int, RegisteredSchema]:
        """The schemas by id that this codec has."""
        return self._registry.known() if self._registry is not None else {}

    def learn(self, schemas: Mapping[int, RegisteredSchema]) -> None:
        """Add schemas from another process."""
        if self._registry is not None and schemas:
            self._registry.learn(schemas)

    # --- writing -----------------------------------------------------------------------------

    def prefix(self, topic: str) -> bytes:
        """The bytes in front of the header of every event of the topic with the shipped schema.

        In the form `id` this registers the schema. Raises UnknownSchema when none is shipped.
        """
        if self.forms.of(topic) is Form.MD5:
            return codec.prefix_of(topic)
        if self._registry is None:
            raise RegistryMissing(topic)
        text = schema_text(schema_name(topic))
        return id_prefix(self._registry.id_of(subject_of(topic), text))

    def encoder(self, topic: str) -> Callable[[Record], bytes]:
        """A function record -> payload; it raises EventError when the record does not fit."""
        return codec.encoder_behind(self.prefix(topic), topic)

    # --- reading -----------------------------------------------------------------------------

    def decode(self, topic: str, payload: bytes) -> tuple[Schema, Record]:
        """The schema that the payload was written with, and the event.

        Raises HeaderUnreadable (not the topic's form), UnknownSchema or EventCorrupt: park the
        message, since retrying fails again.
        """
        if self.forms.of(topic) is Form.MD5:
            return codec.decode(payload)
        known = self._schema_by_id(topic, _id_of(topic, payload))
        return known.schema, codec.decode_body(payload, PREFIX_BYTES_ID, known.physical)

    def is_shipped(self, topic: str, prefix: bytes) -> bool:
        """Whether events that start with `prefix` are written with the topic's shipped schema."""
        if self.forms.of(topic) is Form.MD5:
            return prefix == codec.prefix_of(topic)
        try:
            known = self._schema_by_id(topic, _id_of(topic, prefix))
        except (HeaderUnreadable, UnknownSchema):
            return False
        return known.schema is schema_named(schema_name(topic))

    def _schema_by_id(self, topic: str, schema_id: int) -> _Known:
        found = self._known.get(schema_id)
        if found is None:
            if self._registry is None:
                raise RegistryMissing(topic)
            try:
                registered = self._registry.schema(schema_id)
            except RegistryRefused as error:
                if error.status != 404:
                    raise
                raise UnknownSchema(str(error)) from None
            found = _parsed(schema_id, registered)
            if len(self._known) >= SCHEMAS_MAX:
                self._known.clear()
            self._known[schema_id] = found
        return found


def id_prefix(schema_id: int) -> bytes:
    """The first bytes of an event in the form `id`."""
    return bytes([FORM_BYTE]) + schema_id.to_bytes(PREFIX_BYTES_ID - 1, "big")


def _id_of(topic: str, payload: bytes) -> int:
    if len(payload) < PREFIX_BYTES_ID or payload[0] != FORM_BYTE:
        raise HeaderUnreadable(
            f"the payload does not start with byte 0 and an id of 4 bytes, as topic {topic} does"
        )
    return int.from_bytes(payload[1:PREFIX_BYTES_ID], "big")


def _parsed(schema_id: int, registered: RegisteredSchema) -> _Known:
    """The shipped schema if it is the same, else the registered one. Raises UnknownSchema."""
    try:
        schema, _ = _parse_all(registered, lambda node: node)
        physical, names = _parse_all(registered, without_logical_types)
        name = shipped_name(fingerprint(schema))
        is_event = _starts_with_header(physical, names)
    except _PARSE_FAILURES as error:
        raise UnknownSchema(f"the schema with id {schema_id} cannot be read: {error!r}") from None
    if name is not None:
        return _Known(schema_named(name), physical_schema(name))
    if not is_event:
        raise UnknownSchema(f"the schema with id {schema_id} does not begin with an event's header")
    return _Known(schema, physical)


def _parse_all(
    registered: RegisteredSchema, change: Callable[[Any], Any]
) -> tuple[Schema, dict[str, Any]]:
    """The schema, and every named type that it uses."""
    names: dict[str, Any] = {}
    for text in registered.referenced:
        fastavro.schema.parse_schema(change(json.loads(text)), names)
    found = fastavro.schema.parse_schema(change(json.loads(registered.text)), names)
    if not isinstance(found, dict) or found.get("type") != "record":
        raise ValueError("not a record")
    return found, names


def _starts_with_header(schema: Schema, names: dict[str, Any]) -> bool:
    """Whether the schema begins with the fields of Header, so that the peek can read it."""
    first = schema["fields"][0] if schema["fields"] else {}
    inner = first.get("type")
    inner = names.get(inner, inner) if isinstance(inner, str) else inner
    if first.get("name") != "header" or not isinstance(inner, dict):
        return False
    found = []
    for part in inner.get("fields", ()):
        kind = part["type"]
        kind = names.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, dict):
            if kind["type"] == "fixed" and kind["size"] != GUID_BYTES:
                return False
            kind = kind["type"]
        found.append((part["name"], kind))
    return found == _HEADER_FIELDS
