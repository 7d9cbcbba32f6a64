"""Tansu, a broker of today's Kafka protocol that keeps records as rows of SQLite: as much of that
protocol as one producer and one consumer of record batches take, in the lowest versions that have
them (https://kafka.apache.org/protocol)."""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers import common
from benchmarks.peers.common import RawReceiver, RawSender, find, free_port, next_bytes, running
from kafka2011.events.primitives import long

PRODUCE, FETCH, CREATE_TOPICS = (0, 3), (1, 4), (19, 2)  # key and version
OK, TOPIC_ALREADY_EXISTS = 0, 36
ALL_REPLICAS = -1
TIMEOUT_MS = 30_000
FETCH_BYTES = 1 << 20
# This version sleeps out the wait that a fetch permits even when it has something, and what it
# stores and reads goes through one queue: the least wait is what serves reader and producer best.
WAIT_MS = 1
MAGIC = 2


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC_OF_BYTE = [_crc_of_byte(value) for value in range(256)]


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, which zlib has not: tens of microseconds a message, where Tansu takes
    hundreds; a request that is sent again has it already."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_OF_BYTE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def record(delta: int, payload: bytes) -> bytes:
    """One of a batch, that many behind its first: no key, no headers. Its varints are Avro's."""
    body = b"\0\0" + long(delta) + long(-1) + long(len(payload)) + payload + long(0)
    return long(len(body)) + body


def record_batch(payloads: list[bytes], time_ms: int) -> bytes:
    """A batch that is not compressed, of a producer that is not idempotent."""
    count = len(payloads)
    checked = struct.pack(">hiqqqhii", 0, count - 1, time_ms, time_ms, -1, -1, -1, count)
    checked += b"".join(record(delta, payload) for delta, payload in enumerate(payloads))
    behind = struct.pack(">ibI", -1, MAGIC, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(behind)) + behind


def next_offset(batches: bytes, otherwise: int) -> int:
    """The offset behind the last of these batches."""
    at = 0
    while at < len(batches):
        base_offset, size = struct.unpack_from(">qi", batches, at)
        (last_delta,) = struct.unpack_from(">i", batches, at + 23)
        otherwise = base_offset + last_delta + 1
        at += 12 + size
    return otherwise


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def one_topic(topic: str) -> bytes:
    """The head of an array of one topic's one partition, and that partition's number."""
    return struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, 0)


def request(api: tuple[int, int], body: bytes) -> bytes:
    head = struct.pack(">hhi", *api, 0) + text("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_request(topic: str, payloads: list[bytes]) -> bytes:
    batch = record_batch(payloads, time.time_ns() // 1_000_000)
    no_transaction = struct.pack(">hhi", -1, ALL_REPLICAS, TIMEOUT_MS)
    return request(
        PRODUCE, no_transaction + one_topic(topic) + struct.pack(">i", len(batch)) + batch
    )


class Connection:
    """Requests and their answers, one after the other. Raises RuntimeError."""

    def __init__(self, port: int) -> None:
        self.socket = common.connect(port)
        self._data = bytearray()

    def ask(self, api: tuple[int, int], body: bytes) -> bytes:
        """The answer behind its correlation id."""
        self.socket.sendall(request(api, body))
        while len(self._data) < 4 or len(self._data) < self._size():
            self._data += next_bytes(self.socket)
        answer = bytes(self._data[8 : self._size()])
        del self._data[: self._size()]
        return answer

    def _size(self) -> int:
        return 4 + int(struct.unpack_from(">i", self._data)[0])

    def create(self, topic: str) -> None:
        """A topic of one partition, without replicas, assignments and settings of its own."""
        wanted = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", 1, 1, 0, 0)
        answer = self.ask(CREATE_TOPICS, wanted + struct.pack(">i?", TIMEOUT_MS, False))
        (code,) = struct.unpack_from(">h", answer, 8 + len(text(topic)))
        if code not in (OK, TOPIC_ALREADY_EXISTS):
            raise RuntimeError(f"Tansu refused the topic with code {code}")


class Fetches:
    """One fetch after the other, each from where the last one ended."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._offset = 0

    def read(self) -> bytes:
        """The batches of one answer, which may be none."""
        limits = struct.pack(">iiiib", -1, WAIT_MS, 1, FETCH_BYTES, 0)
        where = one_topic(self._topic) + struct.pack(">qi", self._offset, FETCH_BYTES)
        answer = self._connection.ask(FETCH, limits + where)
        at = 4 + len(one_topic(self._topic))  # behind the throttle time and the partition's number
        code, _high, _stable, _aborted, size = struct.unpack_from(">hqqii", answer, at)
        if code != OK:
            raise RuntimeError(f"Tansu refused a fetch with code {code}")
        batches = answer[at + 26 : at + 26 + max(0, size)]
        self._offset = next_offset(batches, self._offset)
        return batches


@dataclass(frozen=True)
class Tansu:
    process_id: int
    port: int

    def sender(self, topic: str) -> RawSender:
        connection = Connection(self.port)
        connection.create(topic)
        # A refusal has another code, is not counted, and ends the run as an answer that is missing.
        answer = one_topic(topic) + struct.pack(">h", OK)
        encode = partial(produce_request, topic)
        return RawSender(connection.socket, encode, answer, per_message=False)

    def receiver(self, topic: str) -> RawReceiver:
        connection = Connection(self.port)
        return RawReceiver(connection.socket, Fetches(connection, topic).read)

    live_receiver = receiver


@contextmanager
def serve(directory: Path) -> Iterator[Tansu]:
    port = free_port()
    server = find("tansu", "tansu --features dynostore,libsql", by="cargo install")
    address = f"tcp://127.0.0.1:{port}"
    settings = {
        "listener-url": address,
        "advertised-listener-url": address,
        "storage-engine": "sqlite:///tansu.db",  # in the directory it is started in
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with running([server, "broker", "--silent", *words], port, directory) as process:
        yield Tansu(process.pid, port)
