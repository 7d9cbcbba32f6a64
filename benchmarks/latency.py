"""How long is a message on its way from `producer.send` to a group consumer, durable on that way?

A producer process sends at a steady rate, each message with the time of its `send`; a group member
in this process notes how old each is when its stream's loop gets it. Idle: what that member and the
broker use of a processor while nothing comes.
"""

import multiprocessing
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.consume import TOPIC, group_stream
from benchmarks.produce import PAYLOAD
from benchmarks.running_broker import running_broker
from kafka2011.consumer.stream import MessageStream
from kafka2011.producer import Producer

SECONDS = 3.0
IDLE_SECONDS = 3.0
WARM_UP_S = 0.5
SENT_AT = struct.Struct(">q")  # ns, of the clock that all processes share
TICK_S = 0.0002  # the sender looks this often at what is due


def send(broker_list: str, rate: int, stop: Event) -> None:
    """Messages at the rate until `stop`, one `send` each; what is late is sent at once."""
    rest = PAYLOAD[SENT_AT.size :]
    with Producer(broker_list=broker_list) as producer:
        began, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - began) * rate)
            for _ in range(due - sent):
                producer.send(TOPIC, SENT_AT.pack(time.monotonic_ns()) + rest)
            sent = max(sent, due)
            time.sleep(TICK_S)


def measure(data_dir: Path, runs: int, rate: int) -> Iterator[dict[str, float]]:
    spawned = multiprocessing.get_context("spawn")
    with running_broker(data_dir) as broker:
        for _ in range(runs):
            stop = spawned.Event()
            sender = spawned.Process(target=send, args=(broker.broker_list, rate, stop))
            with group_stream(broker, "g", autooffset_reset="largest") as stream:
                sender.start()
                cpu_s, own_s = broker.cpu_s(), time.process_time()
                ages_ms = _ages_ms(stream)
                cpu_s, own_s = broker.cpu_s() - cpu_s, time.process_time() - own_s
            stop.set()
            sender.join()
            cuts = statistics.quantiles(ages_ms, n=100)
            yield {
                "p50_ms": cuts[49],
                "p99_ms": cuts[98],
                "messages_per_s": len(ages_ms) / SECONDS,
                "broker_cpu": cpu_s / (SECONDS + WARM_UP_S),
                "consumer_cpu": own_s / (SECONDS + WARM_UP_S),
            }


def _ages_ms(stream: MessageStream) -> list[float]:
    ages_ms: list[float] = []
    begin = end = 0.0
    for message in stream:
        now_ns = time.monotonic_ns()
        if not begin:
            begin = time.monotonic() + WARM_UP_S
            end = begin + SECONDS
        elif now_ns > end * 1e9:
            break
        if now_ns > begin * 1e9:
            ages_ms.append((now_ns - SENT_AT.unpack_from(message.payload)[0]) / 1e6)
    return ages_ms


def idle(data_dir: Path, runs: int) -> Iterator[dict[str, float]]:
    with running_broker(data_dir) as broker:
        with Producer(broker_list=broker.broker_list) as producer:
            producer.send(TOPIC, PAYLOAD)
            producer.flush()
        with group_stream(broker, "g") as stream:
            next(stream)
            waiting = threading.Thread(target=lambda: next(stream, None), daemon=True)
            waiting.start()
            for _ in range(runs):
                time.sleep(WARM_UP_S)
                cpu_s, own_s = broker.cpu_s(), time.process_time()
                time.sleep(IDLE_SECONDS)
                yield {
                    "cpu_per_s_ms": 1e3 * (time.process_time() - own_s) / IDLE_SECONDS,
                    "broker_cpu_per_s_ms": 1e3 * (broker.cpu_s() - cpu_s) / IDLE_SECONDS,
                }
