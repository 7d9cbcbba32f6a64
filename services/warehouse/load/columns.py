"""The columns of a topic's table, and events decoded into Arrow batches of them.

    guid, header_time, server, service      from the event's header
    the event's own fields                  in the schema's order
    source_broker, source_partition,        the partition of the message, and the next offset of
      source_offset                         its entry
    hour                                    the partition column, UTC, YYYY-MM-DD-HH

A message that cannot become a row is returned with the reason, never dropped. A payload is decoded
by the schema that it names; columns which that lacks are null. Where the topic's events carry ids,
a new id is looked up in the registry; while that is away, decoding fails and no message is judged.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka2011.events.codec import Record
from kafka2011.events.errors import EventCorrupt, EventError, UnknownSchema
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.schemas import Schema, physical_schema, schema_for
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import schema_name
from kafka2011.services.warehouse.load.fast_columns import FastDecoder, Times, fast_decoder

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER_FIELDS = (
    pa.field("guid", pa.binary()),
    pa.field("header_time", TIMESTAMP),
    pa.field("server", pa.string()),
    pa.field("service", pa.string()),
)
SOURCE_FIELDS = (
    pa.field("source_broker", pa.int32()),
    pa.field("source_partition", pa.int32()),
    pa.field("source_offset", pa.int64()),
)
HOUR_FIELD = pa.field("hour", pa.string())
_RESERVED = {column.name for column in (*HEADER_FIELDS, *SOURCE_FIELDS, HOUR_FIELD)}

# Years 1 to 9999: the range of Spark, of Python and of a four-digit hour bucket.
TIME_MS_MIN = -62_135_596_800_000
TIME_MS_MAX = 253_402_300_799_999

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("int", "date"): pa.date32(),
}

_TIMES = {
    "ms": Times(TIME_MS_MIN, TIME_MS_MAX, 1000),
    "us": Times(TIME_MS_MIN * 1000, TIME_MS_MAX * 1000 + 999, 1),
}

Convert = Callable[[Any], Any]

CODEC_2011 = TopicCodec(FORMS_2011)

# A value that decodes and does not fit its column: another version of a schema may allow any.
_DOES_NOT_FIT = (ValueError, TypeError, OverflowError, AttributeError, KeyError)


class Rejected(NamedTuple):
    """A message that is no row: its index in the list, and the reason."""

    message_index: int
    reason: str


class Decoded(NamedTuple):
    """`batch` has one row for each message that is not in `rejected`, in the same order."""

    batch: pa.RecordBatch
    rejected: list[Rejected]


@dataclass(frozen=True, slots=True)
class _Column:
    """One of the event's own fields as a column. `convert` None: the decoded value as it is."""

    name: str
    source: str
    type: pa.DataType
    convert: Convert | None
    unit: str | None  # "ms" or "us" for timestamps

    def array(self, records: Sequence[Record]) -> pa.Array:
        source = self.source
        values = [record[source] for record in records]
        if self.convert is not None:
            convert = self.convert
            values = [None if value is None else convert(value) for value in values]
        if self.unit is not None:
            return _times(values, self.unit)
        return pa.array(values, self.type)


def _times(values: Sequence[int | None], unit: str) -> pa.Array:
    """Timestamps in microseconds. Raises ArrowInvalid outside the years 1 to 9999."""
    raw = pa.array(values, pa.int64())
    bounds = pc.min_max(raw).as_py()
    lowest, highest, _ = _TIMES[unit]
    if bounds["min"] is not None and not (lowest <= bounds["min"] and bounds["max"] <= highest):
        raise pa.ArrowInvalid("a time lies outside the years 1 to 9999")
    return raw.cast(pa.timestamp(unit, tz="UTC")).cast(TIMESTAMP)


class EventColumns:
    """The columns of one topic. Raises UnknownSchema when no schema is shipped for the topic.

    The decoding methods may raise RegistryError: then no message was judged; try again.
    """

    def __init__(self, topic: str, codec: TopicCodec = CODEC_2011) -> None:
        self.topic = topic
        self._codec = codec
        self._shipped = schema_for(topic)
        self._prefix_bytes = codec.forms.prefix_bytes(topic)
        self._columns = _columns_of(self._shipped)
        self.event_schema = pa.schema(
            [*HEADER_FIELDS, *(pa.field(c.name, c.type) for c in self._columns)]
        )
        self.table_schema = pa.schema([*self.event_schema, *SOURCE_FIELDS, HOUR_FIELD])
        self._fast = fast_decoder(
            physical_schema(schema_name(topic)),
            self.event_schema,
            Times(0, TIME_MS_MAX, 1000),
            {c.source: _TIMES[c.unit] for c in self._columns if c.unit is not None},
        )
        self._fast_prefix = b""

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        """Columns of `event_schema` for the payloads that can be read, reasons for the others."""
        fast = self._fast_for(payloads)
        if fast is None:
            return self.decode_in_python(payloads)
        batch, left = fast.decode(payloads, self._fast_prefix)
        rejected = []
        for index in left:
            found = self.decode_in_python([payloads[index]])
            if not found.rejected:
                # Readable by another version of the schema: decode all, to keep their order.
                return self.decode_in_python(payloads)
            rejected.append(Rejected(index, found.rejected[0].reason))
        return Decoded(batch, rejected)

    def _fast_for(self, payloads: Sequence[bytes]) -> FastDecoder | None:
        """The compiled decoder, set to the prefix of the messages that it reads, if any."""
        if self._fast is None or not payloads:
            return None
        prefix = bytes(payloads[0][: self._prefix_bytes])
        if prefix != self._fast_prefix and self._codec.is_shipped(self.topic, prefix):
            self._fast_prefix = prefix
        return self._fast if self._fast_prefix else None

    def decode_in_python(self, payloads: Sequence[bytes]) -> Decoded:
        """The same as `decode`, without the compiled twin."""
        rejected: list[Rejected] = []
        records: list[Record] = []
        kept: list[int] = []
        for index, payload in enumerate(payloads):
            try:
                records.append(self._record(payload))
            except EventError as error:
                rejected.append(Rejected(index, str(error)))
            else:
                kept.append(index)
        try:
            return Decoded(self._batch(records), rejected)
        except _DOES_NOT_FIT:
            pass
        # A value decodes and fits no column (a time in the year 300,000). Find its record.
        fitting = []
        for index, record in zip(kept, records, strict=True):
            try:
                self._batch([record])
            except _DOES_NOT_FIT as error:
                rejected.append(Rejected(index, str(error) or repr(error)))
            else:
                fitting.append(record)
        rejected.sort()
        return Decoded(self._batch(fitting), rejected)

    def _record(self, payload: bytes) -> Record:
        schema, record = self._codec.decode(self.topic, payload)
        if schema is not self._shipped:
            if schema["name"] != self._shipped["name"]:
                raise EventCorrupt(f"a {schema['name']} is in topic {self.topic}")
            present = {column["name"] for column in schema["fields"]}
            for column in self._columns:
                if column.source not in present:
                    record[column.source] = None
        if record["header"]["time"] < 0:
            raise EventCorrupt(f"the header's time is {record['header']['time']}")
        return record

    def _batch(self, records: Sequence[Record]) -> pa.RecordBatch:
        headers = [record["header"] for record in records]
        arrays = [
            pa.array([header["guid"] for header in headers], pa.binary()),
            _times([header["time"] for header in headers], "ms"),
            pa.array([header["server"] for header in headers], pa.string()),
            pa.array([header["service"] for header in headers], pa.string()),
            *(column.array(records) for column in self._columns),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.event_schema)


@functools.lru_cache(1024)
def event_columns(topic: str, codec: TopicCodec = CODEC_2011) -> EventColumns | None:
    """The columns of a topic; None when no schema is shipped for it.

    The names and types of the columns are the same with any codec.
    """
    try:
        return EventColumns(topic, codec)
    except UnknownSchema:
        return None


def with_source(
    batch: pa.RecordBatch, broker_id: int, partition: int, next_offsets: Sequence[int]
) -> pa.RecordBatch:
    """The batch with the source columns: partition and next offset of each row."""
    rows = batch.num_rows
    arrays = [
        *batch.columns,
        pa.repeat(pa.scalar(broker_id, pa.int32()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.array(next_offsets, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*batch.schema, *SOURCE_FIELDS]))


# --- Avro types to Arrow types ----------------------------------------------------------------


def _columns_of(schema: Schema) -> list[_Column]:
    """The event's own fields; a name that the table uses itself gets the prefix `event_`."""
    columns = []
    types = _Types(schema)
    for part in schema["fields"]:
        if part["name"] == "header":
            continue
        name = part["name"]
        if name in _RESERVED:
            name = f"event_{name}"
        arrow_type, convert, unit = types.column(part["type"])
        columns.append(_Column(name, part["name"], arrow_type, convert, unit))
    return columns


class _Types:
    """Resolves the types of one schema, in which named types may occur again by name."""

    def __init__(self, schema: Schema) -> None:
        self._named: dict[str, Schema] = {}
        self._open: set[str] = set()
        self._collect(schema)

    def _collect(self, node: Any) -> None:
        if isinstance(node, list):
            for part in node:
                self._collect(part)
        elif isinstance(node, dict):
            if node.get("type") in ("record", "fixed", "enum"):
                self._named[node["name"]] = node
            for part in node.values():
                self._collect(part)

    def column(self, node: Any) -> tuple[pa.DataType, Convert | None, str | None]:
        """(type, conversion, unit of a timestamp) of a field at the top level."""
        inner = _not_null(node)
        if isinstance(inner, dict) and inner.get("logicalType", "").startswith("timestamp-"):
            logical = (inner["type"], inner["logicalType"])
            if _LOGICAL.get(logical) == TIMESTAMP:
                return TIMESTAMP, None, "ms" if logical[1].endswith("millis") else "us"
        arrow_type, convert = self.resolve(node)
        return arrow_type, convert, None

    def resolve(self, node: Any) -> tuple[pa.DataType, Convert | None]:
        node = _not_null(node)
        if isinstance(node, list):
            return pa.string(), _as_json  # a union of several kinds of value
        if isinstance(node, str):
            if node in _PRIMITIVES:
                return _PRIMITIVES[node], None
            if node in self._open:
                return pa.string(), _as_json  # a recursive type has no fixed columns
            return self.resolve(self._named[node])
        kind = node["type"]
        if kind == "array":
            item_type, convert_item = self.resolve(node["items"])
            return pa.list_(item_type), _list_converter(convert_item)
        if kind == "map":
            value_type, convert_value = self.resolve(node["values"])
            return pa.map_(pa.string(), value_type), _map_converter(convert_value)
        if kind == "record":
            return self._struct(node)
        if kind == "fixed":
            return pa.binary(), None
        if kind == "enum":
            return pa.string(), None
        if (kind, node.get("logicalType")) == ("int", "date"):
            return pa.date32(), None
        return self.resolve(kind)

    def _struct(self, node: Schema) -> tuple[pa.DataType, Convert | None]:
        self._open.add(node["name"])
        parts = [(part["name"], *self.resolve(part["type"])) for part in node["fields"]]
        self._open.discard(node["name"])
        converters = {name: convert for name, _, convert in parts if convert is not None}

        def convert_struct(value: dict[str, Any]) -> dict[str, Any]:
            return {
                name: converters[name](part) if name in converters and part is not None else part
                for name, part in value.items()
            }

        struct = pa.struct([(name, arrow_type) for name, arrow_type, _ in parts])
        return struct, convert_struct if converters else None


def _not_null(node: Any) -> Any:
    """The other type of a union with null; the node itself otherwise (every column is optional)."""
    if isinstance(node, list):
        kinds = [part for part in node if part != "null"]
        return kinds[0] if len(kinds) == 1 else kinds
    return node


def _as_json(value: Any) -> str:
    return json.dumps(value, default=lambda raw: raw.hex(), separators=(",", ":"))


def _list_converter(convert_item: Convert | None) -> Convert | None:
    if convert_item is None:
        return None
    return lambda items: [None if item is None else convert_item(item) for item in items]


def _map_converter(convert_value: Convert | None) -> Convert:
    if convert_value is None:
        return lambda pairs: list(pairs.items())
    return lambda pairs: [
        (key, None if value is None else convert_value(value)) for key, value in pairs.items()
    ]
