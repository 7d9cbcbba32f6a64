"""How long does the traffic report on a large table take?

    python -m benchmarks.traffic_report [--rows 10000000] [--warehouse DIRECTORY] [--json]

Makes a table of access-log rows as loads write it (a file an hour and load, two days of hours,
random guids), unless DIRECTORY has it already, and reports on it with Spark: once in a new session,
whose first job starts the JVM's classes, then again in the same. Seconds, and processor time of
this process with the JVM and its workers.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.deployment import descendants, use_of
from benchmarks.machine import facts
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.topics import ACCESS_LOG, table_name
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN, WarehouseTable, rows_description
from kafka2011.services.warehouse.load.parquet_files import US_PER_HOUR, HourFiles
from kafka2011.services.warehouse.load.topic_tables import table_schema
from kafka2011.services.warehouse.load_commits import Load, LoadedRange
from kafka2011.services.warehouse.reports.traffic import Report, make_report
from kafka2011.services.warehouse.session import start_quietly

ROWS = 10_000_000
LOAD_ROWS = 500_000
BATCH_ROWS = 100_000
FIRST_US = 1_300_000_000_000_000
HOURS = 48
HOSTS, PATHS, AGENTS = 200_000, 50_000, 200
SOURCE = BrokerPartition(11, 0)
HOUR_OF = ("event_time", "header_time")


def batches(rows: int, load: int, random: np.random.Generator) -> Iterator[pa.RecordBatch]:
    """One load's rows: an hour or so of the log; a few hosts and paths have most of it."""
    schema = table_schema(ACCESS_LOG)
    schema = schema.remove(schema.get_field_index(HOUR_COLUMN))
    hosts = pa.array([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(HOSTS)])
    paths = pa.array([f"/section-{n % 97}/page-{n}.html" for n in range(PATHS)])
    agents = pa.array([f"Mozilla/5.0 (browser {n})" for n in range(AGENTS)])
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        at = FIRST_US + load * US_PER_HOUR + np.sort(random.integers(0, US_PER_HOUR, count))

        def some(values: pa.Array, count: int = count) -> pa.Array:
            which = (len(values) * random.random(count) ** 3).astype(np.int64)
            return values.take(pa.array(which))

        def same(value: str, count: int = count) -> pa.Array:
            return pa.repeat(pa.scalar(value), count)

        times = pa.array(at, pa.timestamp("us", tz="UTC"))
        guids = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), count, [None, pa.py_buffer(random.bytes(16 * count))]
        ).cast(pa.binary())
        columns = {
            "guid": guids,
            "header_time": times,
            "server": same("frontend-1"),
            "service": same("site"),
            "event_time": times,
            "host": some(hosts),
            "ident": same("-"),
            "user": same("-"),
            "time": same("13/Mar/2011:07:06:40 +0000"),
            "method": same("GET"),
            "path": some(paths),
            "protocol": same("HTTP/1.1"),
            "status": pa.array(random.choice([200, 200, 200, 304, 404, 500], count), pa.int32()),
            "bytes": pa.array(random.integers(200, 50_000, count), pa.int64()),
            "referer": same("-"),
            "agent": some(agents),
            "source_broker": pa.repeat(pa.scalar(SOURCE.broker_id, pa.int32()), count),
            "source_partition": pa.repeat(pa.scalar(SOURCE.partition, pa.int32()), count),
            "source_offset": pa.array(np.arange(start, start + count) * 300, pa.int64()),
        }
        arrays = [columns[field.name].cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def make_table(path: Path, rows: int) -> None:
    """Loads of LOAD_ROWS, each committed, spread over the hours."""
    random = np.random.default_rng(2011)
    table = WarehouseTable.open_or_create(
        path, table_schema(ACCESS_LOG), rows_description(ACCESS_LOG)
    )
    committed: int | None = None
    for number, start in enumerate(range(0, rows, LOAD_ROWS)):
        files = HourFiles(path, HOUR_OF)
        count = min(LOAD_ROWS, rows - start)
        for batch in batches(count, number * HOURS * LOAD_ROWS // rows, random):
            files.add(batch)
        read = LoadedRange(SOURCE, committed, committed or 0, 300 * (start + count))
        table.commit(Load(ACCESS_LOG, [read], files.finish(), {}, 60_000))
        committed = read.end


def processor_s() -> float:
    """Of this process and all below it, so far."""
    used_s = 0.0
    for pid in descendants():
        with contextlib.suppress(OSError):  # it has ended
            used_s += use_of(pid).cpu_s
    return used_s


def timed(session: Any, warehouse: Path, table: str) -> tuple[Report, dict[str, float]]:
    began_s, used_s = time.perf_counter(), processor_s()
    report = make_report(session, warehouse, table)
    return report, {
        "seconds": time.perf_counter() - began_s,
        "processor_s": processor_s() - used_s,
    }


def measure(warehouse: Path, rows: int) -> dict[str, Any]:
    name = table_name(ACCESS_LOG)
    if WarehouseTable.open(warehouse / name) is None:
        make_table(warehouse / name, rows)
    began_s = time.perf_counter()
    session = start_quietly("report", "local[2]")
    try:
        found: dict[str, Any] = {"session_s": time.perf_counter() - began_s}
        for run in ("first", "again", "third"):
            report, found[run] = timed(session, warehouse, name)
        found["rows"] = report.rows
        found["page_views"] = report.totals.page_views
        found["visitors"] = report.totals.visitors
    finally:
        session.stop()
    return found


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rows", type=int, default=ROWS)
    words.add_argument("--warehouse", type=Path, help="keep the table here, or use the one there")
    words.add_argument("--json", action="store_true", help="the result as JSON")
    given = words.parse_args()
    directory = given.warehouse or Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        machine = facts(directory)
        found = measure(directory, given.rows)
    finally:
        if given.warehouse is None:
            shutil.rmtree(directory, ignore_errors=True)
    if given.json:
        print(json.dumps({"machine": machine, **found}, indent=1))
        return 0
    print(f"{found['rows']:,} rows, {found['visitors']:,} visitors")
    print(f"session: {found['session_s']:.1f} s")
    for run in ("first", "again", "third"):
        one = found[run]
        print(f"report, {run}: {one['seconds']:.1f} s ({one['processor_s']:.1f} s of processors)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
