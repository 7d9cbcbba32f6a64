"""One schema's events decoded into Arrow batches of that schema's own columns.

    guid, header_time, server, service      from the event's header, if the schema begins with one;
                                            else the MD5 of the payload, and nulls
    the event's own fields                  in the schema's order (`arrow_types` has the types)

A message that cannot become a row is returned with the reason, never dropped. Flat schemas are
decoded by the compiled twin, all others and builds without it by fastavro.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka2011.events.codec import Record, decode_body
from kafka2011.events.errors import EventCorrupt, EventError
from kafka2011.events.header import NAME_BYTES_MAX
from kafka2011.events.topic_codec import WriterSchema
from kafka2011.runtime.clock import TIME_MS_MAX
from kafka2011.services.warehouse.load.arrow_types import (
    DATE_OUTSIDE,
    DAY_MAX,
    DAY_MIN,
    TIME_MS_MIN,
    TIME_OUTSIDE,
    TIMESTAMP,
    Resolved,
    TypeResolver,
    names_beside,
    unique_names,
)
from kafka2011.services.warehouse.load.fast_columns import Times, fast_decoder

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
RESERVED = tuple(column.name for column in (*HEADER_FIELDS, *SOURCE_FIELDS, HOUR_FIELD))

_TIMES = {
    "ms": Times(TIME_MS_MIN, TIME_MS_MAX, 1000),
    "us": Times(TIME_MS_MIN * 1000, TIME_MS_MAX * 1000 + 999, 1),
    "day": Times(DAY_MIN, DAY_MAX, 1),
}

# A decoded value that does not fit its column.
_DOES_NOT_FIT = (
    ValueError,
    TypeError,
    OverflowError,
    AttributeError,
    KeyError,
    RecursionError,
)


class Rejected(NamedTuple):
    """A message that is no row: its index in the list, and the reason."""

    message_index: int
    reason: str


class Decoded(NamedTuple):
    """`batch` has one row for each message that is not in `rejected`, in the same order."""

    batch: pa.RecordBatch
    rejected: list[Rejected]


@dataclass(frozen=True, slots=True)
class Named:
    """A column of a schema, to find its place in a table (`column_types.ColumnLike`)."""

    name: str
    type: pa.DataType
    aliases: tuple[str, ...] = ()
    own: str = ""
    doubled: str = ""
    by_number: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One of the event's own fields as a column."""

    name: str
    source: str
    resolved: Resolved
    named: Named

    def array(self, records: Sequence[Record]) -> pa.Array:
        source, convert = self.source, self.resolved.convert
        values = [record[source] for record in records]
        if self.resolved.unit:
            return _times(values, self.resolved.unit, self.resolved.type)
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.resolved.type)


def _times(values: Sequence[int | None], unit: str, time_type: pa.DataType) -> pa.Array:
    """Times in microseconds, or dates. Raises ArrowInvalid outside the years 1 to 9999."""
    raw = pa.array(values, pa.int64())
    bounds = pc.min_max(raw).as_py()
    lowest, highest, _ = _TIMES[unit]
    if bounds["min"] is not None and not (lowest <= bounds["min"] and bounds["max"] <= highest):
        is_date = pa.types.is_date(time_type)
        raise pa.ArrowInvalid(DATE_OUTSIDE if is_date else TIME_OUTSIDE)
    if pa.types.is_date(time_type):
        return raw.cast(pa.int32()).cast(time_type)
    return raw.cast(pa.timestamp(unit, tz=time_type.tz)).cast(time_type)


class SchemaColumns:
    """Decodes payloads that begin with `prefix`, the name of the schema `writer`."""

    def __init__(self, writer: WriterSchema, prefix: bytes) -> None:
        self.prefix = prefix
        self.name = str(writer.schema["name"])
        self._physical = writer.physical
        self._has_header = writer.has_header
        resolver = TypeResolver(writer.schema, writer.named)
        self._names_types = resolver.names_types
        self._own = columns_of(writer, resolver)
        own = [pa.field(column.name, column.resolved.type) for column in self._own]
        self.schema = pa.schema([*HEADER_FIELDS, *own])
        header = [Named(f.name, f.type, own=f.name) for f in HEADER_FIELDS]
        self.columns = [*header, *(column.named for column in self._own)]
        in_order = self.schema if writer.has_header else pa.schema(own)
        self._fast = None
        if all(c.resolved.convert is None or c.resolved.unit for c in self._own):
            self._fast = fast_decoder(
                writer.physical,
                in_order,
                Times(0, TIME_MS_MAX, 1000),
                {c.source: _TIMES[c.resolved.unit] for c in self._own if c.resolved.unit},
                has_header=writer.has_header,
            )
        self.is_fast = self._fast is not None

    def decode(self, payloads: Sequence[bytes]) -> tuple[pa.RecordBatch, list[int]]:
        """A batch of the payloads that the compiled twin reads, and the indexes of all others,
        ascending; those may be readable all the same."""
        if self._fast is None:
            return pa.RecordBatch.from_pylist([], schema=self.schema), [*range(len(payloads))]
        batch, left = self._fast.decode(payloads, self.prefix)
        if not self._has_header:
            gone = set(left)
            kept = [payload for index, payload in enumerate(payloads) if index not in gone]
            batch = self._with_identity(kept, batch.columns)
        return batch, left

    def decode_in_python(self, payloads: Sequence[bytes]) -> Decoded:
        """Rows for the payloads that can be read, reasons for the others."""
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
            return Decoded(self._batch(payloads, kept, records), rejected)
        except _DOES_NOT_FIT:
            pass
        # A decoded value does not fit its column (a time in the year 300,000): find its record.
        fitting = []
        for index, record in zip(kept, records, strict=True):
            try:
                self._batch(payloads, [index], [record])
            except _DOES_NOT_FIT as error:
                rejected.append(Rejected(index, str(error) or repr(error)))
            else:
                fitting.append((index, record))
        rejected.sort()
        kept = [index for index, _ in fitting]
        return Decoded(self._batch(payloads, kept, [record for _, record in fitting]), rejected)

    def _record(self, payload: bytes) -> Record:
        start = len(self.prefix)
        record = decode_body(payload, start, self._physical, names_types=self._names_types)
        if self._has_header and record["header"]["time"] < 0:
            raise EventCorrupt(f"the header's time is {record['header']['time']}")
        return record

    def _batch(
        self, payloads: Sequence[bytes], kept: Sequence[int], records: Sequence[Record]
    ) -> pa.RecordBatch:
        own = [column.array(records) for column in self._own]
        if not self._has_header:
            return self._with_identity([payloads[index] for index in kept], own)
        headers = [record["header"] for record in records]
        arrays = [
            pa.array([header["guid"] for header in headers], pa.binary()),
            _times([header["time"] for header in headers], "ms", TIMESTAMP),
            pa.array([header["server"] for header in headers], pa.string()),
            pa.array([header["service"] for header in headers], pa.string()),
        ]
        return pa.RecordBatch.from_arrays([*arrays, *own], schema=self.schema)

    def _with_identity(self, payloads: Sequence[bytes], own: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows of messages without a header."""
        nothing = [pa.nulls(len(payloads), field.type) for field in HEADER_FIELDS[1:]]
        return pa.RecordBatch.from_arrays([_digests(payloads), *nothing, *own], schema=self.schema)


def _digests(payloads: Sequence[bytes]) -> pa.Array:
    md5 = hashlib.md5
    found = [md5(payload, usedforsecurity=False).digest() for payload in payloads]
    return pa.array(found, pa.binary())


def columns_of(writer: WriterSchema, resolver: TypeResolver) -> list[Column]:
    """The event's own fields; a name that the table uses itself gets the prefix `event_`."""
    fields = [
        (part, resolver.resolve(part["type"]))
        for part in writer.schema["fields"]
        if not (writer.has_header and part["name"] == "header")
    ]
    fields = [(part, resolved) for part, resolved in fields if not pa.types.is_null(resolved.type)]
    sources = [part["name"] for part, _ in fields]
    own = names_beside(sources, RESERVED)
    numbers = TypeResolver(writer.schema, writer.named, by_number=True)
    columns = []
    for (part, resolved), source, name, owned in zip(
        fields, sources, unique_names(own), own, strict=True
    ):
        by_number = numbers.resolve(part["type"]).type if resolver.names_types else None
        named = Named(
            name,
            resolved.type,
            tuple(part.get("aliases", ())),
            owned,
            _doubled(source),
            None if by_number == resolved.type else by_number,
        )
        columns.append(Column(name, source, resolved, named))
    return columns


def _doubled(source: str) -> str:
    """The column's name if the schema also has the field that its name extends; else empty."""
    bare = source.removeprefix("event_")
    while bare.startswith("event_"):
        bare = bare.removeprefix("event_")
    return f"event_{source}" if bare != source and bare.casefold() in RESERVED else ""


def says_origin(batch: pa.RecordBatch) -> pa.BooleanArray:
    """Whether each row has the time and the names that its message is counted by (events.origin): a
    row may have a name that is too long for a header."""
    said = pc.and_(batch.column("header_time").is_valid(), batch.column("server").is_valid())
    for column in ("server", "service"):
        sizes = pc.binary_length(batch.column(column))
        if (pc.max(sizes).as_py() or 0) > NAME_BYTES_MAX:
            said = pc.and_(said, pc.less_equal(pc.fill_null(sizes, 0), NAME_BYTES_MAX))
    return said
