"""Rows written to topics, without Spark's JVM."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.spark.options import OptionError
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import MessageSizeTooLarge
from kafka2011.services.warehouse.data_source.writing import parse_write_options, write_batches
from pyspark_kafka2011 import DefaultSource
from tests.support.in_process_broker import InProcessBroker, in_process_broker


@pytest.fixture
def served(tmp_path: Path) -> Iterator[InProcessBroker]:
    with in_process_broker(tmp_path) as started:
        yield started


def stored(served: InProcessBroker, topic: str) -> list[bytes]:
    with SimpleConsumer("127.0.0.1", served.port) as client:
        return message_set.payloads(client.fetch(topic, 0, 0, 1_000_000).data)


def write(served: InProcessBroker, batch: pa.RecordBatch, **options: str) -> int:
    given = {"brokers": f"0:127.0.0.1:{served.port}", **options}
    return write_batches(parse_write_options(given, batch.schema.names), [batch]).messages


def payloads(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": pa.array(values, pa.binary())})


def test_rows_are_messages_when_the_write_returns(served: InProcessBroker) -> None:
    values = [b"%d" % n for n in range(450)]
    assert write(served, payloads(*values), topic="t") == 450
    assert stored(served, "t") == values


def test_a_column_may_name_the_topic_and_text_is_utf8(served: InProcessBroker) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["a", "b", "a"], "value": ["é", "2", "3"], "key": ["k", "k", "l"]}
    )
    assert write(served, batch) == 3
    assert (stored(served, "a"), stored(served, "b")) == (["é".encode(), b"3"], [b"2"])


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        (["payload"], {}, "topic as an option or as a column"),
        (["payload", "topic"], {"topic": "t"}, "topic as an option or as a column"),
        (["topic"], {}, "exactly one of the columns payload and value"),
        (["payload", "colour"], {"topic": "t"}, "column 'colour'"),
        (["payload"], {"topic": "a/b"}, "a/b"),
        (["payload"], {"topic": "t", "zk.connect": "z"}, "zk.connect and brokers"),
        (["payload"], {"topic": "t", "batch.size": "0"}, "at least 1"),
        (["payload"], {"topic": "t", "colour": "red"}, "unknown option 'colour'"),
    ],
)
def test_bad_write_options_are_named(
    columns: list[str], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_write_options({"brokers": "0:h:1", **options}, columns)


def test_a_null_and_a_payload_above_the_limit_fail_the_task(served: InProcessBroker) -> None:
    with pytest.raises(OptionError, match="null"):
        write(served, payloads(b"x", None), topic="t")
    with pytest.raises(MessageSizeTooLarge):
        write(served, payloads(b"x" * 11), topic="t", **{"max.message.size": "10"})


def test_a_topic_cannot_be_overwritten() -> None:
    source = DefaultSource({"brokers": "0:h:1", "topic": "t"})
    with pytest.raises(OptionError, match="append"):
        source.writer(StructType().add("payload", BinaryType()), overwrite=True)
