"""Ourselves, through the public API: a list of 50 in one call, and one iteration a message."""

import time
from pathlib import Path

from benchmarks.peers.common import BATCH, PAYLOAD, SECONDS, Rates
from benchmarks.running_broker import running_broker
from consumer.simple import SimpleConsumer
from producer.producer import Producer

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
    while not consumer.fetch("bench", 0, (sent - 1) * MESSAGE_BYTES, 1 << 20).messages():
        time.sleep(0.01)  # the original shows the end only after its next flush
    offset = seen = 0
    began_s = time.perf_counter()
    while seen < sent:
        for _payload, next_offset in consumer.fetch("bench", 0, offset, 1 << 20).messages():
            seen += 1
            offset = next_offset
    consume = seen / (time.perf_counter() - began_s)
    consumer.close()
    return Rates(produce, consume)
