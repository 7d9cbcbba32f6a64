"""The questions, in the order of the table; each is answered by a process of its own.

An answer is a dictionary of figures by name with its unit, one a run; the table shows medians.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import consume, latency, log_sizes, produce, raw_fetch, recovery, round_trip

MIB = 1024 * 1024
SIZES_GB = [1, 5]
LARGE_SIZES_GB = [1, 5, 20, 50]

Ask = Callable[[Path, int], Iterator[dict[str, float]]]


@dataclass(frozen=True)
class Question:
    """`main` names the figure of the answer that the table shows, `paper` and `goal` its values."""

    name: str
    group: str
    main: str
    ask: Ask
    paper: float | None = None
    goal: float | None = None
    compiled_only: bool = False


def _produce(name: str, batch: int, **options: object) -> Question:
    def ask(data_dir: Path, runs: int) -> Iterator[dict[str, float]]:
        return produce.measure(data_dir, runs, batch, **options)

    return Question(name, "produce", "messages_per_s", ask, *_PRODUCE_GOALS.get(name, (None, None)))


_PRODUCE_GOALS = {
    "batch 1, sync": (50_000.0, 500_000.0),
    "batch 50": (400_000.0, 2_500_000.0),
}

_PRODUCE = [
    _produce("batch 1, sync", 1),
    _produce("batch 1, asynchronous", 1, is_asynchronous=True),
    _produce("batch 50", 50),
    _produce("batch 50, 4 connections", 50, connections=4),
    _produce("batch 50, 16 connections", 50, connections=16),
    _produce("batch 50, 64 partitions", 50, partitions=64),
    _produce("batch 50, 16 connections, 64 partitions", 50, connections=16, partitions=64),
    _produce("batch 1000", 1000),
    Question(
        "batch 1, encoded before, raw socket",
        "produce",
        "messages_per_s",
        lambda data_dir, runs: produce.measure_encoded(data_dir, runs, 1),
    ),
    Question(
        "batch 50, encoded before, raw socket",
        "produce",
        "messages_per_s",
        lambda data_dir, runs: produce.measure_encoded(data_dir, runs, 50),
    ),
    Question(
        "batch 50, 64 partitions named, encoded before, raw socket",
        "produce",
        "messages_per_s",
        lambda data_dir, runs: produce.measure_encoded(data_dir, runs, 50, partitions=64),
    ),
]

_CONSUME = [
    Question("simple consumer", "consume", "messages_per_s", consume.simple, 22_000.0, 2_000_000.0),
    *(
        Question(
            f"simple consumer, {count} connections",
            "consume",
            "messages_per_s",
            partial(consume.simple, connections=count),
        )
        for count in (4, 16)
    ),
    Question("group consumer's stream", "consume", "messages_per_s", consume.stream),
    Question(
        "simple consumer, payload lists",
        "consume",
        "messages_per_s",
        partial(consume.simple, as_lists=True),
        goal=7_000_000.0,
    ),
    Question(
        "group consumer's batches",
        "consume",
        "messages_per_s",
        partial(consume.stream, by_batches=True),
        goal=7_000_000.0,
    ),
]

_RAW_FETCH = [
    Question(
        f"{size}, of a bare sendfile loop",
        "raw fetch",
        "ratio",
        partial(raw_fetch.measure, fetch_bytes=fetch_bytes),
        goal=0.8,
    )
    for size, fetch_bytes in (("1 MiB", MIB), ("64 KiB", 64 * 1024))
] + [
    Question(
        f"1 MiB, {count} connections",
        "raw fetch",
        "bytes_per_s",
        partial(raw_fetch.measure, fetch_bytes=MIB, connections=count),
    )
    for count in (4, 16)
]

_DURABLE = [
    Question("one message sent and flushed, median", "durable", "p50_ms", round_trip.measure),
    Question(
        "serving after SIGKILL with 1 GB, from start of the process",
        "recovery",
        "serving_s",
        recovery.measure,
        goal=2.0,
    ),
]


_LATENCY = [
    Question(
        "producer to group consumer at 5,000/s, median",
        "latency",
        "p50_ms",
        partial(latency.measure, rate=5000),
        goal=1.0,
    ),
    Question(
        "an idle group consumer, processor time a second", "latency", "cpu_per_s_ms", latency.idle
    ),
]


def _sizes(sizes_gb: list[int]) -> Question:
    return Question(
        "append 1 GB to a log of that size",
        "log sizes",
        "append_bytes_per_s",
        lambda data_dir, _runs: log_sizes.measure(data_dir, sizes_gb),
        compiled_only=True,
    )


def questions(*, is_large: bool = False) -> list[Question]:
    sizes = _sizes(LARGE_SIZES_GB if is_large else SIZES_GB)
    return [*_PRODUCE, *_CONSUME, *_RAW_FETCH, *_DURABLE, *_LATENCY, sizes]
