"""Ourselves, through the public API: a list of 50 in one call, and one iteration a message."""

import time
from pathlib import Path

from benchmarks.peers.common import BATCH, PAYLOAD, SECONDS, Rates
from benchmarks.running_broker import running_broker
from consumer.simple import SimpleConsumer
from producer.producer import Producer

DURABILITY = "group commit: confirmed and visible after fdatasync"


def measure(directory: Path) -> Rates:
    messages = [PAYLOAD] * BATCH
    with running_broker(directory) as broker:
        with Producer(broker_list=broker.broker_list) as producer:
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
        consumer = SimpleConsumer(broker.host, broker.port)
        offset = seen = 0
        began_s = time.perf_counter()
        while seen < sent:
            for _payload, next_offset in consumer.fetch("bench", 0, offset, 1 << 20).messages():
                seen += 1
                offset = next_offset
        consume = seen / (time.perf_counter() - began_s)
        consumer.close()
    return Rates(produce, consume)
