"""A table of the warehouse as others read it: delta-rs, DuckDB and Polars agree to the row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_table
from tests.unit.services.warehouse.load.deployment import Deployment
from tests.unit.services.warehouse.samples import EVENT_TIME_MS, access_log_payload

Rows = list[dict[str, Any]]


def by_delta_rs(path: Path) -> Rows:
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table().to_pylist()  # type: ignore[no-any-return]


def by_duckdb(path: Path) -> Rows:
    """The files that the table's log names, read without the log."""
    files = [uri.removeprefix("file://") for uri in DeltaTable(str(path)).file_uris()]
    return duckdb.read_parquet(files, hive_partitioning=True).to_arrow_table().to_pylist()  # type: ignore[no-any-return]


def by_polars(path: Path) -> Rows:
    polars = pytest.importorskip("polars")
    filtered = polars.scan_delta(str(path)).filter(polars.col("status") >= 400).collect()
    assert filtered.height == 90
    return polars.read_delta(str(path)).to_dicts()  # type: ignore[no-any-return]


@pytest.mark.parametrize("read", [by_delta_rs, by_duckdb, by_polars])
def test_a_table_of_several_loads_and_a_compaction_is_read_whole(
    deployment: Deployment, read: Callable[[Path], Rows]
) -> None:
    event_times = [EVENT_TIME_MS + n * 20_000 for n in range(900)]
    for start in range(0, 900, 300):
        numbers = range(start, start + 300)
        payloads = [access_log_payload(n, event_time=event_times[n]) for n in numbers]
        deployment.add_partition(ACCESS_LOG, *payloads)
        deployment.load()
    path = deployment.warehouse / "access_log"
    assert maintain_table(path, UpkeepPolicy(files_min=2)).files_written
    rows = read(path)
    assert len(rows) == 900
    assert len({row["path"] for row in rows}) == 15
    assert sum(row["bytes"] or 0 for row in rows) == sum(100 + n for n in range(900) if n % 10 != 8)
    assert len({row["hour"] for row in rows}) == len({time // 3_600_000 for time in event_times})
