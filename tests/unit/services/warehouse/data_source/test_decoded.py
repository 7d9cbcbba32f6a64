"""The Spark format without Spark's JVM: decoded rows, quarantine, and partitions that change."""

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from kafka2011.consumer.spark.options import OptionError
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.topic_codec import id_prefix
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol.errors import OffsetOutOfRange
from pyspark_kafka2011 import DefaultSource
from tests.support.registries import URL, DirectRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.unit.services.warehouse import samples
from tests.unit.services.warehouse.samples import access_log_payload, payload_with

PARTITION = (ACCESS_LOG, 0)
BY_ID = {"event.forms": "*:id", "schema.registry.url": URL}


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def source_of(broker: ScriptedBroker, **options: str) -> DefaultSource:
    given = {"brokers": f"11:127.0.0.1:{broker.port}", "topic": ACCESS_LOG, "event.forms": "*:2011"}
    return DefaultSource({**given, **options})


def rows(broker: ScriptedBroker, **options: str) -> list[dict[str, Any]]:
    """The rows for Spark by offset, if they have one; every batch has the schema of the source."""
    source = source_of(broker, **options)
    spark_schema = source.schema()
    if isinstance(spark_schema, str):  # only a JVM reads this
        names = [part.split()[0] for part in spark_schema.split(", ")]
        schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
    else:
        schema = to_arrow_schema(spark_schema, timezone="UTC")
    reader = source.reader(spark_schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == schema
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row.get("offset", 0))


def quarantined(directory: Path) -> list[dict[str, Any]]:
    (file,) = directory.iterdir()
    return pq.read_table(file).to_pylist()  # type: ignore[no-any-return]


def test_decoded_rows_have_the_messages_place_and_the_events_columns(
    broker: ScriptedBroker,
) -> None:
    ends = [broker.append(*PARTITION, [access_log_payload(n)]) for n in range(3)]
    columns = "topic,broker,partition,offset,next_offset,server,path,status,error,payload"
    found = rows(broker, decode=ACCESS_LOG, columns=columns)
    assert [",".join(row) for row in found] == [columns] * 3
    assert [tuple(row.values()) for row in found] == [
        (ACCESS_LOG, 11, 0, start, end, "frontend-1", path, 200, None, None)
        for start, end, path in zip(
            [0, *ends[:2]], ends, ["/page/0?q=0", "/page/1?q=1", "/page/2?q=2"], strict=True
        )
    ]


def test_events_with_the_registrys_ids_are_decoded_each_by_its_schema(
    broker: ScriptedBroker, registry: DirectRegistry, tmp_path: Path
) -> None:
    shipped, newer = (
        samples.prefix_of(registry, samples.SHIPPED_SCHEMA),
        samples.prefix_of(registry, samples.NEWER_SCHEMA),
    )
    payloads = [
        payload_with(shipped, 1),
        payload_with(newer, 9) + b"\x04de",
        payload_with(id_prefix(99), 1),
    ]
    broker.append(*PARTITION, payloads)
    found = rows(broker, decode="true", **BY_ID)
    assert [(row["status"], row["path"], row["payload"]) for row in found] == [
        (200, "/page/1?q=1", None),
        (404, "/page/4?q=0", None),
        (None, None, payloads[2]),
    ]
    assert [row["error"] for row in found[:2]] == [None, None]
    assert "99" in found[2]["error"]
    # Undecoded, the column has the ids; with a quarantine, the undecodable message goes there.
    ids = rows(broker, columns="schema_id", **BY_ID)
    assert [row["schema_id"] for row in ids] == [str(shipped[4]), str(newer[4]), "99"]
    aside = tmp_path / "aside"
    assert len(rows(broker, decode="true", **BY_ID, **{"quarantine.dir": str(aside)})) == 2
    assert [message["payload"] for message in quarantined(aside)] == [payloads[2]]


def test_events_of_a_schema_that_only_the_registry_has_are_decoded(
    broker: ScriptedBroker, registry: DirectRegistry
) -> None:
    amounts = {"type": "map", "values": ["null", "int"]}
    fields = [{"name": "topic", "type": "string"}, {"name": "amounts", "type": amounts}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    prefix = samples.prefix_of(registry, schema, "order-value")
    broker.append(*PARTITION, [prefix + b"\2a\2\2k\2\10\0", prefix + b"\2a\2"])
    one, cut = rows(broker, decode="order", **BY_ID)
    assert (one["topic"], one["event_topic"], one["amounts"]) == (ACCESS_LOG, "a", [("k", 4)])
    assert "body" in cut["error"]
    with pytest.raises(OptionError, match="no schema for topic click-on"):
        rows(broker, decode="click-on", **BY_ID)


@pytest.mark.parametrize("names", [("error", "event_error"), ("event_Topic", "Topic", "ERROR")])
def test_fields_whose_names_are_taken_are_columns_of_their_own(
    broker: ScriptedBroker, registry: DirectRegistry, names: tuple[str, ...]
) -> None:
    fields = [{"name": name, "type": "int"} for name in names]
    schema = {"type": "record", "name": "Order", "fields": fields}
    prefix = samples.prefix_of(registry, schema, "order-value")
    broker.append(*PARTITION, [prefix + bytes(range(0, 2 * len(names), 2)), prefix])
    one, cut = rows(broker, decode="order", **BY_ID)
    found = {name: one[f"event_{name}"] for name in names}
    assert found == {name: number for number, name in enumerate(names)}
    assert (one["topic"], one["error"], one["payload"]) == (ACCESS_LOG, None, None)
    assert "body" in cut["error"]


def test_a_registry_that_is_away_fails_the_task_and_judges_nothing(
    broker: ScriptedBroker, registry: DirectRegistry, tmp_path: Path
) -> None:
    broker.append(*PARTITION, [payload_with(id_prefix(7), 1)])
    registry.is_down = True
    with pytest.raises(RegistryUnavailable):
        rows(broker, decode="true", **BY_ID, **{"quarantine.dir": str(tmp_path / "aside")})
    assert not (tmp_path / "aside").exists()


@pytest.mark.parametrize(
    ("decode", "is_damaged", "error"),
    [
        ("false", True, "damaged entry"),
        ("true", True, "damaged entry"),
        ("true", False, "not in the 2011 form"),
    ],
    ids=["damaged, raw", "damaged, decoded", "no event"],
)
def test_a_message_that_cannot_be_read_goes_to_the_quarantine_once(
    broker: ScriptedBroker, tmp_path: Path, decode: str, is_damaged: bool, error: str
) -> None:
    start = broker.append(*PARTITION, [access_log_payload(1)])
    end = broker.append(*PARTITION, [b"junk"])
    broker.append(*PARTITION, [access_log_payload(2)])
    broker.logs[PARTITION][end - 1] ^= is_damaged
    aside = tmp_path / "aside"
    for _ in range(2):  # a task that Spark runs again
        found = rows(broker, decode=decode, **{"quarantine.dir": str(aside)})
        assert [row["offset"] for row in found] == [0, end]
    (message,) = quarantined(aside)
    assert (message["topic"], message["broker"], message["partition"]) == (ACCESS_LOG, 11, 0)
    assert (message["offset"], message["next_offset"]) == (start, end)
    assert error in message["error"]


def test_a_task_that_fails_leaves_no_quarantine_file(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    broker.append(*PARTITION, [b"damaged"])
    broker.logs[PARTITION][-1] ^= 1
    broker.logs[PARTITION] += b"\x00\x00\x00\x01\x00\x00\x00\x00\x00"  # an impossible length
    with pytest.raises(Exception, match="length 1"):
        rows(broker, **{"quarantine.dir": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"decode": "no-such-topic"}, "none is set"),
        ({"decode": "true", "topics": "a,b"}, "needs one topic"),
        ({"columns": "offset,colour"}, "no column 'colour'"),
        ({"decode": "true", "columns": "colour"}, "no column 'colour'"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], reason: str) -> None:
    given = {"brokers": "11:127.0.0.1:1", "topic": ACCESS_LOG, **options}
    with pytest.raises(OptionError, match=reason):
        DefaultSource(given).schema()


# --- while it is read ----------------------------------------------------------------------------


PAYLOADS = [b"%04d" % number for number in range(300)]  # an entry of these has 14 bytes


def started(broker: ScriptedBroker, **options: str) -> tuple[list[bytes], Iterator[bytes]]:
    """The payloads of the partition's first small fetch, and those of the rest, not fetched yet."""
    reader = source_of(broker, topic="t", **{"fetch.size": "400"}, **options).reader("")
    (split,) = reader.partitions()
    fetches = (batch.column("payload").to_pylist() for batch in reader.read(split))
    return next(fetches), itertools.chain.from_iterable(fetches)


def test_a_broker_that_restarts_is_read_on_where_it_stopped(broker: ScriptedBroker) -> None:
    broker.append("t", 0, PAYLOADS)
    first, rest = started(broker)
    broker.close()
    with ScriptedBroker(broker.port) as again:
        again.logs.update(broker.logs)
        assert [*first, *rest] == PAYLOADS


def test_a_segment_that_is_retired_is_an_error_or_passed_over(broker: ScriptedBroker) -> None:
    broker.append("t", 0, PAYLOADS)
    _, strict = started(broker, failOnDataLoss="true")
    _, lenient = started(broker, failOnDataLoss="false")
    broker.retire("t", 0, 14 * 200)
    with pytest.raises(OffsetOutOfRange):
        list(strict)
    assert list(lenient) == PAYLOADS[200:]
    _, lenient = started(broker, failOnDataLoss="false")
    broker.retire("t", 0, 14 * 300)  # all of it is gone before the rest was read
    assert list(lenient) == []


def test_json_has_the_columns_of_its_beginning_and_the_reader_has_those_of_the_plan(
    broker: ScriptedBroker,
) -> None:
    broker.append("sales", 0, [b'{"n":1,"at":5}', b"poison"])
    options = {"topic": "sales", "decode": "true", "event.forms": "*:id,sales:json"}
    source = source_of(broker, **options)
    planned = source.schema()
    kinds = {field.name: field.dataType.simpleString() for field in planned}
    assert (kinds["n"], kinds["at"], kinds["rest"]) == ("bigint", "bigint", "string")
    broker.retire("sales", 0, broker.append("sales", 0, [b'{"n":"two","later":true}']))
    sent_on = pickle.loads(pickle.dumps(source))  # as Spark does between schema and reader
    assert sent_on.schema() == planned
    assert "n" not in source_of(broker, **options).schema().names, "of an empty topic, none"
    broker.append("sales", 0, [b'{"n":"two","later":true}', b'{"n":3}'])
    reader = sent_on.reader(planned)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    found = [(row["n"], row["rest"]) for batch in batches for row in batch.to_pylist()]
    assert found == [(None, '{"n":"two","later":true}'), (3, None)]
