"""How long after a SIGKILL does a broker serve again, and what does it scan a second?

A log of 1 GB in one segment; killed; started. From the start of the process to the first answer,
the interpreter's own start included; the bytes are in memory, as after a crash of the process.
"""

import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.produce import fill
from benchmarks.raw_fetch import receive_fetch
from benchmarks.running_broker import running_broker
from kafka2011.protocol.requests import FetchRequest, encode_request

GB = 1_000_000_000


def measure(data_dir: Path, runs: int) -> Iterator[dict[str, float]]:
    with running_broker(data_dir, log_file_size=2**31 - 1) as broker:
        fill(broker, "bench", GB)
        for _ in range(runs):
            broker.stop(signal.SIGKILL)
            began = time.perf_counter()
            broker.start()
            with socket.create_connection((broker.host, broker.port)) as connection:
                connection.sendall(encode_request(FetchRequest("bench", 0, 0, 1000)))
                receive_fetch(connection, memoryview(bytearray(2000)))
            serving_s = time.perf_counter() - began
            log = (broker.directory / "broker.log").read_text(encoding="utf-8")
            scan_s = float(re.findall(r"recovery_s=([0-9.]+)", log)[-1])
            yield {"serving_s": serving_s, "scan_bytes_per_s": GB / max(scan_s, 0.001)}
