"""NATS JetStream: a stream on files, acknowledged publishes, a push consumer without acks."""

import json
import socket
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.common import (
    BATCH,
    PAYLOAD,
    Counter,
    Rates,
    find,
    free_port,
    running,
    send_for_a_while,
)

DURABILITY = "file storage; acknowledged before fsync, which comes every 2 minutes"


def publish(subject: str, reply: str, data: bytes) -> bytes:
    return f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n"


def ask(connection: socket.socket, subject: str, request: dict[str, Any]) -> None:
    """A JetStream request; its answer comes to the subject `answers`. Raises RuntimeError."""
    connection.sendall(publish(f"$JS.API.{subject}", "answers", json.dumps(request).encode()))
    data = b""
    while b"}\r\n" not in data:
        data += connection.recv(100_000)
    if b'"error"' in data:
        raise RuntimeError(data.decode(errors="replace"))


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.recv(100_000)  # INFO
    connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\nPING\r\n')
    while b"PONG\r\n" not in connection.recv(1000):
        pass
    return connection


def measure(directory: Path) -> Rates:
    port = free_port()
    server = find("nats-server", "nats-server")
    command = [server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)]
    with running(command, port, directory):
        with connect(port) as connection:
            ask(
                connection,
                "STREAM.CREATE.bench",
                {"name": "bench", "subjects": ["bench"], "storage": "file", "retention": "limits"},
            )
            connection.sendall(b"SUB acks 2\r\n")
            batch = publish("bench", "acks", PAYLOAD) * BATCH
            answers = Counter(connection, b'"seq":')
            sent, elapsed_s = send_for_a_while(connection, batch, answers, BATCH)
        with connect(port) as connection:
            connection.sendall(b"SUB deliveries 3\r\n")
            deliveries = Counter(connection, b"\r\n" + PAYLOAD)
            began_s = time.perf_counter()
            consumer = {
                "deliver_subject": "deliveries",
                "ack_policy": "none",
                "deliver_policy": "all",
                "replay_policy": "instant",
            }
            request = {"stream_name": "bench", "config": consumer}
            connection.sendall(
                publish("$JS.API.CONSUMER.CREATE.bench", "answers", json.dumps(request).encode())
            )
            deliveries.wait(sent)
            return Rates(sent / elapsed_s, sent / (time.perf_counter() - began_s))
