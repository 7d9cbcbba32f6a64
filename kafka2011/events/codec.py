"""Events to payloads and back, in the 2011 form: byte 0, MD5 of the schema, Avro.

`events.topic_codec` does the same for any topic, in the form that the settings give it.

The form needs no registry: both ends ship the schemas. A payload is decoded with the schema it
was written with (fastavro's resolution into another costs 2.7 times as much); readers add or drop
columns later. Times are whole milliseconds in both directions, never datetimes.
"""

import functools
import re
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro

from kafka2011.events.bounds import BOUNDS
from kafka2011.events.errors import EventCorrupt, EventError, HeaderUnreadable
from kafka2011.events.header import FORM_BYTE
from kafka2011.events.schemas import (
    FINGERPRINT_BYTES,
    Schema,
    fingerprint_of_name,
    name_by_fingerprint,
    physical_schema,
    schema_named,
)
from kafka2011.events.topics import schema_name

Record = dict[str, Any]

BODY_START = 1 + FINGERPRINT_BYTES

# Raised by fastavro for bytes that do not match the schema.
_DECODE_FAILURES = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    RecursionError,
    struct.error,
)


_read = fastavro.schemaless_reader


def prefix_of(topic: str) -> bytes:
    """The 17 bytes that every event of the topic starts with."""
    return bytes([FORM_BYTE]) + fingerprint_of_name(schema_name(topic))


@functools.cache
def encoder(topic: str) -> Callable[[Record], bytes]:
    """A function record -> payload for one topic, with schema and prefix looked up once.

    The function raises EventError when the record does not match the schema.
    """
    return encoder_behind(prefix_of(topic), topic)


def encoder_behind(prefix: bytes, topic: str) -> Callable[[Record], bytes]:
    """`encoder` for payloads that start with `prefix` (events.topic_codec)."""
    schema = physical_schema(schema_name(topic))
    write = fastavro.schemaless_writer

    def encode_record(record: Record) -> bytes:
        body = BytesIO()
        body.write(prefix)
        try:
            write(body, schema, record)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise EventError(f"not a {topic} event: {error!r}") from error
        return body.getvalue()

    return encode_record


def encode(topic: str, record: Record) -> bytes:
    """The payload of one event. Raises EventError when the record does not match the schema."""
    return encoder(topic)(record)


def decode(payload: bytes) -> tuple[Schema, Record]:
    """The schema that the payload names, and the event.

    Raises HeaderUnreadable (not the 2011 form), UnknownSchema or EventCorrupt (also for bytes
    left over after the event): park the message, since retrying fails again.
    """
    name = schema_name_of(payload)
    return schema_named(name), decode_body(payload, BODY_START, physical_schema(name))


def schema_name_of(payload: bytes) -> str:
    """The name of the payload's shipped schema, without decoding it. Raises as `decode` does."""
    if len(payload) < BODY_START or payload[0] != FORM_BYTE:
        raise HeaderUnreadable("the payload is not in the 2011 form (byte 0 and 16 bytes of MD5)")
    return name_by_fingerprint(payload[1:BODY_START])


def decode_as(topic: str, payload: bytes) -> Record:
    """The event, which must be of the topic's schema. Raises as `decode` does."""
    wanted = schema_name(topic)
    found = schema_name_of(payload)
    if found != wanted:
        raise EventCorrupt(f"a {found} event is in topic {topic}")
    return decode_body(payload, BODY_START, physical_schema(wanted))


def decode_body(
    payload: bytes,
    start: int,
    schema: Schema,
    *,
    into: Schema | None = None,
    names_types: bool = False,
) -> Record:
    """The event of `schema` that begins at `start`. Raises EventCorrupt.

    `into`: the schema that it is resolved into, if not its own; `names_types`: a value of a named
    type in a union is a tuple of the type's name and the value.
    """
    bounds = schema.get(BOUNDS)
    if bounds is not None:
        bounds.check(payload, start)
    body = BytesIO(payload)
    body.seek(start)
    try:
        # Naming the options costs a tenth of the whole.
        record = (
            _read(body, schema, into, return_record_name=True, return_named_type=True)
            if names_types
            else _read(body, schema, into)
        )
    except fastavro.read.SchemaResolutionError:
        wanted = into["name"] if into else schema["name"]
        raise EventCorrupt(
            f"the event, a {schema['name']}, does not have the fields of a {wanted}"
        ) from None
    except _DECODE_FAILURES as error:
        # fastavro's text ends with the buffer object's address, which differs each time.
        reason = re.sub(r" from <.*>$", "", str(error)) or type(error).__name__
        raise EventCorrupt(f"the body is not a {schema['name']}: {reason}") from error
    if body.tell() != len(payload):
        raise EventCorrupt(f"{len(payload) - body.tell()} bytes are left over after the event")
    assert isinstance(record, dict)  # an event's schema is a record
    return record
