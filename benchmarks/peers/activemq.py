"""ActiveMQ: persistent messages to a queue by STOMP, a transaction a request, commits confirmed."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers import common
from benchmarks.peers.common import RawReceiver, RawSender, find, free_port, next_bytes, running


def frame(command: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
    return "\n".join([*lines, "", ""]).encode() + body + b"\0"


def connect(port: int) -> socket.socket:
    connection = common.connect(port)
    connection.sendall(frame("CONNECT", accept_version="1.1", heart_beat="0,0", host="localhost"))
    data = b""
    while not data.endswith((b"\0", b"\0\n")):
        data += next_bytes(connection)
    if not data.startswith(b"CONNECTED"):
        raise RuntimeError(data.decode(errors="replace"))
    return connection


def transaction(topic: str, payloads: list[bytes]) -> bytes:
    one = {"destination": f"/queue/{topic}", "persistent": "true"}
    if len(payloads) == 1:
        size = str(len(payloads[0]))
        return frame("SEND", payloads[0], **one, content_length=size, receipt="r")
    messages = [
        frame("SEND", payload, **one, transaction="t", content_length=str(len(payload)))
        for payload in payloads
    ]
    commit = frame("COMMIT", transaction="t", receipt="r")
    return frame("BEGIN", transaction="t") + b"".join(messages) + commit


@dataclass(frozen=True)
class ActiveMq:
    process_id: int
    port: int

    def sender(self, topic: str) -> RawSender:
        encode = partial(transaction, topic)
        return RawSender(connect(self.port), encode, b"RECEIPT\n", per_message=False)

    def receiver(self, topic: str) -> RawReceiver:
        connection = connect(self.port)
        connection.sendall(frame("SUBSCRIBE", destination=f"/queue/{topic}", id="1", ack="auto"))
        return RawReceiver(connection, partial(next_bytes, connection))

    live_receiver = receiver


@contextmanager
def serve(directory: Path) -> Iterator[ActiveMq]:
    find("activemq", "activemq")
    jar = find("", "activemq", "/usr/share/activemq/bin/activemq.jar")
    java = find("java", "default-jre-headless")
    port = free_port()
    where = (
        f"broker:(stomp://127.0.0.1:{port})?persistent=true&useJmx=false&dataDirectory={directory}"
    )
    options = ["-Xmx1g", "-Dactivemq.home=/usr/share/activemq", f"-Dactivemq.base={directory}"]
    command = [java, *options, "-jar", jar, "start", where]
    with running(command, port, directory) as process:
        yield ActiveMq(process.pid, port)
