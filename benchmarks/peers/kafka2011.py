"""Ourselves, through the public API: a list of 50 in one call, and one iteration a message."""

import contextlib
import time
from pathlib import Path

from benchmarks.peers.common import BATCH, PAYLOAD, SECONDS, Rates
from benchmarks.running_broker import running_broker
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.producer import Producer
from kafka2011.protocol.errors import OffsetOutOfRange

VISIBLE_TIMEOUT_S = 60
MESSAGE_BYTES = 10 + len(PAYLOAD)  # an entry of the log, plain, magic 1
DURABILITY = "group commit: confirmed and visible after fdatasync"


def measure(directory: Path) -> Rates:
    with running_broker(directory) as broker:
        return ask(broker.host, broker.port)


def ask(host: str, port: int) -> Rates:
    """The rates of the broker there, ours or the original: `flush` waits for what was sent."""
    messages = [PAYLOAD] * BATCH
    with Producer(broker_list=f"0:{host}:{port}") as producer:
        producer.send("bench", messages)
        producer.flush()
        sent = BATCH
        began_s = time.perf_counter()
        while time.perf_counter() < began_s + SECONDS:
            for _ in range(100):
                producer.send("bench", messages)
            sent += 100 * BATCH
        producer.flush()
        produce = (sent - BATCH) / (time.perf_counter() - began_s)
    consumer = SimpleConsumer(host, port)
    wait_for(consumer, (sent - 1) * MESSAGE_BYTES)
    offset = seen = 0
    began_s = time.perf_counter()
    while seen < sent:
        for _payload, next_offset in consumer.fetch("bench", 0, offset, 1 << 20).messages():
            seen += 1
            offset = next_offset
    consume = seen / (time.perf_counter() - began_s)
    consumer.close()
    return Rates(produce, consume)


def wait_for(consumer: SimpleConsumer, offset: int) -> None:
    """Until the message there can be read: the original shows the end only after its next flush,
    and has not heard of the offset before. Raises RuntimeError when it never does."""
    deadline_s = time.monotonic() + VISIBLE_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OffsetOutOfRange):
            if consumer.fetch("bench", 0, offset, 1 << 20).messages():
                return
        time.sleep(0.01)
    raise RuntimeError(f"offset {offset} is not readable after {VISIBLE_TIMEOUT_S} s")
