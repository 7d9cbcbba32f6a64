"""ActiveMQ: persistent messages to a queue by STOMP, 50 in a transaction, each commit confirmed."""

import socket
import time
from pathlib import Path

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

DURABILITY = "persistent, KahaDB with its default of an fsync before each commit is confirmed"


def frame(command: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
    return "\n".join([*lines, "", ""]).encode() + body + b"\0"


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(frame("CONNECT", accept_version="1.1", heart_beat="0,0", host="localhost"))
    data = b""
    while not data.endswith((b"\0", b"\0\n")):
        data += connection.recv(10_000)
    if not data.startswith(b"CONNECTED"):
        raise RuntimeError(data.decode(errors="replace"))
    return connection


def transaction() -> bytes:
    message = frame(
        "SEND",
        PAYLOAD,
        destination="/queue/bench",
        persistent="true",
        transaction="t",
        content_length=str(len(PAYLOAD)),
    )
    commit = frame("COMMIT", transaction="t", receipt="r")
    return frame("BEGIN", transaction="t") + message * BATCH + commit


def measure(directory: Path) -> Rates:
    find("activemq", "activemq")
    jar = find("", "activemq", "/usr/share/activemq/bin/activemq.jar")
    java = find("java", "default-jre-headless")
    port = free_port()
    where = (
        f"broker:(stomp://127.0.0.1:{port})?persistent=true&useJmx=false&dataDirectory={directory}"
    )
    options = ["-Xmx1g", "-Dactivemq.home=/usr/share/activemq", f"-Dactivemq.base={directory}"]
    command = [java, *options, "-jar", jar, "start", where]
    with running(command, port, directory):
        with connect(port) as connection:
            answers = Counter(connection, b"RECEIPT\n")
            sent, elapsed_s = send_for_a_while(connection, transaction(), answers, 1)
        with connect(port) as connection:
            deliveries = Counter(connection, b"MESSAGE\n")
            began_s = time.perf_counter()
            connection.sendall(frame("SUBSCRIBE", destination="/queue/bench", id="1", ack="auto"))
            deliveries.wait(sent)
            return Rates(sent / elapsed_s, sent / (time.perf_counter() - began_s))
