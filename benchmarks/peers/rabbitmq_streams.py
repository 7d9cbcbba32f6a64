"""RabbitMQ's streams by its binary stream protocol, as much of it as one producer and one consumer
take: https://github.com/rabbitmq/rabbitmq-server, deps/rabbitmq_stream/docs/PROTOCOL.adoc."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import common, rabbitmq
from benchmarks.peers.common import WINDOW, RawReceiver, free_port, next_bytes

DECLARE_PUBLISHER, PUBLISH, PUBLISH_CONFIRM, SUBSCRIBE, DELIVER, CREDIT = 1, 2, 3, 7, 8, 9
CREATE, PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN = 13, 17, 18, 19, 20, 21
VERSION, RESPONSE, OK, ALREADY_EXISTS = 1, 0x8000, 1, 5
FIRST, CHUNKS = 1, 10  # where a subscription begins; chunks in flight


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def frame(key: int, content: bytes) -> bytes:
    return struct.pack(">IHH", len(content) + 4, key, VERSION) + content


class Connection:
    """Opened and logged in. Raises RuntimeError."""

    def __init__(self, port: int) -> None:
        self.socket = common.connect(port)
        self._data = bytearray()
        self._correlation = 0
        self.ask(PEER_PROPERTIES, struct.pack(">I", 0))
        self.ask(SASL_HANDSHAKE, b"")
        login = b"\0guest\0guest"
        self.ask(SASL_AUTHENTICATE, text("PLAIN") + struct.pack(">I", len(login)) + login)
        key, tune = self.next_frame()
        if key != TUNE:
            raise RuntimeError(f"RabbitMQ sent frame {key} instead of Tune")
        frame_max, _ = struct.unpack_from(">II", tune)
        self.socket.sendall(frame(TUNE | RESPONSE, struct.pack(">II", frame_max, 0)))
        self.ask(OPEN, text("/"))

    def next_frame(self) -> tuple[int, bytes]:
        """The key of the next frame and what follows its version."""
        while True:
            if len(self._data) >= 4:
                (size,) = struct.unpack_from(">I", self._data)
                if len(self._data) >= 4 + size:
                    (key,) = struct.unpack_from(">H", self._data, 4)
                    content = bytes(self._data[8 : 4 + size])
                    del self._data[: 4 + size]
                    return key, content
            self._data += next_bytes(self.socket)

    def ask(self, key: int, content: bytes, *also: int) -> bytes:
        self._correlation += 1
        self.socket.sendall(frame(key, struct.pack(">I", self._correlation) + content))
        answered, answer = self.next_frame()
        correlation, code = struct.unpack_from(">IH", answer)
        if (answered, correlation) != (key | RESPONSE, self._correlation):
            raise RuntimeError(f"RabbitMQ sent frame {answered:#x} as the answer to {key:#x}")
        if code not in (OK, *also):
            raise RuntimeError(f"RabbitMQ refused {key:#x} with code {code}")
        return answer

    def create(self, stream: str) -> None:
        self.ask(CREATE, text(stream) + struct.pack(">I", 0), ALREADY_EXISTS)


class Sender:
    def __init__(self, port: int, stream: str) -> None:
        self._connection = Connection(port)
        self._connection.create(stream)
        self._connection.ask(DECLARE_PUBLISHER, b"\0" + text("") + text(stream))
        self._sent = self._answered = 0

    def send(self, payloads: list[bytes]) -> None:
        parts = [b"\0", struct.pack(">I", len(payloads))]
        for number, payload in enumerate(payloads, self._sent):
            parts += struct.pack(">QI", number, len(payload)), payload
        self._connection.socket.sendall(frame(PUBLISH, b"".join(parts)))
        self._sent += len(payloads)
        self._wait(self._sent - WINDOW)

    def settle(self) -> None:
        self._wait(self._sent)

    def _wait(self, count: int) -> None:
        while self._answered < count:
            key, content = self._connection.next_frame()
            if key != PUBLISH_CONFIRM:
                raise RuntimeError(f"RabbitMQ sent frame {key:#x} instead of a confirm")
            self._answered += int(struct.unpack_from(">I", content, 1)[0])

    def close(self) -> None:
        self._connection.socket.close()


class Deliveries:
    """The chunks of a subscription, each paid for with a credit for the next."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        wanted = b"\0" + text(stream) + struct.pack(">HH", FIRST, CHUNKS) + struct.pack(">I", 0)
        connection.ask(SUBSCRIBE, wanted)

    def read(self) -> bytes:
        while True:
            key, content = self._connection.next_frame()
            if key == DELIVER:
                self._connection.socket.sendall(frame(CREDIT, struct.pack(">BH", 0, 1)))
                return content


@dataclass(frozen=True)
class RabbitStreams:
    process_id: int
    port: int

    def sender(self, topic: str) -> Sender:
        return Sender(self.port, topic)

    def receiver(self, topic: str) -> RawReceiver:
        connection = Connection(self.port)
        connection.create(topic)
        return RawReceiver(connection.socket, Deliveries(connection, topic).read)

    live_receiver = receiver


@contextmanager
def serve(directory: Path) -> Iterator[RabbitStreams]:
    port = free_port()
    with rabbitmq.server(directory, free_port(), port) as process_id:
        yield RabbitStreams(process_id, port)
