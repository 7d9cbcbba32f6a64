"""How many messages a second do consumers read, one Python iteration each?

The simple consumer (payload and next offset), and the stream of the group consumer as the paper's
API has it; its registry is in memory, so that ZooKeeper is no part of the figure.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

from benchmarks.crowd import together
from benchmarks.produce import ENTRY_BYTES, fill
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.consumer.keywords import ConsumerSettings
from kafka2011.consumer.paper_api import Consumer
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import paths
from tests.support.memory_zookeeper import InMemoryZooKeeper

TOPIC = "bench"
FETCH_BYTES = 1024 * 1024
LOG_BYTES = 300_000_000
SECONDS = 1.0


def simple(
    data_dir: Path, runs: int, *, connections: int = 1, as_lists: bool = False
) -> Iterator[dict[str, float]]:
    with running_broker(data_dir) as broker:
        fill(broker, TOPIC, LOG_BYTES)

        def work(count: int, ready: Callable[[], None]) -> int:
            consumers = [SimpleConsumer(broker.host, broker.port) for _ in range(count)]
            offsets = [0] * count
            seen = 0
            ready()
            end = time.perf_counter() + SECONDS
            while time.perf_counter() < end:
                for number, consumer in enumerate(consumers):
                    fetched = consumer.fetch(TOPIC, 0, offsets[number], FETCH_BYTES)
                    if as_lists:
                        seen += len(fetched.payloads())
                        offsets[number] += fetched.valid_bytes()
                        if offsets[number] >= LOG_BYTES - FETCH_BYTES:
                            offsets[number] = 0
                        continue
                    next_offset = 0  # at the end: from the start again
                    for _payload, next_offset in fetched.messages():  # noqa: B007
                        seen += 1
                    offsets[number] = next_offset
            for consumer in consumers:
                consumer.close()
            return seen

        for _ in range(runs):
            cpu_s = broker.cpu_s()
            seen, elapsed_s = together(connections, work)
            cpu_s = broker.cpu_s() - cpu_s
            yield {
                "messages_per_s": seen / elapsed_s,
                "cpu_us_per_message": 1e6 * cpu_s / seen,
                "cpu_us_per_request": 1e6 * cpu_s / (seen * ENTRY_BYTES / FETCH_BYTES),
                "resident_mib": broker.resident_mib(),
            }


def stream(data_dir: Path, runs: int, *, by_batches: bool = False) -> Iterator[dict[str, float]]:
    with running_broker(data_dir) as broker:
        fill(broker, TOPIC, LOG_BYTES)
        count = LOG_BYTES // (1000 * ENTRY_BYTES) * 1000
        for run in range(runs):
            yield {
                "messages_per_s": count / _stream_once(broker, f"group-{run}", count, by_batches)
            }


def _stream_once(broker: RunningBroker, group: str, count: int, by_batches: bool) -> float:
    """Seconds from the first message, or batch, to the last."""
    with group_stream(broker, group) as messages:
        if by_batches:
            batches = messages.batches()
            count -= len(next(batches))
            began = time.perf_counter()
            while count > 0:
                count -= len(next(batches).payloads)
            return time.perf_counter() - began
        next(messages)
        seen = 1
        began = time.perf_counter()
        for _message in messages:
            seen += 1
            if seen == count:
                break
        return time.perf_counter() - began


@contextmanager
def group_stream(
    broker: RunningBroker, group: str, **settings: Unpack[ConsumerSettings]
) -> Iterator[MessageStream]:
    """The one stream of a group's only member."""
    zookeeper = InMemoryZooKeeper()
    registry = zookeeper.client()
    registry.start()
    registry.put(paths.broker_id_path(0), paths.encode_broker(broker.host, broker.port, 1))
    registry.put(paths.topic_broker_path(TOPIC, 0), paths.encode_number(1))
    connector = Consumer(registry, group_id=group, consumer_timeout_ms=60_000, **settings)
    try:
        yield connector.create_message_streams(TOPIC)[0]
    finally:
        connector.shutdown()
        registry.close()
