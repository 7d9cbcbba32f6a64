"""The whole of `format("kafka2011")` for Spark: messages, decoded events, and writing.

`consumer.spark.source` reads messages as they are. With `decode`, rows have the columns of a
topic's events, those of the warehouse's tables. `writing` writes rows to topics.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.spark.options import OptionError, SourceOptions
from kafka2011.consumer.spark.planning import SourcePlanner
from kafka2011.consumer.spark.rows import (
    MESSAGE_SCHEMA,
    MessageRows,
    Quarantine,
    Unreadable,
)
from kafka2011.consumer.spark.source import Kafka2011DataSource, MessagesFactory, Rows
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.forms import Form
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.services.warehouse.data_source.writing import (
    StreamTopicWriter,
    TopicWriter,
    parse_write_options,
)
from kafka2011.services.warehouse.load.arrow_types import names_beside
from kafka2011.services.warehouse.load.columns import (
    columns_of_topic,
    event_columns,
    shipped_columns,
)
from kafka2011.services.warehouse.load.schema_columns import HEADER_FIELDS

# In front of the event's own columns, and behind them.
_PLACE = ("topic", "broker", "partition", "offset", "next_offset")
_REST = ("error", "payload")


class DecodedFactory(MessagesFactory):
    """Rows of decoded events: the message's place, the columns of the warehouse's table, and
    `error` with the raw `payload` of a message that is no such event (null in all other rows).

    The columns are those of the versions that the registry has when the query is planned: what
    later versions add is left out. JSON has the columns `known` (`json_columns`), else only `rest`,
    for everything that has no column or does not fit it. A field whose name is taken gets the
    prefix `event_`, and so does a field that has the name which results. Raises OptionError when
    the topic has no schema, or for an unknown column. While the registry is away the task fails
    without judging a message, and Spark runs it again.
    """

    def __init__(
        self,
        topic: str,
        columns: tuple[str, ...] = (),
        codec: CodecSource | None = None,
        known: pa.Schema | None = None,
    ) -> None:
        self.codec = codec or CodecSource()
        self.event_schema = known or _columns_when_planned(topic, self.codec.codec())
        names = names_beside(self.event_schema.names, (*_PLACE, *_REST))
        fields = [MESSAGE_SCHEMA.field(name) for name in _PLACE]
        fields += [f.with_name(n) for f, n in zip(self.event_schema, names, strict=True)]
        fields += [MESSAGE_SCHEMA.field(name) for name in _REST]
        whole = pa.schema(fields)
        unknown = set(columns) - set(whole.names)
        if unknown:
            raise OptionError(f"there is no column {sorted(unknown)[0]!r}")
        chosen = pa.schema([whole.field(name) for name in columns or whole.names])
        self.struct = from_arrow_schema(chosen)
        self.topic = topic
        self.event_names = names
        # Spark has its own names for what is inside lists and maps, and compares them.
        self.schema = to_arrow_schema(self.struct, timezone="UTC")

    def spark_schema(self) -> Any:
        return self.struct

    def rows(self, quarantine: Quarantine | None) -> Rows:
        return _DecodedRows(self, quarantine)


def json_columns(topic: str, codec: TopicCodec, sample: Sequence[bytes]) -> pa.Schema:
    """The columns that a load makes of these messages, were they the topic's first."""
    columns = columns_of_topic(topic, codec)
    columns.decode(sample)
    return columns.event_schema


def _columns_when_planned(topic: str, codec: TopicCodec) -> pa.Schema:
    """The topic's columns now. Raises OptionError without a schema, or when only the registry,
    which is away, could name it."""
    columns = columns_of_topic(topic, codec, grows=codec.forms.of(topic).is_avro)
    try:
        columns.add_registered()
    except RegistryError as error:
        if shipped_columns(topic) is None:
            raise OptionError(f"decode: {error}") from None
    if columns.event_schema.names == pa.schema(HEADER_FIELDS).names:
        raise OptionError(f"decode: the registry has no schema for topic {topic}")
    return columns.event_schema


class _DecodedRows:
    def __init__(self, factory: DecodedFactory, quarantine: Quarantine | None) -> None:
        self._columns = event_columns(
            factory.topic, factory.codec.codec(), factory.event_schema, grows=False
        )
        self._factory = factory
        self._quarantine = quarantine
        self._messages = MessageRows((*_PLACE, *_REST), quarantine)

    def batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        for messages in self._messages.batches(chunk):
            if messages.column("error").null_count == messages.num_rows:
                yield from self._decoded(chunk, messages)
            else:
                yield self._made(messages, {})  # damaged entries, which come separately

    def _decoded(self, chunk: Chunk, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        payloads = messages.column("payload").to_pylist()
        found = self._columns.decode(payloads)
        if found.rejected:
            rejected = pa.array([reject.message_index for reject in found.rejected], pa.int64())
            bad = messages.take(rejected)
            reasons = [reject.reason for reject in found.rejected]
            if self._quarantine is None:
                yield self._made(bad, {"error": pa.array(reasons, pa.string())})
            else:
                self._set_aside(chunk, bad, reasons)
            gone = set(rejected.to_pylist())
            kept = [index for index in range(len(payloads)) if index not in gone]
            messages = messages.take(pa.array(kept, pa.int64()))
        if messages.num_rows:
            events = dict(zip(self._factory.event_names, found.batch.columns, strict=True))
            events["payload"] = pa.nulls(messages.num_rows, pa.binary())
            yield self._made(messages, events)

    def _set_aside(self, chunk: Chunk, bad: pa.RecordBatch, reasons: list[str]) -> None:
        assert self._quarantine is not None
        starts, ends = bad.column("offset").to_pylist(), bad.column("next_offset").to_pylist()
        payloads = bad.column("payload").to_pylist()
        for start, end, reason, raw in zip(starts, ends, reasons, payloads, strict=True):
            where = (*chunk.topic_partition, start, end)
            self._quarantine(Unreadable(*where, reason, raw))

    def _made(self, messages: pa.RecordBatch, given: dict[str, pa.Array]) -> pa.RecordBatch:
        """A row for each message: columns from `given`, else the message's own, else null."""
        arrays = []
        for field in self._factory.schema:
            if field.name in given:
                array = given[field.name]
            elif field.name in messages.schema.names:
                array = messages.column(field.name)
            else:
                array = pa.nulls(messages.num_rows, field.type)
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._factory.schema)


class Kafka2011Format(Kafka2011DataSource):
    """`spark.read`, `readStream`, `write` and `writeStream` of `format("kafka2011")`."""

    def factory(self, options: SourceOptions) -> MessagesFactory:
        if options.decode:
            known = self._known(options)
            return DecodedFactory(options.decode, options.columns, options.codec, known)
        return super().factory(options)

    def _known(self, options: SourceOptions) -> pa.Schema | None:
        """The columns of JSON, from the topic's beginning; None for another form. They are kept in
        the source, which Spark copies after asking for them, so that a query has the same ones."""
        if options.codec.forms.of(options.decode) is not Form.JSON:
            return None
        found: pa.Schema | None = getattr(self, "_columns", None)
        if found is None:
            planner = SourcePlanner(options)
            try:
                sample = planner.sample()
            finally:
                planner.close()
            found = self._columns = json_columns(options.decode, options.codec.codec(), sample)
        return found

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        return TopicWriter(parse_write_options(self.options, schema.fieldNames()))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise OptionError('a topic takes no output mode but "append" and "update"')
        return StreamTopicWriter(parse_write_options(self.options, schema.fieldNames()))
