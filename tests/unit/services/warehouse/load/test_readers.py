"""A table of the warehouse as others read it: delta-rs, DuckDB and Polars agree to the row."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.delta_table import Load, LoadedRange, WarehouseTable
from kafka2011.services.warehouse.load.job import table_schema
from kafka2011.services.warehouse.load.tasks import run_task
from kafka2011.services.warehouse.table_paths import table_path
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_table
from tests.unit.services.warehouse.samples import (
    FIRST,
    WINDOW_MS,
    ScriptedBroker,
    access_log_payload,
    task_settings,
)

Answer = tuple[int, int, int, int]  # rows, distinct paths, bytes, hours


@pytest.fixture
def loaded(tmp_path: Path) -> Path:
    """A table of three loads and one compaction, over some hours."""
    path = table_path(tmp_path, ACCESS_LOG)
    table = WarehouseTable.open_or_create(path, table_schema(ACCESS_LOG), "test")
    broker = ScriptedBroker()
    committed = None
    for part in range(3):
        numbers = range(300 * part, 300 * part + 300)
        hours = [access_log_payload(n, event_time=1_431_857_103_000 + n * 20_000) for n in numbers]
        broker.log(ACCESS_LOG).append(hours)
        planned = broker.plan(ACCESS_LOG, committed)
        (result,) = run_task([planned], task_settings(tmp_path), broker.read)
        ranges = [LoadedRange(FIRST, committed, planned.start, result.ends[FIRST])]
        table.commit(Load(ACCESS_LOG, ranges, result.files, result.counts, WINDOW_MS))
        committed = result.ends[FIRST]
    maintain_table(path, UpkeepPolicy(files_min=2))
    return path


EXPECTED: Answer = (
    900,
    15,
    sum(100 + n for n in range(900) if n % 10 != 8),
    len({(1_431_857_103_000 + n * 20_000) // 3_600_000 for n in range(900)}),
)


def test_delta_rs_reads_it(loaded: Path) -> None:
    rows = DeltaTable(str(loaded)).to_pyarrow_dataset().to_table().to_pylist()
    assert answer(rows) == EXPECTED


def test_duckdb_reads_the_files_that_the_log_names(loaded: Path) -> None:
    files = [uri.removeprefix("file://") for uri in DeltaTable(str(loaded)).file_uris()]
    (found,) = duckdb.sql(
        "select count(*), count(distinct path), sum(bytes)::bigint, count(distinct hour) "
        f"from read_parquet({files!r}, hive_partitioning = true)"
    ).fetchall()
    assert found == EXPECTED


def test_polars_reads_the_table(loaded: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_delta(str(loaded))
    assert answer(frame.to_dicts()) == EXPECTED
    filtered = polars.scan_delta(str(loaded)).filter(polars.col("status") >= 400).collect()
    assert filtered.height == 90


def answer(rows: list[dict[str, Any]]) -> Answer:
    return (
        len(rows),
        len({row["path"] for row in rows}),
        sum(row["bytes"] or 0 for row in rows),
        len({row["hour"] for row in rows}),
    )
