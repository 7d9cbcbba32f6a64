"""How many messages a second does one consumer read?

`fetch_loop` iterates the messages of the simple consumer. `raw_fetch` reads the same
bytes from the broker without looking at them, beside `bare_sendfile`: a loop that does nothing but
sendfile of the same file into the same kind of socket, the ceiling for any broker.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.produce import MESSAGE_BYTES
from benchmarks.running_broker import RunningBroker, running_broker
from consumer.simple import SimpleConsumer
from producer.producer import Producer
from protocol.requests import FetchRequest, encode_request

FETCH_BYTES = 1024 * 1024
ENTRY_BYTES = MESSAGE_BYTES + 10


def fill(broker: RunningBroker, count: int) -> None:
    messages = [bytes(MESSAGE_BYTES)] * 1000
    with Producer(broker_list=broker.broker_list) as producer:
        for _ in range(count // 1000):
            producer.send("bench", messages)
        producer.flush()


def fetch_loop(broker: RunningBroker, count: int) -> float:
    """Messages a second, one Python iteration each."""
    consumer = SimpleConsumer(broker.host, broker.port)
    offset = seen = 0
    began = time.perf_counter()
    while seen < count:
        for _payload, next_offset in consumer.fetch("bench", 0, offset, FETCH_BYTES).messages():  # noqa: B007
            seen += 1
        offset = next_offset
    elapsed_s = time.perf_counter() - began
    consumer.close()
    return seen / elapsed_s


def raw_fetch(broker: RunningBroker, total_bytes: int) -> float:
    """Bytes a second through fetch requests, answers thrown away."""
    buffer = bytearray(FETCH_BYTES + 16)
    view = memoryview(buffer)
    with socket.create_connection((broker.host, broker.port)) as connection:
        offset = 0
        began = time.perf_counter()
        while offset < total_bytes:
            connection.sendall(encode_request(FetchRequest("bench", 0, offset, FETCH_BYTES)))
            received = 0
            wanted = 4
            while received < wanted:
                received += connection.recv_into(view[received:])
                if wanted == 4 and received >= 4:
                    wanted = 4 + int.from_bytes(buffer[:4], "big")
            offset += wanted - 6
        return offset / (time.perf_counter() - began)


def bare_sendfile(path: Path, total_bytes: int) -> float:
    """Bytes a second of a process that only calls sendfile, asked like a broker is."""
    command = [sys.executable, "-m", "benchmarks.sendfile_server", str(path), str(FETCH_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        size = min(total_bytes, path.stat().st_size)
        buffer = bytearray(FETCH_BYTES)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            began = time.perf_counter()
            received = 0
            while received < size:
                connection.sendall(b"next")
                wanted = min(FETCH_BYTES, size - received)
                while wanted:
                    got = connection.recv_into(buffer, wanted)
                    wanted -= got
                    received += got
            return received / (time.perf_counter() - began)


def measure(data_dir: Path, count: int) -> dict[str, float]:
    with running_broker(data_dir) as broker:
        fill(broker, count)
        total = count * ENTRY_BYTES
        segment = next((broker.log_dir / "bench-0").glob("*.kafka"))
        return {
            "fetch_loop": fetch_loop(broker, count),
            "raw_fetch": raw_fetch(broker, total),
            "bare_sendfile": bare_sendfile(segment, total),
        }
