"""How much slower is a load into an object store than into a directory?

    python -m benchmarks.object_store s3://bucket/prefix [--messages N] [--runs N] [--directory DIR]

The whole of a load but Spark: events of `access-log` over 84 hours are read from memory, decoded,
counted and written to Parquet, and committed. Directory and store take turns, so that what else the
machine does falls on both; the figures are of the best run of each. AWS_ENDPOINT_URL and the
credentials are taken from the environment; a store on the same machine has its own work in the
wall time.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import facts
from kafka2011.consumer.chunk import Chunk
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.events import codec
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol import message_set
from kafka2011.runtime.storage_paths import StoragePath, storage_path
from kafka2011.services.warehouse.delta_table import WarehouseTable, rows_description
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.tasks import TaskSettings, TopicPaths, run_task
from kafka2011.services.warehouse.load.topic_tables import merged_load, table_schema

SOURCE = BrokerPartition(0, 0)
HOURS = 84
CHUNK_MESSAGES = 10_000
FIRST_HOUR_MS = 1_431_856_800_000


def chunks(messages: int) -> tuple[list[Chunk], int]:
    """Sets of events in the 2011 form as a broker has them, and the end of the log."""
    found, offset = [], 0
    for start in range(0, messages, CHUNK_MESSAGES):
        numbers = range(start, min(messages, start + CHUNK_MESSAGES))
        data = message_set.encode([payload(number, messages) for number in numbers])
        found.append(Chunk(ACCESS_LOG, *SOURCE, offset, data, offset + len(data)))
        offset += len(data)
    return found, offset


def payload(number: int, messages: int) -> bytes:
    at = FIRST_HOUR_MS + number * HOURS * 3_600_000 // messages
    event = {
        "header": {
            "guid": number.to_bytes(16, "big"),
            "time": at,
            "server": "frontend-1",
            "service": "web",
        },
        "event_time": at,
        "host": f"10.0.{number % 17}.{number % 251}",
        "ident": None,
        "user": None,
        "time": "17/May/2015:10:05:03 +0000",
        "method": "GET",
        "path": f"/page/{number % 5000}?q={number % 31}",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": 100 + number % 9000,
        "referer": "http://www.example.org/",
        "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    }
    return codec.encode(ACCESS_LOG, event)


def load(where: StoragePath, logged: list[Chunk], end: int) -> tuple[float, float]:
    """One load into a new table: (wall seconds, processor seconds of this process)."""
    path = where / ACCESS_LOG.replace("-", "_")
    planned = PlannedRange(ACCESS_LOG, SOURCE, BrokerAddress("memory", 0), None, 0, end, end)
    settings = TaskSettings({ACCESS_LOG: TopicPaths(path, where / "aside")}, 10_000)
    began, used = time.perf_counter(), time.process_time()

    def read(_: PlannedRange) -> Iterator[Chunk]:
        return iter(logged)

    results = run_task([planned], settings, read)
    table = WarehouseTable.open_or_create(
        path, table_schema(ACCESS_LOG), rows_description(ACCESS_LOG)
    )
    found = merged_load(ACCESS_LOG, [planned], results, 10_000)
    assert not results[0].errors, results[0].errors
    assert len(found.files) >= HOURS
    table.commit(found)
    return time.perf_counter() - began, time.process_time() - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    logged, end = chunks(given.messages)
    walls: dict[str, list[float]] = {"directory": [], "store": []}
    used: dict[str, list[float]] = {"directory": [], "store": []}
    stamp = time.time_ns()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        for run in range(-1, given.runs):  # the first is not counted
            for kind, where in (("directory", Path(directory)), ("store", storage_path(given.url))):
                wall, cpu = load(where / f"{stamp}-{run}", logged, end)
                if run >= 0:
                    walls[kind].append(wall)
                    used[kind].append(cpu)
    answer = {
        "messages": given.messages,
        "files": HOURS,
        "messages_per_s": {kind: round(given.messages / min(one)) for kind, one in walls.items()},
        "cpu_s": {kind: round(min(one), 2) for kind, one in used.items()},
        "throughput_ratio": round(min(walls["directory"]) / min(walls["store"]), 2),
        **facts(given.directory or Path()),
    }
    sys.stdout.write(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
