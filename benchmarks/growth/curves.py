"""The curves: what is varied, what is measured at each value, and the law that is expected."""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import log_sizes, produce
from benchmarks.growth import members
from benchmarks.produce import ENTRY_BYTES, PAYLOAD, SECONDS
from benchmarks.raw_fetch import TOPIC, fetch_for_a_while
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import (
    LATEST,
    FetchRequest,
    OffsetsRequest,
    ProduceRequest,
    encode_request,
)

BATCH = 50
RUNS = 2  # of each point; the better one counts, since other work can only slow it down
FILL_BYTES = 100_000_000
FETCH_BYTES = 64 * 1024
MULTIFETCH_PARTS = 64

Point = dict[str, float]


@dataclass(frozen=True)
class Line:
    """A figure of the points, and how it should grow: as the power `law` of what is varied."""

    figure: str
    label: str
    law: float


@dataclass(frozen=True)
class Curve:
    """`measure(data_dir, values)` yields a point for each value. `law` is for people."""

    name: str
    x: str
    y: str
    values: tuple[int, ...]
    lines: tuple[Line, ...]
    law: str
    measure: Callable[[Path, tuple[int, ...]], Iterator[Point]]


# --- partitions --------------------------------------------------------------------------------


def _named(broker: RunningBroker, topics: list[str], partitions: int) -> float:
    """Messages a second of a producer that goes through all partitions, a request each."""
    encoded = encode([PAYLOAD] * BATCH)
    frames = [
        encode_request(ProduceRequest(topic, partition, encoded))
        for topic in topics
        for partition in range(partitions)
    ]
    last = encode_request(OffsetsRequest(topics[-1], partitions - 1, LATEST, 1))
    with socket.create_connection((broker.host, broker.port)) as connection:
        for warm_up in (True, False):  # the first round makes the files
            sent = 0
            began = time.perf_counter()
            while sent == 0 or (not warm_up and time.perf_counter() < began + SECONDS):
                for frame in frames:
                    connection.sendall(frame)
                sent += len(frames)
            connection.sendall(last)
            if len(connection.recv(100)) < 18:
                raise RuntimeError("the broker refused what was sent")
        return sent * BATCH / (time.perf_counter() - began)


def _consumed(broker: RunningBroker, topics: list[str], partitions: int) -> float:
    """Messages a second of one consumer that reads all of them, from the start to the end."""
    names = [(topic, partition) for topic in topics for partition in range(partitions)]
    with SimpleConsumer(broker.host, broker.port) as consumer:
        ends = {name: consumer.latest(*name) for name in names}
        offsets = dict.fromkeys(names, 0)
        seen = 0
        began = time.perf_counter()
        while time.perf_counter() < began + SECONDS:
            open_names = [name for name in names if offsets[name] < ends[name]]
            if not open_names:
                offsets = dict.fromkeys(names, 0)
                continue
            for at in range(0, len(open_names), MULTIFETCH_PARTS):
                batch = open_names[at : at + MULTIFETCH_PARTS]
                parts = [FetchRequest(*name, offsets[name], FETCH_BYTES) for name in batch]
                for name, fetched in zip(batch, consumer.multifetch(parts), strict=True):
                    seen += len(fetched.payloads())
                    offsets[name] += fetched.valid_bytes()
        return seen / (time.perf_counter() - began)


def _of_partitions(data_dir: Path, values: tuple[int, ...]) -> Iterator[Point]:
    for count in values:
        with running_broker(data_dir, num_partitions=count) as broker:
            yield _best(
                lambda broker=broker, count=count: {  # type: ignore[misc]
                    "produced": _named(broker, ["bench"], count),
                    "consumed": _consumed(broker, ["bench"], count),
                    "memory_mib": broker.resident_mib(),
                }
            )


def _of_topics(data_dir: Path, values: tuple[int, ...]) -> Iterator[Point]:
    for count in values:
        topics = [f"topic-{number}" for number in range(count)]
        with running_broker(data_dir, num_partitions=1) as broker:
            yield _best(
                lambda broker=broker, topics=topics: {  # type: ignore[misc]
                    "produced": _named(broker, topics, 1),
                    "consumed": _consumed(broker, topics, 1),
                    "memory_mib": broker.resident_mib(),
                }
            )


# --- connections ---------------------------------------------------------------------------------


def _of_connections(data_dir: Path, values: tuple[int, ...]) -> Iterator[Point]:
    for count in values:
        produced = [
            answer["messages_per_s"]
            for answer in produce.measure(data_dir, RUNS, BATCH, connections=count)
        ]
        with running_broker(data_dir) as broker:
            produce.fill(broker, TOPIC, FILL_BYTES)
            fetched = [fetch_for_a_while(broker, FETCH_BYTES, count)[0] for _ in range(RUNS)]
            yield {
                "produced": max(produced),
                "consumed": max(fetched) / ENTRY_BYTES,
                "memory_mib": broker.resident_mib(),
            }


# --- the size of the log -------------------------------------------------------------------------


def _of_log_sizes(data_dir: Path, values: tuple[int, ...]) -> Iterator[Point]:
    for answer in log_sizes.measure(data_dir, list(values)):
        yield {
            "append": answer["append_bytes_per_s"] / 2**20,
            "newest": answer["read_newest_bytes_per_s"] / 2**20,
            "memory_mib": answer["resident_mib"],
        }


def _best(measure: Callable[[], Point]) -> Point:
    points = [measure() for _ in range(RUNS)]
    return {name: max(point[name] for point in points) for name in points[0]}


_RATES = (
    Line("produced", "produced, a second", 0.0),
    Line("consumed", "consumed, a second", 0.0),
)
MESSAGES = "messages a second, all together"
CURVES = (
    Curve(
        "partitions",
        "partitions",
        MESSAGES,
        (1, 4, 16, 64, 250, 1000),
        _RATES,
        "flat: a partition is a file; requests, not files, cost",
        _of_partitions,
    ),
    Curve(
        "connections",
        "connections",
        MESSAGES,
        (1, 4, 16, 64, 125, 250, 500),
        _RATES,
        "flat: one loop serves all",
        _of_connections,
    ),
    Curve(
        "members",
        "members of the group",
        "seconds, and requests to ZooKeeper",
        (1, 2, 4, 8, 16, 32, 64),
        (
            Line("requests", "requests until all had started", 2.0),
            Line("simulated_requests", "the same, simulated", 2.0),
            Line("started_s", "seconds until all had started", 1.0),
            Line("joined_s", "seconds until one more had joined", 1.0),
        ),
        "requests grow with the square: each member reads every other's registration",
        members.measure,
    ),
    Curve(
        "topics",
        "topics",
        MESSAGES,
        (1, 2, 4, 6, 8, 10, 12),
        _RATES,
        "flat: a topic is a name",
        _of_topics,
    ),
    Curve(
        "log-size",
        "GB in one partition's log",
        "MiB a second",
        (1, 2, 5, 10, 20),
        (
            Line("append", "appended and flushed, 1 GB", 0.0),
            Line("newest", "read, the newest 1 GB", 0.0),
        ),
        "flat: an offset is a place in a file",
        _of_log_sizes,
    ),
)
