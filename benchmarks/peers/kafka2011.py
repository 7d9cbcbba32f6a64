"""Ourselves through the public API: one `send` a request; the simple consumer for what is stored,
a group consumer for what is live. The original's broker is asked by the same clients."""

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.common import DURABLE, RECEIVE_TIMEOUT_S, due_time_ns
from benchmarks.running_broker import running_broker
from kafka2011.consumer import Consumer
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.producer import Producer
from kafka2011.protocol.errors import OffsetOutOfRange
from tests.support.zookeeper import start_zookeeper

ENTRY_BYTES = 210  # of a message of 200 bytes in the log, plain, magic 1
FETCH_BYTES = 1 << 20
POLL_S = 0.01
# Of 0.7's config/server.properties: what the paper's measurements call asynchronous.
FLUSH_SETTINGS_07 = {
    "log_flush_interval": 10_000,
    "log_default_flush_interval_ms": 1000,
    "log_default_flush_scheduler_interval_ms": 1000,
}


@dataclass(frozen=True)
class Broker:
    process_id: int
    host: str
    port: int
    log_dir: Path
    is_durable: bool
    zk_connect: str

    def sender(self, topic: str) -> "Sender":
        return Sender(self, topic)

    def receiver(self, topic: str) -> "Receiver":
        return Receiver(SimpleConsumer(self.host, self.port), topic)

    def live_receiver(self, topic: str) -> "LiveReceiver":
        return LiveReceiver(self.zk_connect, topic)


class Sender:
    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = Producer(broker_list=f"0:{broker.host}:{broker.port}")
        self._broker = broker
        self._topic = topic
        self._sent = 0

    def send(self, payloads: list[bytes]) -> None:
        self._producer.send(self._topic, payloads[0] if len(payloads) == 1 else payloads)
        self._sent += len(payloads)

    def settle(self) -> None:
        """Durable: `flush`. Else until the broker has written everything to its files, as it has
        when it could answer, if its protocol had answers."""
        if self._broker.is_durable:
            self._producer.flush()
            return
        deadline_s = time.monotonic() + RECEIVE_TIMEOUT_S
        while written_bytes(self._broker.log_dir, self._topic) < self._sent * ENTRY_BYTES:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the broker has not written {self._sent} messages")
            time.sleep(POLL_S / 10)

    def close(self) -> None:
        self._producer.close()


def written_bytes(log_dir: Path, topic: str) -> int:
    return sum(
        os.path.getsize(file)
        for directory in log_dir.glob(f"{topic}-*")
        for file in directory.glob("*.kafka")
    )


class Receiver:
    """What is stored, from offset 0. What is not flushed yet cannot be read yet."""

    def __init__(self, consumer: SimpleConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._offset = 0

    def receive(self) -> int:
        count = 0
        # The original has not heard of an offset before its next flush.
        with contextlib.suppress(OffsetOutOfRange):
            fetched = self._consumer.fetch(self._topic, 0, self._offset, FETCH_BYTES)
            for _payload, next_offset in fetched.messages():
                count += 1
                self._offset = next_offset
        if not count:
            time.sleep(POLL_S)
        return count

    def close(self) -> None:
        self._consumer.close()


class LiveReceiver:
    """A group of one member."""

    def __init__(self, zk_connect: str, topic: str) -> None:
        self._consumer = Consumer(group_id=f"bench-{topic}", zk_connect=zk_connect)
        self._stream = iter(self._consumer.create_message_streams(topic, 1)[0])

    def due_times_ns(self) -> list[int]:
        return [due_time_ns(bytes(next(self._stream).payload))]

    def close(self) -> None:
        self._consumer.shutdown()


@contextmanager
def serve(directory: Path, setting: str) -> Iterator[Broker]:
    settings = {} if setting == DURABLE else FLUSH_SETTINGS_07
    with start_zookeeper(directory / "zookeeper") as server:
        zk_connect = f"{server.host}:{server.port}"
        with running_broker(
            directory, enable_zookeeper="true", zk_connect=zk_connect, **settings
        ) as broker:
            yield Broker(
                broker.process.pid,
                broker.host,
                broker.port,
                broker.log_dir,
                setting == DURABLE,
                zk_connect,
            )
