"""The Spark data source `kafka2011`: topics as DataFrames and as streams.

    spark.read.format("kafka2011").option("zk.connect", ...).option("topic", "page-view").load()
    spark.readStream.format("kafka2011")...

Columns: topic, broker, partition, offset (where the entry starts), next_offset, timestamp (header
time of an event), schema_id (the registry's number, or in the 2011 form the MD5 in hexadecimal),
payload, error (null, or the reason why the entry could not be read; payload is the raw entry then).
Options: `options`.

Planning runs in a Python process beside the driver, reading in one on each executor; payloads go
from broker to executor as Arrow batches. What the format has beyond messages (decoded events, the
writer) is in `services.warehouse.data_source`; Spark finds all of it in `pyspark_kafka2011`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.spark.options import OptionError, SourceOptions, parse_options
from kafka2011.consumer.spark.planning import DataLoss, PlacedRange, SourcePlanner
from kafka2011.consumer.spark.quarantine import QuarantineFile
from kafka2011.consumer.spark.reading import read_patiently
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA, MessageRows, Quarantine
from kafka2011.events.forms import FORMS_DEFAULT, Forms
from kafka2011.protocol.errors import MessageLargerThanFetchSize, OffsetOutOfRange
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)

SPARK_SCHEMA = (
    "topic string, broker int, partition int, offset long, next_offset long, "
    "timestamp timestamp, schema_id string, payload binary, error string"
)
_SPARK_TYPES = dict(zip(MESSAGE_SCHEMA.names, SPARK_SCHEMA.split(", "), strict=True))

# A stream's offsets as Spark keeps them in its checkpoint: "topic/11-0" -> next offset. Those of a
# stream's first batch also say where it starts, "topic/11-0/from": Spark does not keep that, and
# the logs' ends will have moved when it asks again.
StreamOffsets = dict[str, int]
FROM = "/from"


class Rows(Protocol):
    """Makes rows of chunks, on an executor."""

    def batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]: ...


class RowsFactory(Protocol):
    """Makes a source's rows on each executor; pickled with the reader."""

    def rows(self, quarantine: Quarantine | None) -> Rows: ...


class MessagesFactory:
    """Rows of messages as they are: `columns` of MESSAGE_SCHEMA, all when none are named."""

    def __init__(self, columns: tuple[str, ...] = (), forms: Forms = FORMS_DEFAULT) -> None:
        unknown = set(columns) - set(_SPARK_TYPES)
        if unknown:
            raise OptionError(f"there is no column {sorted(unknown)[0]!r}")
        self._columns = columns
        self._forms = forms

    def spark_schema(self) -> str:
        return ", ".join(_SPARK_TYPES[name] for name in self._columns or _SPARK_TYPES)

    def rows(self, quarantine: Quarantine | None) -> Rows:
        return MessageRows(self._columns, quarantine, self._forms)


def read_split(
    options: SourceOptions, split: InputPartition, factory: RowsFactory
) -> Iterator[pa.RecordBatch]:
    """The rows of one range, on an executor. `split.value` is its PlacedRange; None for an empty
    plan."""
    if split.value is None:
        return
    placed: PlacedRange = split.value
    if options.quarantine_dir is None:
        yield from _read(options, placed, factory.rows(None))
        return
    aside = QuarantineFile(options.quarantine_dir, placed.offsets)
    try:
        yield from _read(options, placed, factory.rows(aside.put))
        aside.close()
    except BaseException:
        aside.discard()
        raise


def _read(options: SourceOptions, placed: PlacedRange, rows: Rows) -> Iterator[pa.RecordBatch]:
    """The range's rows. Offsets retired while the query runs are an error, or skipped. If no entry
    begins at the range's start, the log was cut or replaced since it was read up to there: that is
    an error, or the log is read from its start."""
    left = placed.offsets
    while left.size_bytes:
        try:
            for chunk in read_patiently(
                placed.address,
                left,
                fetch_size=options.fetch_size,
                socket_timeout_ms=options.socket_timeout_ms,
            ):
                yield from rows.batches(chunk)
                left = left._replace(start=min(chunk.next_offset, left.end))
            return
        except OffsetOutOfRange as error:
            if options.fail_on_data_loss:
                raise
            earliest = _earliest(placed, options.socket_timeout_ms)
            log.warning("offsets_gone", range=str(left), earliest=earliest, reason=str(error))
            if not left.start < earliest < left.end:
                return
            left = left._replace(start=earliest)
        except MessageLargerThanFetchSize as error:
            if left.start != placed.offsets.start:
                raise
            if options.fail_on_data_loss:
                raise DataLoss(
                    f"{left.topic_partition} was read up to {left.start}, and no entry begins "
                    "there: its log was cut or replaced, or is damaged "
                    "(failOnDataLoss=false reads it from its start)"
                ) from error
            earliest = _earliest(placed, options.socket_timeout_ms)
            log.warning("offsets_gone", range=str(left), earliest=earliest, reason=str(error))
            if earliest >= left.start:
                raise
            left = left._replace(start=earliest)


def _earliest(placed: PlacedRange, socket_timeout_ms: int) -> int:
    with SimpleConsumer(*placed.address, socket_timeout_ms=socket_timeout_ms) as client:
        return client.earliest(placed.offsets.topic, placed.offsets.partition)


class Kafka2011Reader(DataSourceReader):
    """A batch: the range of each partition is fixed when the query is planned."""

    def __init__(self, options: SourceOptions, factory: RowsFactory | None = None) -> None:
        self._options = options
        self._factory = factory or MessagesFactory(options.columns, options.codec.forms)

    def partitions(self) -> Sequence[InputPartition]:
        planner = SourcePlanner(self._options)
        try:
            return [InputPartition(placed) for placed in planner.batch_ranges()]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._options, partition, self._factory)


class Kafka2011StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark stores the offsets, and reads the same range again after a failure."""

    def __init__(self, options: SourceOptions, factory: RowsFactory | None = None) -> None:
        self._options = options
        self._factory = factory or MessagesFactory(options.columns, options.codec.forms)
        self._planner: SourcePlanner | None = None
        self._target: StreamOffsets | None = None
        self._newest: StreamOffsets | None = None
        self._initial: StreamOffsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read; connections and the state of planning stay on the driver.
        kept = {"_options": self._options, "_factory": self._factory}
        return {**kept, "_planner": None, "_target": None, "_newest": None, "_initial": None}

    def _planning(self) -> SourcePlanner:
        if self._planner is None:
            self._planner = SourcePlanner(self._options)
        return self._planner

    def initialOffset(self) -> StreamOffsets:
        if self._initial is None:
            self._initial = _by_text(self._planning().starting())
        return dict(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.bytes_max_per_trigger is not None:
            return ReadMaxBytes(self._options.bytes_max_per_trigger)
        if self._options.rows_max_per_trigger is not None:
            return ReadMaxRows(self._options.rows_max_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        """The end of the next batch. A partition whose broker is away stays where it is.

        A log that ends before `start` was cut or replaced. That is data loss; if the options accept
        it, the batch reads the log from its start up to its end, which is before `start`.
        """
        ends, _ = _parted(start)
        end = self._end_of_batch(ends, limit)
        if start == self._initial:
            return end | {f"{name}{FROM}": offset for name, offset in start.items()}
        return start if end == ends else end  # including "/from": a difference would start a batch

    def _end_of_batch(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        newest = self._newest_offsets()
        restarts = {
            name: self._restart(name, offset, newest[name])
            for name, offset in start.items()
            if newest.get(name, offset) < offset
        }
        if self._target is not None:
            newest = {
                name: min(end, self._target[name])
                for name, end in newest.items()
                if name in self._target
            }
        begin = {**start, **restarts}
        for name in newest:
            if name not in begin:
                begin[name] = self._planning().earliest(_name(name))
        end = {name: max(offset, newest.get(name, offset)) for name, offset in begin.items()}
        if isinstance(limit, ReadMaxBytes):
            within = self._planning().within_bytes(_names(begin), _names(end), limit.max_bytes)
        elif isinstance(limit, ReadMaxRows):
            within = self._planning().within_rows(_names(begin), _names(end), limit.max_rows)
        else:
            return end
        return _by_text(within)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._newest_offsets()

    def reportLatestOffset(self) -> StreamOffsets | None:
        """The ends of the logs when the last batch was planned; Spark computes the lag."""
        return self._newest

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> Sequence[InputPartition]:
        is_first = start == self._initial
        start, _ = _parted(start)
        end, starts = _parted(end)
        if is_first:
            # Earlier versions stored no starts: then nothing is known to have been read.
            start = starts or {name: min(at, end.get(name, at)) for name, at in start.items()}
        ranges = []
        for name, offset in end.items():
            begin = start.get(name)
            if begin is None:
                begin = self._planning().earliest(_name(name))
            elif offset < begin:
                begin = self._restart(name, begin, offset)
            if offset > begin:
                ranges.append(OffsetRange(*_name(name), begin, offset))
        if not ranges:
            return []
        return [InputPartition(placed) for placed in self._planning().placed(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._options, partition, self._factory)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _restart(self, name: str, offset: int, end: int) -> int:
        """Where to start reading a log that ends before `offset`, up to which it was read."""
        self._planning().lose(f"{name} was read up to {offset}, but its log ends at {end}")
        return self._planning().earliest(_name(name))

    def _newest_offsets(self) -> StreamOffsets:
        self._newest = _by_text(self._planning().latest())
        return dict(self._newest)


def _parted(offsets: StreamOffsets) -> tuple[StreamOffsets, StreamOffsets]:
    """The next offsets, and the starts of the stream's first batch if these are its ends."""
    starts = {k.removesuffix(FROM): offset for k, offset in offsets.items() if k.endswith(FROM)}
    return {k: offset for k, offset in offsets.items() if not k.endswith(FROM)}, starts


def _by_text(offsets: dict[TopicPartition, int]) -> StreamOffsets:
    return {str(name): offset for name, offset in offsets.items()}


def _names(offsets: StreamOffsets) -> dict[TopicPartition, int]:
    return {_name(text): offset for text, offset in offsets.items()}


def _name(text: str) -> TopicPartition:
    """The partition of `topic/11-0`, the form of str(TopicPartition); a topic has no slash."""
    topic, _, partition = text.rpartition("/")
    broker_id, _, number = partition.partition("-")
    return TopicPartition(topic, int(broker_id), int(number))


class Kafka2011DataSource(DataSource):
    """`spark.read.format("kafka2011")`, of messages as they are."""

    @classmethod
    def name(cls) -> str:
        return "kafka2011"

    def factory(self, options: SourceOptions) -> MessagesFactory:
        """The factory of the rows. Raises OptionError."""
        if options.decode:
            raise OptionError("decode needs the format of the module pyspark_kafka2011")
        return MessagesFactory(options.columns, options.codec.forms)

    def schema(self) -> Any:
        return self.factory(parse_options(self.options)).spark_schema()

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 (Spark names it)
        options = parse_options(self.options)
        return Kafka2011Reader(options, self.factory(options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002
        options = parse_options(self.options)
        return Kafka2011StreamReader(options, self.factory(options))
