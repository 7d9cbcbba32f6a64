"""The columns of a topic's table, and events of any of its schemas decoded into batches of them.

    the columns of `schema_columns`         of every schema that an event named, in the order in
                                            which they came; null where an event's schema has none
    source_broker, source_partition,        the partition of the message, and the next offset of
      source_offset                         its entry
    hour                                    the partition column, UTC, YYYY-MM-DD-HH

A payload is decoded by the schema that it names. A new schema adds its columns. If one of them does
not fit those that are there (`column_types`), or the schema is not registered for the topic, its
events are rejected with that reason. Where the topic's events carry ids, a new id is looked up in
the registry; while that is away, decoding fails and no message is judged.

`plain_columns` has the columns of topics without Avro.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka2011.events.errors import EventCorrupt, EventError, UnknownSchema
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topic_codec import TopicCodec, shipped_writer
from kafka2011.events.topics import schema_name
from kafka2011.services.warehouse.load.column_types import (
    FittedColumns,
    TypesDiffer,
    arranged,
    placed,
)
from kafka2011.services.warehouse.load.plain_columns import PlainColumns
from kafka2011.services.warehouse.load.schema_columns import (
    HEADER_FIELDS,
    HOUR_FIELD,
    SOURCE_FIELDS,
    Decoded,
    Rejected,
    SchemaColumns,
)

CODEC_2011 = TopicCodec(FORMS_2011)
DECODERS_MAX = 1_000

_BEHIND = {field.name for field in (*SOURCE_FIELDS, HOUR_FIELD)}


class _Decoder(NamedTuple):
    """One schema's decoder, and the places of its columns among the topic's."""

    columns: SchemaColumns
    places: FittedColumns


class _Part(NamedTuple):
    """Rows of one schema: their indexes among the payloads, ascending."""

    indexes: Sequence[int]
    decoder: _Decoder
    batch: pa.RecordBatch


class EventColumns:
    """The columns of one topic, which grow with the schemas of its events.

    `present`: the columns that the topic's table has. With `grows` false none are added: fields
    without one are left out. The decoding methods may raise RegistryError: then no message was
    judged; try again.
    """

    def __init__(
        self,
        topic: str,
        codec: TopicCodec = CODEC_2011,
        present: pa.Schema | None = None,
        *,
        grows: bool = True,
    ) -> None:
        self.topic = topic
        self._codec = codec
        self._grows = grows
        self._prefix_bytes = codec.forms.prefix_bytes(topic)
        self._decoders: dict[bytes, _Decoder] = {}
        own = [field.remove_metadata() for field in present or () if field.name not in _BEHIND]
        self.event_schema = pa.schema(own or HEADER_FIELDS)
        self._shipped_name = ""
        shipped = shipped_columns(topic)
        if shipped is not None:
            self._shipped_name = shipped.name
            with contextlib.suppress(TypesDiffer):  # the driver reports it
                self.event_schema = placed(shipped.columns, self.event_schema).schema

    @property
    def table_schema(self) -> pa.Schema:
        return pa.schema([*self.event_schema, *SOURCE_FIELDS, HOUR_FIELD])

    def add_registered(self) -> None:
        """Take in the columns of every version in the registry, as far as they fit."""
        for prefix in self._codec.prefixes(self.topic):
            with contextlib.suppress(EventError):  # a payload of it gets the reason
                self._decoder(prefix)

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        """Columns of `event_schema` for the payloads that can be read, reasons for the others."""
        return self._decoded(payloads, in_python=False)

    def decode_in_python(self, payloads: Sequence[bytes]) -> Decoded:
        """The same as `decode`, without the compiled twin."""
        return self._decoded(payloads, in_python=True)

    def _decoded(self, payloads: Sequence[bytes], *, in_python: bool) -> Decoded:
        rejected: list[Rejected] = []
        parts: list[_Part] = []
        left: Sequence[int] = range(len(payloads))
        tried = None
        if payloads and not in_python:
            # Nearly always the first one's schema reads all.
            tried = bytes(payloads[0][: self._prefix_bytes])
            with contextlib.suppress(EventError):
                left = self._decode_fast(payloads, left, self._decoder(tried), parts)
        for prefix, alike in self._by_prefix(payloads, left).items():
            rest: Sequence[int] = alike
            try:
                decoder = self._decoder(prefix)
            except EventError as error:
                rejected += [Rejected(index, str(error)) for index in alike]
                continue
            if prefix != tried and not in_python:
                rest = self._decode_fast([payloads[i] for i in alike], alike, decoder, parts)
            if rest:
                found = decoder.columns.decode_in_python([payloads[index] for index in rest])
                rejected += [Rejected(rest[n], reason) for n, reason in found.rejected]
                gone = [n for n, _ in found.rejected]
                parts.append(_Part(_without(rest, gone), decoder, found.batch))
        return Decoded(self._in_order(parts), sorted(rejected))

    @staticmethod
    def _decode_fast(
        payloads: Sequence[bytes], indexes: Sequence[int], decoder: _Decoder, parts: list[_Part]
    ) -> Sequence[int]:
        """Decode the payloads of these indexes at once; returns the indexes of those that this
        leaves: of another schema, or damaged."""
        if not decoder.columns.is_fast:
            return indexes
        batch, others = decoder.columns.decode(payloads)
        parts.append(_Part(_without(indexes, others), decoder, batch))
        return [indexes[n] for n in others]

    def _by_prefix(
        self, payloads: Sequence[bytes], indexes: Sequence[int]
    ) -> dict[bytes, list[int]]:
        """The indexes by the first bytes of their payloads, in one pass: in bytes that are not
        events all of these may differ."""
        found: dict[bytes, list[int]] = {}
        for index in indexes:
            found.setdefault(bytes(payloads[index][: self._prefix_bytes]), []).append(index)
        return found

    def _in_order(self, parts: Sequence[_Part]) -> pa.RecordBatch:
        """The rows of all parts in the order of their payloads, in the topic's columns."""
        parts = [part for part in parts if part.batch.num_rows]
        made = [arranged(part.batch, part.decoder.places, self.event_schema) for part in parts]
        if not made:
            return pa.RecordBatch.from_pylist([], schema=self.event_schema)
        if len(made) == 1:
            return made[0]
        indexes = np.concatenate([np.fromiter(part.indexes, np.int64) for part in parts])
        return pa.concat_batches(made).take(pa.array(np.argsort(indexes)))

    # --- schemas ----------------------------------------------------------------------------------

    def _decoder(self, prefix: bytes) -> _Decoder:
        """The decoder of the schema that `prefix` names; its columns are the topic's from then on.

        Raises EventError when there is none, it is not the topic's or does not fit; RegistryError.
        """
        found = self._decoders.get(prefix)
        if found is not None:
            return found
        writer = self._codec.writer_schema(self.topic, prefix)
        name = writer.schema["name"]
        if self._shipped_name:
            is_ours = name == self._shipped_name and writer.has_header
        else:
            is_ours = self._codec.is_of_topic(self.topic, prefix)
        if not is_ours:
            raise EventCorrupt(
                f"a {name} is in topic {self.topic}, and is not a schema of the topic"
            )
        try:
            columns = SchemaColumns(writer, prefix)
            places = placed(columns.columns, self.event_schema, grows=self._grows)
        except TypesDiffer as error:
            raise EventCorrupt(f"a {name}: {error}") from None
        except RecursionError:
            raise EventCorrupt(f"a {name}: its types nest too deep for columns") from None
        self.event_schema = places.schema
        if len(self._decoders) >= DECODERS_MAX:
            self._decoders.clear()
        found = self._decoders[prefix] = _Decoder(columns, places)
        return found


def _without(indexes: Sequence[int], gone: Sequence[int]) -> Sequence[int]:
    """The indexes without those at the positions `gone`."""
    if not gone:
        return indexes
    dropped = set(gone)
    return [index for position, index in enumerate(indexes) if position not in dropped]


@functools.cache
def shipped_columns(topic: str) -> SchemaColumns | None:
    """The columns of the topic's shipped schema; None where none is shipped."""
    try:
        return SchemaColumns(shipped_writer(schema_name(topic)), b"")
    except UnknownSchema:
        return None


def columns_of_topic(
    topic: str,
    codec: TopicCodec = CODEC_2011,
    present: pa.Schema | None = None,
    *,
    grows: bool = True,
) -> EventColumns | PlainColumns:
    """The columns of a topic by its form; see EventColumns."""
    if codec.forms.of(topic).is_avro:
        return EventColumns(topic, codec, present, grows=grows)
    return PlainColumns(topic, codec.forms, present, grows=grows)


# `columns_of_topic`, which keeps the columns with their decoders.
event_columns = functools.lru_cache(1024)(columns_of_topic)


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
