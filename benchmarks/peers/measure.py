"""What one run asks of one running peer: throughput as it grows with what was sent and read, what
that cost, and how long messages take at a rate."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.peers.common import MESSAGE_BYTES, Peer, Sender, message, use_of

MIB = 2**20
POINT_BYTES = MIB  # a point of a timeline about every so many
SETTLED_S = 1.0  # deliveries before a rate's first second are not counted
READER_TIMEOUT_S = 60.0
DELIVERED_TIMEOUT_S = 10.0  # for the last message, behind the last send
SEND_BEHIND_MAX_S = 2.0  # a sender that is later than this has found the peer's limit

Timeline = list[tuple[int, float]]  # messages, seconds since the first


@dataclass(frozen=True)
class Throughput:
    """`produced` ends when everything is stored as promised; costs are microseconds of processor
    time a message; the peak is of the server since its start, the disk what its directory grew."""

    batch: int
    messages: int
    produced: Timeline
    consumed: Timeline
    produce_server_us: float
    produce_client_us: float
    consume_server_us: float
    consume_client_us: float
    peak_mib: float
    disk_bytes_per_message: float

    def as_record(self) -> dict[str, Any]:
        return asdict(self) | {
            "produce_messages_per_s": rate_of(self.produced),
            "consume_messages_per_s": rate_of(self.consumed),
        }


def rate_of(timeline: Timeline) -> float:
    """Messages a second of the whole timeline."""
    messages, seconds = timeline[-1]
    return messages / seconds


def throughput(
    peer: Peer, directory: Path, *, batch: int, seconds: float, megabytes: int
) -> Throughput:
    """Send for that long or that much, whichever is first, settle, then read all of it."""
    topic = f"batch{batch}"
    before_bytes = disk_bytes(directory)
    produced, produce_server_us, produce_client_us = _produce(
        peer, topic, batch, seconds, megabytes * MIB // MESSAGE_BYTES
    )
    messages = produced[-1][0]
    consumed, consume_server_us, consume_client_us = _consume(peer, topic, messages)
    return Throughput(
        batch,
        messages,
        produced,
        consumed,
        produce_server_us,
        produce_client_us,
        consume_server_us,
        consume_client_us,
        use_of(peer.process_id).peak_mib,
        (disk_bytes(directory) - before_bytes) / messages,
    )


@contextlib.contextmanager
def _costs(peer: Peer, found: list[float]) -> Iterator[None]:
    """Appends the processor seconds of server and client."""
    server_s, client_s = use_of(peer.process_id).cpu_s, time.process_time()
    yield
    found += [use_of(peer.process_id).cpu_s - server_s, time.process_time() - client_s]


def _produce(
    peer: Peer, topic: str, batch: int, seconds: float, messages_max: int
) -> tuple[Timeline, float, float]:
    sender = peer.sender(topic)
    payloads = [message()] * batch
    requests = max(1, POINT_BYTES // MESSAGE_BYTES // batch // 8)  # a slow peer has points too
    timeline: Timeline = []
    sent, point = 0, 0
    costs: list[float] = []
    try:
        with _costs(peer, costs):
            began_s = now_s = time.perf_counter()
            while sent < messages_max and now_s - began_s < seconds:
                for _ in range(requests):
                    sender.send(payloads)
                sent += requests * batch
                now_s = time.perf_counter()
                if sent * MESSAGE_BYTES >= point + POINT_BYTES:
                    point = sent * MESSAGE_BYTES
                    timeline.append((sent, now_s - began_s))
            sender.settle()
            timeline.append((sent, time.perf_counter() - began_s))
    finally:
        sender.close()
    return timeline, costs[0] / sent * 1e6, costs[1] / sent * 1e6


def _consume(peer: Peer, topic: str, messages: int) -> tuple[Timeline, float, float]:
    receiver = peer.receiver(topic)
    timeline: Timeline = []
    received, point = 0, 0
    costs: list[float] = []
    try:
        with _costs(peer, costs):
            began_s = time.perf_counter()
            while received < messages:
                received += receiver.receive()
                if received * MESSAGE_BYTES >= point + POINT_BYTES:
                    point = received * MESSAGE_BYTES
                    timeline.append((received, time.perf_counter() - began_s))
            timeline.append((received, time.perf_counter() - began_s))
    finally:
        receiver.close()
    return timeline, costs[0] / received * 1e6, costs[1] / received * 1e6


def disk_bytes(directory: Path) -> int:
    """What the files below occupy."""
    total = 0
    for file in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.lstat().st_blocks * 512
    return total


# --- latency --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latency:
    """Of messages sent one by one at a rate, from when each was due to when the consumer had it, so
    that a sender that is held back counts. `reached` is the rate that was."""

    rate: int
    reached: float
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency(peer: Peer, *, rate: int, seconds: float) -> Latency | None:
    """None when the peer could not take or deliver the rate."""
    topic = f"rate{rate}"
    total = int(rate * (SETTLED_S + seconds))
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    sender = peer.sender(topic)
    sender.send([message()])  # the topic is there before its reader asks
    sender.settle()
    reader = context.Process(target=_read_latencies, args=(peer, topic, total, theirs), daemon=True)
    reader.start()
    try:
        if not ours.poll(READER_TIMEOUT_S):
            raise RuntimeError(f"no reader of {topic} within {READER_TIMEOUT_S:.0f} s")
        ours.recv()
        elapsed_s = _send_at(sender, rate, total)
        if elapsed_s is None or not ours.poll(DELIVERED_TIMEOUT_S):
            return None
        delays_ns: list[int] = ours.recv()
    finally:
        reader.kill()
        reader.join()
        with contextlib.suppress(RuntimeError, OSError):
            sender.close()
    counted = sorted(delays_ns[int(rate * SETTLED_S) :])

    def part(share: float) -> float:
        return counted[min(len(counted) - 1, int(share * len(counted)))] / 1e6

    return Latency(rate, total / elapsed_s, part(0.5), part(0.99), counted[-1] / 1e6)


def _send_at(sender: Sender, rate: int, total: int) -> float | None:
    """The seconds it took; None when the sender fell too far behind."""
    began_ns = time.monotonic_ns()
    step_ns = 1_000_000_000 / rate
    for number in range(total):
        due_ns = began_ns + int(number * step_ns)
        ahead_ns = due_ns - time.monotonic_ns()
        if ahead_ns > 0:
            time.sleep(ahead_ns / 1e9)
        elif ahead_ns < -SEND_BEHIND_MAX_S * 1e9:
            return None
        sender.send([message(due_ns)])
    return (time.monotonic_ns() - began_ns) / 1e9


def _read_latencies(peer: Peer, topic: str, total: int, pipe: Connection) -> None:
    """In a process of its own: says that it reads, then answers with the delays, ns."""
    receiver = peer.live_receiver(topic)
    while not receiver.due_times_ns():
        pass
    pipe.send("reading")
    delays_ns: list[int] = []
    while len(delays_ns) < total:
        due_ns = receiver.due_times_ns()
        now_ns = time.monotonic_ns()
        delays_ns += [now_ns - one for one in due_ns]
    pipe.send(delays_ns)
    os._exit(0)
