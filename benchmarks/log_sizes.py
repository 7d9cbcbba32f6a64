"""Does cost grow with the log? The paper: linear to terabytes.

At each size of one partition's log: the rate of appending 1 GB (durable at the end), of reading the
newest 1 GB, and of reading the oldest 1 GB cold, beside `cat` of the same file, cold as well.
Raw fetches of 1 MiB, so that the broker is measured and not the client.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.produce import fill
from benchmarks.raw_fetch import receive_fetch
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.protocol.requests import FetchRequest, encode_request

TOPIC = "bench"
GB = 1_000_000_000
FETCH_BYTES = 1024 * 1024
ROOM_BYTES = 5 * GB  # that must stay free on the disk


class NotEnoughRoom(Exception):
    """One line."""


def check_room(data_dir: Path, size_gb: int) -> None:
    free = shutil.disk_usage(data_dir).free
    if free < size_gb * GB + ROOM_BYTES:
        raise NotEnoughRoom(
            f"a log of {size_gb} GB needs {size_gb + ROOM_BYTES // GB} GB free in {data_dir}, "
            f"there are {free // GB}"
        )


def read(broker: RunningBroker, offset: int, end: int) -> float:
    """Bytes a second of fetching from `offset` to `end`."""
    view = memoryview(bytearray(FETCH_BYTES + 16))
    with socket.create_connection((broker.host, broker.port)) as connection:
        done = 0
        began = time.perf_counter()
        while offset < end:
            connection.sendall(encode_request(FetchRequest(TOPIC, 0, offset, FETCH_BYTES)))
            size = receive_fetch(connection, view)
            if not size:
                break
            offset += size
            done += size
        return done / (time.perf_counter() - began)


def forget(path: Path) -> None:
    """Put the file's pages out of memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def cat(path: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
    return path.stat().st_size / (time.perf_counter() - began)


def measure(data_dir: Path, sizes_gb: list[int]) -> Iterator[dict[str, float]]:
    """One answer a size, in that order; the log grows from one to the next."""
    check_room(data_dir, sizes_gb[-1])
    with running_broker(data_dir) as broker:
        directory = broker.log_dir / f"{TOPIC}-0"

        def end() -> int:
            newest = max(directory.glob("*.kafka"), default=None)
            return int(newest.stem) + newest.stat().st_size if newest else 0

        fill(broker, TOPIC, 10_000_000)
        for size_gb in sizes_gb:
            missing = (size_gb - 1) * GB - end()
            if missing > 0:
                fill(broker, TOPIC, missing)
            append = fill(broker, TOPIC, GB)
            answer = {
                "size_gb": size_gb,
                "append_bytes_per_s": append,
                "read_newest_bytes_per_s": read(broker, max(0, end() - GB), end()),
                "resident_mib": broker.resident_mib(),
            }
            oldest = min(directory.glob("*.kafka"))
            if oldest.stat().st_size >= 0.9 * GB:
                forget(oldest)
                answer["read_oldest_cold_bytes_per_s"] = read(broker, 0, oldest.stat().st_size)
                forget(oldest)
                answer["cat_cold_bytes_per_s"] = cat(oldest)
            yield answer
