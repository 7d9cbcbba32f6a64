"""RabbitMQ: classic durable queues by as much of AMQP 0-9-1 as that takes, and the server's start
for these and for its streams (rabbitmq_streams.py)."""

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers import common
from benchmarks.peers.common import (
    MESSAGE_BYTES,
    WINDOW,
    RawReceiver,
    find,
    free_port,
    next_bytes,
    running,
)

METHOD, HEADER, BODY = 1, 2, 3
NO_TABLE = bytes(4)


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


class Connection:
    """One connection with one channel, number 1."""

    def __init__(self, port: int) -> None:
        self.socket = common.connect(port)
        self._data = b""
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect(10, 10)
        login = short(b"PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest" + short(b"en_US")
        self.socket.sendall(method(0, 10, 11, NO_TABLE + login))
        tune = self.expect(10, 30)
        channels, frame_max, _ = struct.unpack(">HIH", tune)
        self.socket.sendall(method(0, 10, 31, struct.pack(">HIH", channels, frame_max, 0)))
        self.ask(0, (10, 40), short(b"/") + b"\0\0", (10, 41))
        self.ask(1, (20, 10), b"\0", (20, 11))

    def next_frame(self) -> tuple[int, bytes]:
        """The kind and payload of the next frame."""
        while True:
            if len(self._data) >= 7:
                kind, _, size = struct.unpack_from(">BHI", self._data)
                if len(self._data) >= size + 8:
                    payload = self._data[7 : 7 + size]
                    self._data = self._data[8 + size :]
                    return kind, payload
            self._data += next_bytes(self.socket)

    def expect(self, class_id: int, method_id: int) -> bytes:
        """The arguments of the next frame, which must be this method."""
        _, payload = self.next_frame()
        if struct.unpack_from(">HH", payload) != (class_id, method_id):
            raise RuntimeError(f"RabbitMQ answered {payload!r}")
        return payload[4:]

    def ask(
        self, channel: int, what: tuple[int, int], arguments: bytes, answer: tuple[int, int]
    ) -> bytes:
        self.socket.sendall(method(channel, *what, arguments))
        return self.expect(*answer)

    def declare(self, queue: str) -> None:
        arguments = b"\0\0" + short(queue.encode()) + b"\x02" + NO_TABLE  # durable
        self.ask(1, (50, 10), arguments, (50, 11))


class Sender:
    """Persistent messages to a durable queue; with `confirms` each is confirmed, without only the
    connection's own back pressure holds it."""

    def __init__(self, port: int, queue: str, confirms: bool) -> None:
        self._connection = Connection(port)
        self._connection.declare(queue)
        self._queue = queue
        self._confirms = confirms
        if confirms:
            self._connection.ask(1, (85, 10), b"\0", (85, 11))
        persistent = struct.pack(">HHQHB", 60, 0, MESSAGE_BYTES, 0x1000, 2)
        self._head = method(1, 60, 40, b"\0\0" + short(b"") + short(queue.encode()) + b"\0")
        self._head += frame(HEADER, 1, persistent)
        self._sent = self._answered = 0

    def send(self, payloads: list[bytes]) -> None:
        frames = b"".join(self._head + frame(BODY, 1, payload) for payload in payloads)
        self._connection.socket.sendall(frames)
        self._sent += len(payloads)
        if self._confirms:
            self._wait(self._sent - WINDOW)

    def settle(self) -> None:
        if self._confirms:
            self._wait(self._sent)
        else:  # answered behind everything that came before on the channel
            self._connection.declare(self._queue)

    def _wait(self, count: int) -> None:
        while self._answered < count:
            _, payload = self._connection.next_frame()
            class_id, method_id, tag, multiple = struct.unpack(">HHQB", payload)
            if (class_id, method_id) != (60, 80):
                raise RuntimeError(f"RabbitMQ did not confirm: {payload!r}")
            # Confirms of single messages may come in any order: count them.
            self._answered = max(self._answered, tag) if multiple else self._answered + 1

    def close(self) -> None:
        self._connection.socket.close()


@dataclass(frozen=True)
class Rabbit:
    process_id: int
    port: int
    confirms: bool

    def sender(self, topic: str) -> Sender:
        return Sender(self.port, topic, self.confirms)

    def receiver(self, topic: str) -> RawReceiver:
        connection = Connection(self.port)
        connection.declare(topic)
        no_ack = b"\0\0" + short(topic.encode()) + short(b"reader") + b"\x02" + NO_TABLE
        connection.socket.sendall(method(1, 60, 20, no_ack))
        return RawReceiver(connection.socket, partial(next_bytes, connection.socket))

    live_receiver = receiver


@contextmanager
def server(directory: Path, port: int, stream_port: int | None) -> Iterator[int]:
    """The process id of a server that takes AMQP connections, and with `stream_port` streams."""
    # The wrapper on the path wants to be another user: the server beside it does not.
    find("rabbitmq-server", "rabbitmq-server")
    program = find("", "rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")
    settings = f"listeners.tcp.1 = 127.0.0.1:{port}\n"
    if stream_port is not None:
        settings += f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}\n"
    (directory / "rabbitmq.conf").write_text(settings)
    (directory / "plugins").write_text("[].\n" if stream_port is None else "[rabbitmq_stream].\n")
    environment = os.environ | {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
    }
    try:
        with running([program], stream_port or port, directory, environment) as process:
            yield process.pid
    finally:
        # The name server that it started stays behind by itself.
        subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)


@contextmanager
def serve(directory: Path, *, confirms: bool) -> Iterator[Rabbit]:
    port = free_port()
    with server(directory, port, None) as process_id:
        yield Rabbit(process_id, port, confirms)
