"""Writes rows to topics: `df.write.format("kafka2011")`, like 0.7's Hadoop output.

Columns: payload (or value; binary or text), and optionally topic and key (text hashes as a key of
any other producer does). Options:

topic               the topic, where the rows have no column topic
zk.connect          where the brokers register (keys place messages), or
brokers             id:host:port,... ; the broker picks the partition
address.map, compression.codec, max.message.size, flush.timeout.ms       as the producer's
batch.size          payloads of one message set, at most (default 200)

Each task sends with its own producer, on the executor, and ends when the brokers' barrier has
answered: the messages of a successful job are on the brokers' disks. Spark runs a failed task
again, and messages that it had sent remain: at least once, as everywhere in 0.7. Rows of one key
keep their order within a task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafka2011.consumer.spark.options import OptionError
from kafka2011.producer.producer import FLUSH_TIMEOUT_MS, Producer
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.config import ConfigError, whole
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)

SET_MESSAGES = 200
_PAYLOADS = ("payload", "value")
_COLUMNS = ("topic", "key", *_PAYLOADS)
_PRODUCER_SETTINGS = {
    "zk.connect": "zk_connect",
    "brokers": "broker_list",
    "compression.codec": "compression_codec",
    "max.message.size": "max_message_bytes",
    "address.map": "address_map",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`settings` are the producer's, by field name, as texts."""

    topic: str
    payload: str
    settings: Mapping[str, Any]
    set_messages: int = SET_MESSAGES
    flush_timeout_ms: int = FLUSH_TIMEOUT_MS


def parse_write_options(given: Mapping[str, str], columns: Sequence[str]) -> WriteOptions:
    """The options of a write. Raises OptionError for a missing, unknown or unreadable one."""
    options = {name.lower(): text for name, text in given.items()}
    # Spark itself adds the last two to any stream.
    others = {"topic", "batch.size", "flush.timeout.ms", "path", "checkpointlocation"}
    unknown = set(options) - set(_PRODUCER_SETTINGS) - others
    if unknown:
        raise OptionError(f"unknown option {sorted(unknown)[0]!r} of writing to kafka2011")
    odd = set(columns) - set(_COLUMNS)
    if odd:
        raise OptionError(f"column {sorted(odd)[0]!r} cannot be written: there is {_COLUMNS}")
    payload = [name for name in _PAYLOADS if name in columns]
    if len(payload) != 1:
        raise OptionError("the rows need exactly one of the columns payload and value")
    if ("topic" in options) == ("topic" in columns):
        raise OptionError("give the topic as an option or as a column, and not as both")
    if ("zk.connect" in options) == ("brokers" in options):
        raise OptionError("give exactly one of zk.connect and brokers")
    try:
        if "topic" in options:
            check_topic(options["topic"])
        set_messages = whole(1, 100_000)(options.get("batch.size", str(SET_MESSAGES)))
        timeout_ms = whole(1)(options.get("flush.timeout.ms", str(FLUSH_TIMEOUT_MS)))
    except ValueError as error:
        raise OptionError(str(error)) from None
    settings = {field: options[n] for n, field in _PRODUCER_SETTINGS.items() if n in options}
    return WriteOptions(options.get("topic", ""), payload[0], settings, set_messages, timeout_ms)


@dataclass
class Written(WriterCommitMessage):
    """The number of messages that one task made durable."""

    messages: int


def write_batches(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """Send every row and wait until all are durable; runs on an executor.

    Raises OptionError for a null payload or topic, and the producer's errors: NotDurable and
    BrokerUnavailable (run the task again), MessageSizeTooLarge (do not).
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(0)  # most tasks of a small write: no connection is made
    count = 0
    try:
        producer = Producer(**options.settings)
    except ConfigError as error:
        raise OptionError(str(error)) from None
    with producer:
        for batch in chain([first], filled):
            for topic, key, payloads in _sets(options, batch):
                producer.send(topic, payloads, key)
            count += batch.num_rows
        producer.flush(options.flush_timeout_ms)
    return Written(count)


def _sets(options: WriteOptions, batch: pa.RecordBatch) -> Iterator[tuple[str, Any, list[bytes]]]:
    """(topic, key, payloads) with at most `set_messages` payloads, in row order for each key."""
    names = batch.schema.names
    payloads = _as_bytes(batch, options.payload)
    if None in payloads:
        raise OptionError(f"column {options.payload} has a null, which is no message")
    rows = batch.num_rows
    topics = batch.column("topic").to_pylist() if "topic" in names else [options.topic] * rows
    keys = batch.column("key").to_pylist() if "key" in names else [None] * rows
    collected: dict[tuple[str, Any], list[bytes]] = {}
    for topic, key, payload in zip(topics, keys, payloads, strict=True):
        if topic is None:
            raise OptionError("column topic has a null, which is no topic")
        held = collected.setdefault((topic, key), [])
        held.append(payload)
        if len(held) == options.set_messages:
            yield topic, key, collected.pop((topic, key))
    for (topic, key), held in collected.items():
        yield topic, key, held


def _as_bytes(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if not pa.types.is_binary(column.type):
        if not pa.types.is_string(column.type):
            raise OptionError(f"column {name} is {column.type}: cast it to binary or string")
        column = pc.cast(column, pa.binary())
    found: list[Any] = column.to_pylist()
    return found


def _message_count(messages: Iterable[WriterCommitMessage | None]) -> int:
    return sum(message.messages for message in messages if isinstance(message, Written))


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame; its messages are durable when `save` returns."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self._options, iterator)

    def commit(self, messages: Any) -> None:
        log.info("written", topic=self._options.topic, messages=_message_count(messages))

    def abort(self, messages: Any) -> None:
        log.warning(
            "write_task_failed",
            hint="messages that other tasks have sent stay",
            topic=self._options.topic,
            messages=_message_count(messages),
        )


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """Writes a stream; each micro-batch is durable before Spark records it as done."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self._options, iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        log.debug("written", batch=batchId, messages=_message_count(messages))

    def abort(self, messages: Any, batchId: int) -> None:
        log.warning("batch_failed", batch=batchId, messages=_message_count(messages))
