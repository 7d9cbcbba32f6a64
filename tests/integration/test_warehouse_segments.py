"""The warehouse's tables against the brokers' segment files, message by message.

The files are read here by their format alone (four bytes of length, magic, attributes, CRC,
payload) and decoded by fastavro, without any code of the project on that side. In between, loads
are killed, a broker is killed, sets are compressed, segments roll, and some messages are no events.
"""

import gzip
import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow.parquet as pq
import pytest

from kafka2011.events import schemas
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from tests.integration.test_warehouse_load import Jobs, Source, known_lines
from tests.support.clusters import Cluster
from tests.unit.services.warehouse.samples import access_log_payload

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

GZIP = 1
SCHEMA = fastavro.parse_schema(json.loads(schemas.schema_text(ACCESS_LOG)))
PREFIX_BYTES = 17  # a zero and the MD5 of the schema


class Stored(NamedTuple):
    """A message; `next_offset` is the end of the entry that stands in the log."""

    broker: int
    partition: int
    next_offset: int
    payload: bytes


def entries(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(end, attributes, payload) of each entry, up to where there is none."""
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if length <= 0:
            return
        magic = data[at + 4]
        head = 10 if magic == 1 else 9
        yield at + 4 + length, data[at + 5] if magic == 1 else 0, data[at + head : at + 4 + length]
        at += 4 + length


def stored(directory: Path, broker: int, topic: str) -> list[Stored]:
    """Every message of the topic in the broker's directory."""
    found = []
    for partition in range(2):
        for segment in sorted((directory / f"{topic}-{partition}").glob("*.kafka")):
            base = int(segment.stem)
            for end, attributes, payload in entries(segment.read_bytes()):
                inner = [payload]
                if attributes & 3 == GZIP:
                    inner = [each for _, _, each in entries(gzip.decompress(payload))]
                found += [Stored(broker, partition, base + end, each) for each in inner]
    return found


def as_row(message: Stored) -> dict[str, Any]:
    """What the table must have of an event."""
    event: Any = fastavro.schemaless_reader(io.BytesIO(message.payload[PREFIX_BYTES:]), SCHEMA)
    header = event.pop("header")
    time = header["time"]
    if isinstance(time, int):
        time = datetime.fromtimestamp(time / 1000, UTC)
    return {
        "guid": bytes(header["guid"]),
        "header_time": time,
        "server": header["server"],
        "service": header["service"],
        **event,
        "hour": f"{event['event_time']:%Y-%m-%d-%H}",
        "source_broker": message.broker,
        "source_partition": message.partition,
        "source_offset": message.next_offset,
    }


def table_rows(jobs: Jobs, name: str) -> list[dict[str, Any]]:
    """The rows of the files that the table's log names, with the hour that their place says."""
    found = []
    for file in jobs.table(name).file_paths():
        hour = Path(file).parent.name.removeprefix("hour=")
        found += [{**row, "hour": hour} for row in pq.ParquetFile(file).read().to_pylist()]
    return found


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["source_broker"],
        row["source_partition"],
        row["source_offset"],
        row.get("guid", b""),
        row.get("payload", b""),
    )


def test_each_message_of_the_segments_is_one_row_or_one_quarantined_message(
    tmp_path: Path, zk_connect: str
) -> None:
    settings = {"num_partitions": 2, "log_file_size": 20_000}
    jobs = Jobs(tmp_path, zk_connect)
    cluster = Cluster(zk_connect, tmp_path / "brokers", [11, 12], **settings)
    brokers = cluster.brokers
    source = Source(zk_connect)

    def send(seed: int) -> None:
        lines = [line.line for line in known_lines(600, seed)]
        source.send(lines)
        packed = message_set.encode_compressed(
            [access_log_payload(seed + n) for n in range(40)], Codec.GZIP
        )
        junk = message_set.encode([b"junk-%d-%d" % (seed, number) for number in range(3)])
        for broker_id in brokers:
            for partition in range(2):
                for data in (packed, junk):
                    source.producer.send_set(
                        ACCESS_LOG, data, broker_id=broker_id, partition=partition
                    )
        source.producer.flush()

    try:
        for seed, failpoint in ((1_000, "after_quarantine"), (2_000, "before_commit")):
            send(seed)
            status, _, err = jobs.run(
                "load.py", submit=False, KAFKA2011_FAILPOINTS=f"{failpoint}=exit:9"
            )
            assert status == 9, err
        brokers[12].kill()
        cluster.start(12)
        send(3_000)
        status, _, err = jobs.run("load.py", submit=False)
        assert status == 0, err
        send(4_000)
        assert jobs.run("load.py", submit=False)[0] == 0
        assert [broker.stop() for broker in brokers.values()] == [0, 0]
    finally:
        source.producer.close(5000)
        with cluster:
            pass
    messages = [
        message
        for number, broker in brokers.items()
        for message in stored(broker.log_dir, number, ACCESS_LOG)
    ]
    segments = list((brokers[11].log_dir / f"{ACCESS_LOG}-0").glob("*.kafka"))
    assert len(segments) > 2, "nothing rolled"
    junk = [message for message in messages if message.payload.startswith(b"junk")]
    events = [message for message in messages if not message.payload.startswith(b"junk")]
    assert len(junk) == 4 * 4 * 3
    assert len(events) == 4 * (600 + 4 * 40)

    found = sorted(table_rows(jobs, "access_log"), key=place)
    expected = sorted(map(as_row, events), key=place)
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row == wanted
    aside = sorted(table_rows(jobs, "quarantine/access_log"), key=place)
    assert [
        Stored(row["source_broker"], row["source_partition"], row["source_offset"], row["payload"])
        for row in aside
    ] == sorted(junk)
    assert all(row["reason"] for row in aside)
