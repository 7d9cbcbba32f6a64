"""A batch read of the data source while the broker under it dies and comes back.

The query stands still in the middle of the topic until the broker serves again: what it holds then
is in buffers, and the larger part of the topic has still to be fetched.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from tests.support.brokers import RunningBroker, start_broker
from tests.support.stored import stored_entries
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(3000)]

TOPIC = "numbers"
# 200 MB. On their way each of two partitions crosses three pairs of socket buffers (broker, reader,
# JVM, query), which Linux lets grow to about 10 MB a pair: 60 MB. 25 MB were seen.
PAYLOAD_BYTES = 1000
COUNT = 200_000
SET_MESSAGES = 400
WAIT_S = 600
SENT = "kafka2011_broker_bytes_out_total"
SAMPLES = 100


def payload(number: int) -> bytes:
    return b"%08d" % number + bytes(PAYLOAD_BYTES - 8)


def fill(broker: RunningBroker) -> None:
    with Producer(broker_list=f"11:{broker.host}:{broker.port}") as producer:
        for start in range(0, COUNT, SET_MESSAGES):
            entries = message_set.encode([payload(n) for n in range(start, start + SET_MESSAGES)])
            partition = start // SET_MESSAGES % 2
            producer.send_set(TOPIC, entries, broker_id=11, partition=partition)
        producer.flush()


def sent_bytes(broker: RunningBroker) -> float:
    """What the broker has sent to consumers since its start."""
    found = [value for name, value in broker.metrics().items() if name.startswith(SENT)]
    assert found, "the broker's counter of sent bytes has another name"
    return sum(found)


def stands_still(measure: Callable[[], float]) -> Callable[[], bool]:
    """True once the figure was the same, and not 0, in SAMPLES samples in a row."""
    seen: list[float] = []

    def look() -> bool:
        value = measure()
        if seen and seen[-1] != value:
            seen.clear()
        seen.append(value)
        return value > 0 and len(seen) > SAMPLES

    return look


def test_a_broker_that_is_killed_in_the_middle_of_a_batch_loses_and_repeats_nothing(
    spark: Any, tmp_path: Path
) -> None:
    gate, go = tmp_path / "waiting", tmp_path / "go"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """On an executor: the first rows say that reading has begun; then nothing until `go`."""
        for batch in batches:
            gate.touch()
            pause = threading.Event()
            while not go.exists():
                pause.wait(0.05)
            numbers = pa.array([raw[:8] for raw in batch.column("payload").to_pylist()])
            columns = [batch.column("partition"), batch.column("offset"), numbers]
            yield pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "number"])

    outcome: dict[str, Any] = {}
    with start_broker(tmp_path, 11, num_partitions=2) as broker:
        fill(broker)
        expected = {
            (entry.partition, entry.start): entry.payload[:8]
            for entry in stored_entries(broker.log_dir, TOPIC)
        }
        assert len(expected) == COUNT
        port = broker.port
        frame = (
            spark.read.format("kafka2011")
            .options(brokers=f"11:127.0.0.1:{port}", partitions="2", topic=TOPIC)
            .option("fetch.size", str(64 * 1024))
            .load()
            .mapInArrow(hold, "partition int, offset long, number binary")
        )

        def collect() -> None:
            try:
                outcome["rows"] = frame.toArrow()
            except Exception as error:  # told in the test's thread
                outcome["error"] = error

        query = threading.Thread(target=collect)
        query.start()
        try:
            wait_until(lambda: gate.exists() or not query.is_alive(), "the first rows", WAIT_S)
            assert "error" not in outcome, outcome["error"]
            wait_until(stands_still(lambda: sent_bytes(broker)), "full buffers", WAIT_S)
            assert sent_bytes(broker) < 0.6 * COUNT * PAYLOAD_BYTES  # there is more to come
            broker.kill()
            with start_broker(tmp_path, 11, port=port, num_partitions=2) as again:
                go.touch()
                query.join(WAIT_S)
                assert not query.is_alive()
                assert "error" not in outcome, outcome["error"]
                assert sent_bytes(again) > 0
        finally:
            go.touch()
            query.join(WAIT_S)
    rows = outcome["rows"].to_pydict()
    places = list(zip(rows["partition"], rows["offset"], strict=True))
    assert len(places) == len(set(places)) == COUNT
    assert dict(zip(places, rows["number"], strict=True)) == expected
