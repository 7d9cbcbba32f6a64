"""Redis Streams: XADD in pipelines, XREAD of 5000 that waits."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.common import (
    MARK,
    MESSAGE_BYTES,
    PAYLOAD,
    RawReceiver,
    RawSender,
    connect,
    find,
    free_port,
    next_bytes,
    running,
)

READ_COUNT = 5000
BLOCK_MS = 1000
NOTHING = b"*-1\r\n"
# The head of an answer up to the number of its entries, and an entry's id.
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n")
_ENTRY = re.compile(rb"\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nm\r\n\$%d\r\n" % MESSAGE_BYTES)


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


@dataclass(frozen=True)
class Redis:
    process_id: int
    port: int

    def sender(self, topic: str) -> RawSender:
        def encode(payloads: list[bytes]) -> bytes:
            return b"".join(command(b"XADD", topic.encode(), b"*", b"m", one) for one in payloads)

        return RawSender(connect(self.port), encode, b"-")  # an id: a time, a dash, a number

    def receiver(self, topic: str) -> RawReceiver:
        connection = connect(self.port)
        return RawReceiver(connection, _Reads(connection, topic).read)

    live_receiver = receiver


class _Reads:
    """One XREAD after the other."""

    def __init__(self, connection: socket.socket, topic: str) -> None:
        self._connection = connection
        self._topic = topic.encode()
        self._last = b"0"

    def read(self) -> bytes:
        count, block_ms = b"%d" % READ_COUNT, b"%d" % BLOCK_MS
        words = (b"XREAD", b"COUNT", count, b"BLOCK", block_ms, b"STREAMS", self._topic, self._last)
        self._connection.sendall(command(*words))
        data = bytearray(next_bytes(self._connection))
        while not _is_whole(data):
            data += next_bytes(self._connection)
        if data != NOTHING:
            self._last = _ENTRY.findall(data[-2 * MESSAGE_BYTES :])[-1]
        return bytes(data)


def _is_whole(data: bytearray) -> bool:
    if data == NOTHING:
        return True
    head = _HEAD.match(data)
    end = len(data) - data.rfind(MARK)
    return head is not None and end == len(PAYLOAD) + 2 and data.count(MARK) == int(head[1])


@contextmanager
def serve(directory: Path, fsync: str) -> Iterator[Redis]:
    port = free_port()
    server = find("redis-server", "redis-server")
    settings = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": directory,
        "appendonly": "yes",
        "appendfsync": fsync,
        "save": "",
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with running([server, *words], port, directory) as process:
        yield Redis(process.pid, port)
