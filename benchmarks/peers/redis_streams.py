"""Redis Streams: XADD in pipelines of 50, XREAD of 5000."""

import re
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

READ_COUNT = 5000
# The id of an entry, and where its only field begins.
_ENTRY = re.compile(rb"\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nm\r\n\$%d\r\n" % len(PAYLOAD))


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def measure(directory: Path, fsync: str) -> Rates:
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
    with (
        running([server, *words], port, directory),
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        batch = command(b"XADD", b"bench", b"*", b"m", PAYLOAD) * BATCH
        answers = Counter(connection, b"\r\n")  # an id is two lines
        sent, elapsed_s = send_for_a_while(connection, batch, answers, 2 * BATCH)
        return Rates(sent / elapsed_s, _read(connection, sent))


def _read(connection: socket.socket, count: int) -> float:
    last, seen = b"0", 0
    began_s = time.perf_counter()
    while seen < count:
        wanted = min(READ_COUNT, count - seen)
        connection.sendall(
            command(b"XREAD", b"COUNT", b"%d" % READ_COUNT, b"STREAMS", b"bench", last)
        )
        data = bytearray()
        while True:
            data += connection.recv(1 << 20)
            if data.endswith(PAYLOAD + b"\r\n") and data.count(PAYLOAD) == wanted:
                break
        last = _ENTRY.findall(data)[-1]
        seen += wanted
    return seen / (time.perf_counter() - began_s)
