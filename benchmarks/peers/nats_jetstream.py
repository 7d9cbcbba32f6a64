"""NATS JetStream: a stream on files, acknowledged publishes, a push consumer without acks."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers import common
from benchmarks.peers.common import RawReceiver, RawSender, find, free_port, next_bytes, running


def publish(subject: str, reply: str, data: bytes) -> bytes:
    return f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n"


def ask(connection: socket.socket, subject: str, request: dict[str, Any]) -> None:
    """A JetStream request; its answer comes to the subject `answers`. Raises RuntimeError."""
    connection.sendall(publish(f"$JS.API.{subject}", "answers", json.dumps(request).encode()))
    data = b""
    while b"}\r\n" not in data:
        data += next_bytes(connection)
    if b'"error"' in data:
        raise RuntimeError(data.decode(errors="replace"))


def connect(port: int) -> socket.socket:
    connection = common.connect(port)
    next_bytes(connection)  # INFO
    connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\nPING\r\n')
    while b"PONG\r\n" not in next_bytes(connection):
        pass
    return connection


@dataclass(frozen=True)
class Nats:
    process_id: int
    port: int

    def sender(self, topic: str) -> RawSender:
        connection = connect(self.port)
        stream = {"name": topic, "subjects": [topic], "storage": "file", "retention": "limits"}
        ask(connection, f"STREAM.CREATE.{topic}", stream)
        connection.sendall(b"SUB acks 2\r\n")

        def encode(payloads: list[bytes]) -> bytes:
            return b"".join(publish(topic, "acks", one) for one in payloads)

        return RawSender(connection, encode, b'"seq":')

    def receiver(self, topic: str) -> RawReceiver:
        connection = connect(self.port)
        connection.sendall(b"SUB deliveries 3\r\n")
        consumer = {
            "deliver_subject": "deliveries",
            "ack_policy": "none",
            "deliver_policy": "all",
            "replay_policy": "instant",
        }
        wanted = json.dumps({"stream_name": topic, "config": consumer}).encode()
        connection.sendall(publish(f"$JS.API.CONSUMER.CREATE.{topic}", "answers", wanted))
        return RawReceiver(connection, partial(next_bytes, connection))

    live_receiver = receiver


@contextmanager
def serve(directory: Path) -> Iterator[Nats]:
    port = free_port()
    server = find("nats-server", "nats-server")
    command = [server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)]
    with running(command, port, directory) as process:
        yield Nats(process.pid, port)
