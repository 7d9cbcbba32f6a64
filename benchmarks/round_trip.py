"""How long is a message on its way to the disk? One `send` and its `flush`, again and again."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.produce import PAYLOAD, producer
from benchmarks.running_broker import running_broker

ROUNDS = 300


def measure(data_dir: Path, runs: int) -> Iterator[dict[str, float]]:
    with running_broker(data_dir) as broker, producer(broker) as one:
        one.send("bench", PAYLOAD)
        one.flush()
        for _ in range(runs):
            times_ms = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                one.send("bench", PAYLOAD)
                one.flush()
                times_ms.append(1000 * (time.perf_counter() - began))
            cuts = statistics.quantiles(times_ms, n=100)
            yield {"p50_ms": cuts[49], "p99_ms": cuts[98]}
