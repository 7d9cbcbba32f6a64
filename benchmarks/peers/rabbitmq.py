"""RabbitMQ: persistent messages, a durable queue, publisher confirms, consumed without acks.

As much of AMQP 0-9-1 as that takes.
"""

import os
import socket
import struct
import subprocess
import time
from pathlib import Path

from benchmarks.peers.common import (
    BATCH,
    PAYLOAD,
    SECONDS,
    WINDOW,
    Counter,
    Rates,
    find,
    free_port,
    running,
)

DURABILITY = "durable queue, persistent messages, publisher confirms (after fsync)"
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
        self.socket = socket.create_connection(("127.0.0.1", port))
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
            received = self.socket.recv(65536)
            if not received:
                raise RuntimeError("RabbitMQ closed the connection")
            self._data += received

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


def publish_frames() -> bytes:
    persistent = struct.pack(">HHQHB", 60, 0, len(PAYLOAD), 0x1000, 2)
    return (
        method(1, 60, 40, b"\0\0" + short(b"") + short(b"bench") + b"\0")
        + frame(HEADER, 1, persistent)
        + frame(BODY, 1, PAYLOAD)
    )


def produce(port: int) -> tuple[int, float]:
    connection = Connection(port)
    connection.ask(1, (50, 10), b"\0\0" + short(b"bench") + b"\x02" + NO_TABLE, (50, 11))
    connection.ask(1, (85, 10), b"\0", (85, 11))
    batch = publish_frames() * BATCH
    sent = confirmed = 0

    def wait(count: int) -> int:
        found = confirmed
        while found < count:
            _, payload = connection.next_frame()
            class_id, method_id, tag, multiple = struct.unpack(">HHQB", payload)
            if (class_id, method_id) != (60, 80):
                raise RuntimeError(f"RabbitMQ did not confirm: {payload!r}")
            # Confirms of single messages may come in any order: count them.
            found = max(found, tag) if multiple else found + 1
        return found

    began_s = time.perf_counter()
    while time.perf_counter() < began_s + SECONDS:
        connection.socket.sendall(batch)
        sent += BATCH
        confirmed = wait(sent - WINDOW)
    wait(sent)
    elapsed_s = time.perf_counter() - began_s
    connection.socket.close()
    return sent, elapsed_s


def consume(port: int, count: int) -> float:
    connection = Connection(port)
    began_s = time.perf_counter()
    no_ack = b"\0\0" + short(b"bench") + short(b"reader") + b"\x02" + NO_TABLE
    connection.socket.sendall(method(1, 60, 20, no_ack))
    Counter(connection.socket, PAYLOAD + b"\xce").wait(count)
    elapsed_s = time.perf_counter() - began_s
    connection.socket.close()
    return elapsed_s


def measure(directory: Path) -> Rates:
    # The wrapper on the path wants to be another user: the server beside it does not.
    find("rabbitmq-server", "rabbitmq-server")
    server = find("", "rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")
    port, names_port = free_port(), free_port()
    (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (directory / "plugins").write_text("[].\n")
    environment = os.environ | {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(names_port),
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
        with running([server], port, directory, environment):
            sent, produce_s = produce(port)
            return Rates(sent / produce_s, sent / consume(port, sent))
    finally:
        # The name server that it started stays behind by itself.
        subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)
