"""How many messages a second do producers hand over, durable at the end?

200-byte messages through `Producer.send`: one call a message, or one call with a list. Measured
from the first `send` to the return of the `flush()` behind the last. The row of pre-encoded
requests goes below the API: a plain socket writes the same frames again and again.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.crowd import together
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.producer import Producer
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import LATEST, OffsetsRequest, ProduceRequest, encode_request

MESSAGE_BYTES = 200
ENTRY_BYTES = MESSAGE_BYTES + 10
PAYLOAD = bytes(MESSAGE_BYTES)
SECONDS = 1.0
LOOK_EVERY = 500_000  # messages at most between two readings of the clock


def producer(broker: RunningBroker, *, is_asynchronous: bool = False) -> Producer:
    return Producer(
        broker_list=broker.broker_list,
        producer_type="async" if is_asynchronous else "sync",
        enqueue_timeout_ms=-1,  # a full queue holds the caller back
    )


def fill(broker: RunningBroker, topic: str, byte_count: int, batch: int = 1000) -> float:
    """Append about that many bytes, durable; returns bytes a second."""
    messages = [PAYLOAD] * batch
    sends = max(1, byte_count // (batch * ENTRY_BYTES))
    began = time.perf_counter()
    with producer(broker) as one:
        for _ in range(sends):
            one.send(topic, messages)
        one.flush()
    return sends * batch * ENTRY_BYTES / (time.perf_counter() - began)


def send_for_a_while(producers: list[Producer], topic: str, batch: int) -> int:
    """Round and round over the connections for `SECONDS`, then flush; returns messages sent."""
    message = PAYLOAD if batch == 1 else [PAYLOAD] * batch
    rounds = max(1, min(200, LOOK_EVERY // (batch * len(producers))))
    sends = [one.send for one in producers]
    sent = 0
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for _ in range(rounds):
            for send in sends:
                send(topic, message)
        sent += rounds
    for one in producers:
        one.flush()
    return sent * batch * len(producers)


def measure(
    data_dir: Path,
    runs: int,
    batch: int,
    *,
    connections: int = 1,
    partitions: int = 1,
    is_asynchronous: bool = False,
) -> Iterator[dict[str, float]]:
    with running_broker(data_dir, num_partitions=partitions) as broker:
        for run in range(runs):
            topic = f"bench-{run}"

            def work(count: int, ready: Callable[[], None], topic: str = topic) -> int:
                with ExitStack() as stack:
                    producers = [
                        stack.enter_context(producer(broker, is_asynchronous=is_asynchronous))
                        for _ in range(count)
                    ]
                    for one in producers:  # connected, and the topic made
                        one.send(topic, [PAYLOAD])
                        one.flush()
                    ready()
                    return send_for_a_while(producers, topic, batch)

            cpu_s = broker.cpu_s()
            sent, elapsed_s = together(connections, work)
            cpu_s = broker.cpu_s() - cpu_s
            yield {
                "messages_per_s": sent / elapsed_s,
                "cpu_us_per_message": 1e6 * cpu_s / sent,
                "cpu_us_per_request": 1e6 * cpu_s / (sent / batch),
                "resident_mib": broker.resident_mib(),
            }


def measure_encoded(
    data_dir: Path, runs: int, batch: int, *, partitions: int = 1
) -> Iterator[dict[str, float]]:
    """The same frames, encoded beforehand, from a plain socket: what the broker alone can take.
    They name the partitions in turn, as producers with ZooKeeper do."""
    with running_broker(data_dir, num_partitions=partitions) as broker:
        for run in range(runs):
            topic = f"bench-{run}"
            round_of = [
                encode_request(ProduceRequest(topic, partition, encode([PAYLOAD] * batch)))
                for partition in range(partitions)
            ]
            repeats = max(1, 256 * 1024 // sum(map(len, round_of)))
            frames, together_count = b"".join(round_of * repeats), partitions * repeats
            with socket.create_connection((broker.host, broker.port)) as connection:
                cpu_s = broker.cpu_s()
                sent = 0
                began = time.perf_counter()
                while time.perf_counter() < began + SECONDS:
                    connection.sendall(frames)
                    sent += together_count
                connection.sendall(encode_request(OffsetsRequest(topic, 0, LATEST, 1)))
                if len(connection.recv(100)) < 18:
                    raise RuntimeError("the broker refused what was sent")
                elapsed_s = time.perf_counter() - began
                cpu_s = broker.cpu_s() - cpu_s
            yield {
                "messages_per_s": sent * batch / elapsed_s,
                "cpu_us_per_message": 1e6 * cpu_s / (sent * batch),
                "cpu_us_per_request": 1e6 * cpu_s / sent,
                "resident_mib": broker.resident_mib(),
            }
