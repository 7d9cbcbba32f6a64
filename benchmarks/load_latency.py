"""How long after `producer.send` is an event a row of the warehouse?

    python -m benchmarks.load_latency [--rate 500] [--seconds 60] [--interval-ms 2000]

A ZooKeeper, one broker, `kafka2011 load --interval-ms`, and a producer that sends batches of ten at
the rate. header.time is taken just before each `send`. A watcher of its own opens the table anew
four times a second, as a reader would, and notes when the files of a version are there. The first
commit is left out: it waits for Spark's first job. The load job's own figures are printed beside.
"""

import argparse
import contextlib
import json
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.machine import facts
from benchmarks.running_broker import running_broker
from kafka2011.events import codec
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.producer import Producer
from kafka2011.services.warehouse.delta_table import WarehouseTable
from tests.support.commands import start_command
from tests.support.waiting import wait_until
from tests.support.zookeeper import start_zookeeper

BATCH = 10
LOOK_EVERY_S = 0.25
START_TIMEOUT_S = 300.0


def event(number: int, time_ms: int) -> bytes:
    header = {"guid": number.to_bytes(16, "big"), "time": time_ms, "server": "s", "service": "web"}
    fields = {"member_id": number % 1000, "path": f"/p/{number % 50}", "host": "h", "status": 200}
    fields |= {"referer": None, "bytes": 100, "agent": "a browser"}
    return codec.encode(PAGE_VIEW, {"header": header, "event_time": time_ms, **fields})


class Watcher:
    """Notes for every file of the table when it was seen first."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self.seen_ms: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def look(self) -> None:
        table = WarehouseTable.open(self._table)
        if table is not None:
            now_ms = time.time_ns() // 1_000_000
            for file in table.file_paths():
                self.seen_ms.setdefault(file, now_ms)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.look()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def times(self) -> list[tuple[int, np.ndarray]]:
        """(seen, header times) of each file, in the order in which they were seen; ms."""
        found = []
        for file, seen_ms in sorted(self.seen_ms.items(), key=lambda item: item[1]):
            times = pq.ParquetFile(file).read(["header_time"]).column(0).cast("int64").to_numpy()
            found.append((seen_ms, times // 1000))
        return found


@contextlib.contextmanager
def loading(directory: Path, zk_connect: str, interval_ms: int) -> Iterator[str]:
    """The load job; yields the address of its status page."""
    settings = {
        "zk.connect": zk_connect,
        "warehouse.dir": directory / "warehouse",
        "metrics.port": 0,
    }
    command = f"load --interval-ms {interval_ms}"
    with start_command(command, settings, directory / "load.log") as job:
        yield f"http://{job.wait_for_event('loading', START_TIMEOUT_S)['metrics']}/status"
        job.stop()


def wait(condition: Callable[[], Any], what: str) -> Any:
    return wait_until(condition, what, START_TIMEOUT_S, poll_s=LOOK_EVERY_S)


def send(producer: Producer, rate: int, seconds: float) -> int:
    """Events at the rate; what is late is sent at once, with the time of its own send."""
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        if sent > elapsed * rate:
            time.sleep(BATCH / rate / 2)
            continue
        now_ms = time.time_ns() // 1_000_000
        producer.send(PAGE_VIEW, [event(sent + n, now_ms) for n in range(BATCH)])
        sent += BATCH
    producer.flush()
    return sent


def measure(directory: Path, rate: int, seconds: float, interval_ms: int) -> dict[str, Any]:
    with start_zookeeper(directory / "zookeeper") as server:
        zk_connect = f"{server.host}:{server.port}"
        with (
            running_broker(
                directory, enable_zookeeper="true", zk_connect=zk_connect, num_partitions=2
            ),
            loading(directory, zk_connect, interval_ms) as status,
            Producer(zk_connect=zk_connect) as producer,
        ):
            watcher = Watcher(directory / "warehouse" / "page_view")
            try:
                first = send(producer, rate, 1.0)
                wait(lambda: watcher.seen_ms, "the first commit")
                sent = first + send(producer, rate, seconds)
                wait(lambda: rows_loaded(status) >= sent, "the last row")
            finally:
                watcher.close()
            watcher.look()
            with urllib.request.urlopen(status, timeout=30) as page:
                reported = json.load(page)["latency_ms"]
            files = watcher.times()
    first_ms = files[0][0]
    delays = np.concatenate([seen - times for seen, times in files if seen > first_ms])
    p50, p99 = np.percentile(delays, [50, 99])
    return {
        "rows": int(delays.size),
        "visible_ms": {"p50": round(p50), "p99": round(p99), "max": int(delays.max())},
        "load_job_ms": reported,
    }


def rows_loaded(status: str) -> int:
    with urllib.request.urlopen(status, timeout=30) as page:
        return int(json.load(page)["rows_loaded"])


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rate", type=int, default=500)
    words.add_argument("--seconds", type=float, default=60.0)
    words.add_argument("--interval-ms", type=int, default=2000)
    given = words.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        found = measure(directory, given.rate, given.seconds, given.interval_ms)
        print(json.dumps({"machine": facts(directory), **found}, indent=1))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
