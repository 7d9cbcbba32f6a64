"""What does a fetch cost beside a bare sendfile loop, the ceiling for any broker?

Below the API: a plain socket drops the responses. `bare_sendfile` is a process that
does nothing but sendfile of the same file into the same kind of socket, asked in the same way. The
two are measured in turn, so that their ratio means something on a machine that has other work.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.crowd import together
from benchmarks.produce import fill
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.protocol.requests import FetchRequest, encode_request

TOPIC = "bench"
LOG_BYTES = 300_000_000
SECONDS = 1.0


def receive_fetch(connection: socket.socket, view: memoryview) -> int:
    """One whole fetch response; returns the size of its set."""
    received, wanted = 0, 4
    while received < wanted:
        count = connection.recv_into(view[received:])
        if not count:
            raise RuntimeError("the broker closed")
        received += count
        if wanted == 4 and received >= 4:
            wanted = 4 + int.from_bytes(view[:4], "big")
    return wanted - 6


def fetch_for_a_while(
    broker: RunningBroker, fetch_bytes: int, connections: int = 1
) -> tuple[float, float]:
    """Bytes a second, and the broker's CPU microseconds a request."""

    def work(count: int, ready: Callable[[], None]) -> int:
        view = memoryview(bytearray(fetch_bytes + 16))
        sockets = [socket.create_connection((broker.host, broker.port)) for _ in range(count)]
        offset = done = 0
        ready()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            request = encode_request(FetchRequest(TOPIC, 0, offset, fetch_bytes))
            for connection in sockets:
                connection.sendall(request)
            size = 0
            for connection in sockets:
                size = receive_fetch(connection, view)
                done += size
            offset = offset + size if size else 0
        for connection in sockets:
            connection.close()
        return done

    cpu_s = broker.cpu_s()
    done, elapsed_s = together(connections, work)
    cpu_s = broker.cpu_s() - cpu_s
    return done / elapsed_s, 1e6 * cpu_s / (done / fetch_bytes)


def bare_sendfile(path: Path, answer_bytes: int) -> float:
    """Bytes a second."""
    command = [sys.executable, "-m", "benchmarks.sendfile_server", str(path), str(answer_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        view = memoryview(bytearray(answer_bytes + 16))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            done = 0
            began = time.perf_counter()
            while (elapsed_s := time.perf_counter() - began) < SECONDS:
                connection.sendall(b"next")
                received = 0
                while received < answer_bytes:
                    received += connection.recv_into(view[received:])
                done += received
        return done / elapsed_s


def measure(
    data_dir: Path, runs: int, fetch_bytes: int, *, connections: int = 1
) -> Iterator[dict[str, float]]:
    with running_broker(data_dir) as broker:
        fill(broker, TOPIC, LOG_BYTES)
        segment = next((broker.log_dir / f"{TOPIC}-0").glob("*.kafka"))
        for _ in range(runs):
            rate, cpu_us = fetch_for_a_while(broker, fetch_bytes, connections)
            answer = {"bytes_per_s": rate, "cpu_us_per_request": cpu_us}
            if connections == 1:
                bare = bare_sendfile(segment, fetch_bytes)
                answer |= {"bare_bytes_per_s": bare, "ratio": rate / bare}
            answer["resident_mib"] = broker.resident_mib()
            yield answer
