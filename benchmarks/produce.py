"""How many messages a second does one producer hand over, durable at the end?

200-byte messages, one partition, from the first `send` to the return of the `flush()` that follows
the last.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.running_broker import running_broker
from producer.producer import Producer

MESSAGE_BYTES = 200


@dataclass(frozen=True)
class ProduceResult:
    messages_per_s: float
    broker_cpu_us_per_request: float
    broker_resident_mib: float


def measure(
    data_dir: Path, batch: int, count: int, *, is_asynchronous: bool = False
) -> ProduceResult:
    """`batch` 1: one call a message; else one call with a list. Asynchronous: the producer makes
    the batches, and a full queue holds the caller back."""
    payload = bytes(MESSAGE_BYTES)
    messages = [payload] * batch
    with (
        running_broker(data_dir) as broker,
        Producer(
            broker_list=broker.broker_list,
            producer_type="async" if is_asynchronous else "sync",
            enqueue_timeout_ms=-1,
        ) as producer,
    ):
        producer.send("bench", messages)
        producer.flush()
        cpu_before = broker.cpu_s()
        began = time.perf_counter()
        if batch == 1:
            for _ in range(count):
                producer.send("bench", payload)
        else:
            for _ in range(count // batch):
                producer.send("bench", messages)
        producer.flush()
        elapsed_s = time.perf_counter() - began
        cpu_s = broker.cpu_s() - cpu_before
        return ProduceResult(
            count / elapsed_s, 1e6 * cpu_s / (count / batch), broker.resident_mib()
        )
