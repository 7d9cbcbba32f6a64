"""The Spark format without Spark's JVM: decoded rows and quarantine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from kafka2011.consumer.spark.options import OptionError
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.events import codec_source
from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.schemas import schema_text
from kafka2011.events.topic_codec import id_prefix
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol.errors import OffsetOutOfRange
from pyspark_kafka2011 import DefaultSource
from tests.support.registries import DirectRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.unit.services.warehouse.samples import access_log_payload

PARTITION = (ACCESS_LOG, 0)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def rows(broker: ScriptedBroker, **options: str) -> list[dict[str, Any]]:
    """The rows for Spark; every batch has the schema of the source."""
    given = {"brokers": f"11:127.0.0.1:{broker.port}", "topic": ACCESS_LOG}
    given["event.forms"] = "*:2011"
    source = DefaultSource({**given, **{k.replace("_", "."): v for k, v in options.items()}})
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
    return [row for batch in batches for row in batch.to_pylist()]


def test_decoded_rows_have_the_events_columns(broker: ScriptedBroker) -> None:
    broker.append(*PARTITION, [access_log_payload(n) for n in range(3)])
    found = rows(broker, decode="true")
    assert [row["path"] for row in found] == ["/page/0?q=0", "/page/1?q=1", "/page/2?q=2"]
    assert found[0]["offset"] == 0
    assert found[0]["next_offset"] == found[1]["offset"]
    assert {(row["topic"], row["broker"], row["partition"]) for row in found} == {
        (ACCESS_LOG, 11, 0)
    }
    assert {(row["server"], row["error"], row["payload"]) for row in found} == {
        ("frontend-1", None, None)
    }
    assert rows(broker, decode=ACCESS_LOG, columns="status,path")[0] == {
        "status": 200,
        "path": "/page/0?q=0",
    }


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectRegistry]:
    """The registry of every client that is created in this process."""
    made = DirectRegistry(tmp_path / "registry")
    monkeypatch.setattr(codec_source, "RegistryClient", lambda *_, **__: made.client())
    yield made
    made.close()


def test_events_with_the_registrys_ids_are_decoded_each_by_its_schema(
    broker: ScriptedBroker, registry: DirectRegistry, tmp_path: Path
) -> None:
    client = registry.client()
    client.id_of("another", '"int"')  # so that the shipped schema's id is not 1 by chance
    shipped = client.id_of("access-log-value", schema_text(ACCESS_LOG))
    schema = json.loads(schema_text(ACCESS_LOG))
    schema["fields"].append({"name": "country", "type": "string", "default": ""})
    newer = client.id_of("access-log-value", json.dumps(schema))
    assert len({shipped, newer}) == 2
    body = access_log_payload(1)[17:], access_log_payload(9)[17:] + b"\x04de"
    payloads = [id_prefix(shipped) + body[0], id_prefix(newer) + body[1], id_prefix(99) + body[0]]
    broker.append(*PARTITION, payloads)
    options = {"decode": "true", "event_forms": "*:id", "schema_registry_url": "http://r"}
    # Undecodable messages come before the others of their batch.
    found = sorted(rows(broker, **options), key=lambda row: row["offset"])
    assert [(row["status"], row["path"]) for row in found] == [
        (200, "/page/1?q=1"),
        (404, "/page/4?q=0"),
        (None, None),
    ]
    assert [row["error"] is None for row in found] == [True, True, False]
    assert "99" in found[2]["error"]
    assert found[2]["payload"] == payloads[2]
    # Undecoded, the column has the ids; with a quarantine, the undecodable message goes there.
    ids = rows(broker, event_forms="*:id", columns="schema_id")
    assert [row["schema_id"] for row in ids] == [str(shipped), str(newer), "99"]
    assert len(rows(broker, **options, quarantine_dir=str(tmp_path / "aside"))) == 2
    (file,) = (tmp_path / "aside").iterdir()
    assert pq.read_table(file).column("payload").to_pylist() == [payloads[2]]


def test_a_registry_that_is_away_fails_the_task_and_judges_nothing(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    broker.append(*PARTITION, [id_prefix(7) + access_log_payload(1)[17:]])
    options = {"decode": "true", "event_forms": "*:id", "quarantine_dir": str(tmp_path / "aside")}
    with pytest.raises(RegistryUnavailable):
        rows(broker, **options, schema_registry_url="http://127.0.0.1:9")
    assert not (tmp_path / "aside").exists()


def test_an_undecodable_message_is_a_row_with_its_reason_or_quarantined(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    first_end = broker.append(*PARTITION, [access_log_payload(1)])
    broker.append(*PARTITION, [b"junk", access_log_payload(2)])
    found = sorted(rows(broker, decode="true"), key=lambda row: row["offset"])
    assert [row["path"] is None for row in found] == [False, True, False]
    assert (found[1]["offset"], found[1]["payload"]) == (first_end, b"junk")
    assert found[1]["error"]
    assert len(rows(broker, decode="true", quarantine_dir=str(tmp_path))) == 2
    (file,) = tmp_path.iterdir()
    assert pq.read_table(file).column("payload").to_pylist() == [b"junk"]


@pytest.mark.parametrize("decode", ["false", "true"])
def test_what_cannot_be_read_goes_to_the_quarantine_once(
    broker: ScriptedBroker, tmp_path: Path, decode: str
) -> None:
    start = broker.append(*PARTITION, [access_log_payload(1)])
    end = broker.append(*PARTITION, [b"damaged"])
    broker.append(*PARTITION, [access_log_payload(2)])
    broker.logs[PARTITION][end - 1] ^= 1
    for _ in range(2):  # a task that Spark runs again
        found = rows(broker, decode=decode, quarantine_dir=str(tmp_path / "aside"))
        assert len(found) == 2
        assert start not in [row["offset"] for row in found]
    (file,) = (tmp_path / "aside").iterdir()
    (message,) = pq.read_table(file).to_pylist()
    assert (message["topic"], message["broker"], message["partition"]) == (ACCESS_LOG, 11, 0)
    assert (message["offset"], message["next_offset"]) == (start, end)
    assert "damaged entry" in message["error"]


def test_a_task_that_fails_leaves_no_quarantine_file(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    broker.append(*PARTITION, [b"damaged"])
    broker.logs[PARTITION][-1] ^= 1
    broker.logs[PARTITION] += b"\x00\x00\x00\x01\x00\x00\x00\x00\x00"  # an impossible length
    with pytest.raises(Exception, match="length 1"):
        rows(broker, quarantine_dir=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"decode": "no-such-topic"}, "no schema is shipped"),
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


def reading(broker: ScriptedBroker, **options: str) -> Iterator[pa.RecordBatch]:
    """The batches of a partition, one small fetch each."""
    given = {"brokers": f"11:127.0.0.1:{broker.port}", "topic": "t", "fetch.size": "400"}
    reader = DefaultSource({**given, **options}).reader("")
    (split,) = reader.partitions()
    batches: Iterator[pa.RecordBatch] = reader.read(split)
    return batches


def numbered(broker: ScriptedBroker, count: int) -> list[bytes]:
    payloads = [b"%04d" % number for number in range(count)]
    broker.append("t", 0, payloads)
    return payloads


def payloads_of(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def test_a_broker_that_restarts_is_read_on_where_it_stopped(broker: ScriptedBroker) -> None:
    payloads = numbered(broker, 300)
    batches = reading(broker)
    first = payloads_of(iter([next(batches)]))
    broker.close()
    with ScriptedBroker(broker.port) as again:
        again.logs.update(broker.logs)
        assert first + payloads_of(batches) == payloads


def test_a_segment_that_is_retired_is_an_error_or_passed_over(broker: ScriptedBroker) -> None:
    payloads = numbered(broker, 300)
    batches = {loss: reading(broker, failOnDataLoss=loss) for loss in ("true", "false")}
    first = {loss: payloads_of(iter([next(part)])) for loss, part in batches.items()}
    broker.retire("t", 0, 14 * 200)  # an entry of these has 14 bytes
    with pytest.raises(OffsetOutOfRange):
        payloads_of(batches["true"])
    assert first["false"] + payloads_of(batches["false"]) == first["false"] + payloads[200:]
    # All of it is gone before the rest was read.
    batches["false"] = reading(broker, failOnDataLoss="false")
    next(batches["false"])
    broker.retire("t", 0, 14 * 300)
    assert payloads_of(batches["false"]) == []
