"""Messages of any topic to payloads and back, in the form that the settings give the topic.

In the form `id` a topic's schemas are in the registry under the subject `<topic>-value`; a payload
is decoded with the schema of its id, which may be a different version from the shipped one. The
2011 form needs no registry (events.codec). Payloads without Avro (events.plain) are only read.
"""

import functools
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro.schema

from kafka2011.events import codec, plain
from kafka2011.events.bounds import set_bounds
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
from kafka2011.events.schemas import (
    names as shipped_names,
)
from kafka2011.events.topics import schema_name

SCHEMAS_MAX = 10_000  # parsed and kept
DECIMAL_DIGITS_MAX = 38  # of a table's column
DECIMAL_BYTES_MAX = 16  # hold that many digits

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


class WriterSchema(NamedTuple):
    """The schema that a payload names: as parsed, and without logical types.

    `named`: its named types, with logical types. `has_header`: it begins with an event's header.
    """

    schema: Schema
    physical: Schema
    named: Mapping[str, Any]
    has_header: bool


def subject_of(topic: str) -> str:
    """The registry's subject of a topic's schemas."""
    return f"{topic}-value"


class TopicCodec:
    """The codec of all topics. `registry` may be None if no topic used is in the form `id`.

    Every method may raise RegistryUnavailable (try again later; the event is not at fault),
    RegistryRefused and RegistryMissing. Thread-safe.
    """

    def __init__(self, forms: Forms, registry: RegistryClient | None = None) -> None:
        self.forms = forms
        self._registry = registry
        self._known: dict[int, WriterSchema] = {}

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

        In the form `id` this registers the schema. Raises UnknownSchema when none is shipped, or
        the topic's form is not Avro.
        """
        if self.forms.of(topic) is Form.MD5:
            return codec.prefix_of(topic)
        self._avro(topic)
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
        form = self.forms.of(topic)
        if not form.is_avro:
            return {"name": form.value}, plain.record_of(form, payload)
        writer = self.writer_schema(topic, payload)
        start = self.forms.prefix_bytes(topic)
        return writer.schema, codec.decode_body(payload, start, writer.physical)

    def decode_to_show(self, topic: str, payload: bytes) -> tuple[Schema, Record]:
        """As `decode`, with decimals as Decimal instead of bytes: the values of the table's rows.

        Times and days stay whole numbers; decimals in a union of several types stay bytes.
        """
        schema, record = self.decode(topic, payload)
        if not self.forms.of(topic).is_avro:
            return schema, record
        named = self.writer_schema(topic, payload).named
        try:
            return schema, _with_decimals(schema, record, named)
        except RecursionError:  # a type that contains itself, deeply nested
            return schema, record

    def reader(self, topic: str) -> Callable[[bytes], Record]:
        """A function payload -> event with the fields of the topic's shipped schema, whichever
        version it was written with (Avro's schema resolution). The schema is looked up only when a
        payload's prefix differs from the previous one's.

        The function raises as `decode` does, EventCorrupt also for an event that does not have
        those fields. Raises UnknownSchema when no schema is shipped, or the form is not Avro.
        """
        self._avro(topic)
        wanted = physical_schema(schema_name(topic))
        start = self.forms.prefix_bytes(topic)
        prefix: bytes | None = None
        schema: Schema = wanted

        def read(payload: bytes) -> Record:
            nonlocal prefix, schema
            if payload[:start] != prefix:
                schema = self.writer_schema(topic, payload).physical
                prefix = payload[:start]
            if schema is wanted:
                return codec.decode_body(payload, start, schema)
            return codec.decode_body(payload, start, schema, into=wanted)

        return read

    def writer_schema(self, topic: str, payload: bytes) -> WriterSchema:
        """The schema that the first bytes name. Raises HeaderUnreadable, UnknownSchema."""
        if self.forms.of(topic) is Form.MD5:
            return shipped_writer(codec.schema_name_of(payload))
        self._avro(topic)
        return self._schema_by_id(topic, _id_of(topic, payload))

    def is_of_topic(self, topic: str, prefix: bytes) -> bool:
        """Whether the schema that `prefix` names is registered for the topic; always True in the
        2011 form, which has no registry."""
        if self.forms.of(topic) is Form.MD5:
            return True
        if self._registry is None:
            raise RegistryMissing(topic)
        return self._registry.is_of(_id_of(topic, prefix), subject_of(topic))

    def prefixes(self, topic: str) -> list[bytes]:
        """The first bytes of the topic's events, one per version in the registry, oldest first; in
        the 2011 form that of the shipped schema, if there is one; without Avro there are none."""
        if not self.forms.of(topic).is_avro:
            return []
        if self.forms.of(topic) is Form.MD5:
            return [codec.prefix_of(topic)] if schema_name(topic) in shipped_names() else []
        if self._registry is None:
            raise RegistryMissing(topic)
        return [id_prefix(number) for number in self._registry.ids_of(subject_of(topic))]

    def _avro(self, topic: str) -> None:
        form = self.forms.of(topic)
        if not form.is_avro:
            raise UnknownSchema(f"topic {topic} is in the form {form.value}, which has no schema")

    def _schema_by_id(self, topic: str, schema_id: int) -> WriterSchema:
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


def _with_decimals(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """A value that was decoded without logical types, with its decimals as Decimal."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        members = [member for member in schema if member != "null"]
        is_plain = value is not None and len(members) == 1
        return _with_decimals(members[0], value, named) if is_plain else value
    if not isinstance(schema, dict):
        return value
    kind = schema["type"]
    if kind == "record" and isinstance(value, dict):
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return {name: _with_decimals(types[name], each, named) for name, each in value.items()}
    if kind == "array" and isinstance(value, list):
        return [_with_decimals(schema["items"], each, named) for each in value]
    if kind == "map" and isinstance(value, dict):
        of = schema["values"]
        return {name: _with_decimals(of, each, named) for name, each in value.items()}
    if isinstance(value, bytes) and schema.get("logicalType") == "decimal":
        return _decimal(value, schema.get("scale", 0))
    return value


def _decimal(raw: bytes, scale: Any) -> Decimal | bytes:
    """The number; `raw` if it does not fit a table's column."""
    if (
        len(raw) > DECIMAL_BYTES_MAX
        or type(scale) is not int
        or not 0 <= scale <= DECIMAL_DIGITS_MAX
    ):
        return raw
    return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E-{scale}")


def id_prefix(schema_id: int) -> bytes:
    """The first bytes of an event in the form `id`."""
    return bytes([FORM_BYTE]) + schema_id.to_bytes(PREFIX_BYTES_ID - 1, "big")


def _id_of(topic: str, payload: bytes) -> int:
    if len(payload) < PREFIX_BYTES_ID or payload[0] != FORM_BYTE:
        raise HeaderUnreadable(
            "the payload does not start with byte 0 and an id of 4 bytes, but topic "
            f"{topic} has the form id (event.forms)"
        )
    return int.from_bytes(payload[1:PREFIX_BYTES_ID], "big")


@functools.cache
def shipped_writer(name: str) -> WriterSchema:
    """The shipped schema of that name. Raises UnknownSchema."""
    schema = schema_named(name)
    return WriterSchema(schema, physical_schema(name), schema["__named_schemas"], has_header=True)


def writer_of_text(text: str) -> WriterSchema:
    """A schema that may not be registered yet, from its JSON. Raises UnknownSchema."""
    return _parsed(0, RegisteredSchema(text))


def _parsed(schema_id: int, registered: RegisteredSchema) -> WriterSchema:
    """The shipped schema if it is the same, else the registered one. Raises UnknownSchema."""
    try:
        schema, named = _parse_all(registered, lambda node: node)
        physical, physical_named = _parse_all(registered, without_logical_types)
        name = shipped_name(fingerprint(schema))
        has_header = _starts_with_header(physical, physical_named)
        set_bounds(physical, physical_named)
    except _PARSE_FAILURES as error:
        raise UnknownSchema(f"the schema with id {schema_id} cannot be read: {error!r}") from None
    if name is not None:
        return shipped_writer(name)
    return WriterSchema(schema, physical, named, has_header)


def _parse_all(
    registered: RegisteredSchema, change: Callable[[Any], Any]
) -> tuple[Schema, dict[str, Any]]:
    """The schema, and every named type that it uses."""
    named: dict[str, Any] = {}
    for text in registered.referenced:
        fastavro.schema.parse_schema(change(json.loads(text)), named)
    found = fastavro.schema.parse_schema(change(json.loads(registered.text)), named)
    if not isinstance(found, dict) or found.get("type") != "record":
        raise ValueError("not a record")
    return found, named


def _starts_with_header(schema: Schema, named: dict[str, Any]) -> bool:
    """Whether the schema begins with the fields of Header, so that the peek can read it."""
    first = schema["fields"][0] if schema["fields"] else {}
    inner = first.get("type")
    inner = named.get(inner, inner) if isinstance(inner, str) else inner
    if first.get("name") != "header" or not isinstance(inner, dict):
        return False
    found = []
    for part in inner.get("fields", ()):
        kind = part["type"]
        kind = named.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, dict):
            if kind["type"] == "fixed" and kind["size"] != GUID_BYTES:
                return False
            kind = kind["type"]
        found.append((part["name"], kind))
    return found == _HEADER_FIELDS
