"""Compaction, retention and vacuum change no row that is kept, no offset and no count."""

import os
from pathlib import Path

import duckdb
import pytest

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse.delta_table import WarehouseTable, read_commits
from kafka2011.services.warehouse.upkeep.maintenance import (
    UpkeepOutcome,
    UpkeepPolicy,
    maintain_table,
    oldest_hour,
)
from tests.unit.services.warehouse.test_delta_table import TOPIC, load, small_schema

ONE = BrokerPartition(11, 0)
# 2015-05-18 10:30 UTC
AT_MS = 1_431_945_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with ten loads into one hour and two into another, and an orphan."""
    directory = tmp_path / "page_view"
    table = WarehouseTable.open_or_create(directory, small_schema(), "test")
    committed = None
    for number in range(12):
        hour = "2015-05-17-10" if number < 10 else "2015-05-18-10"
        table.commit(load(directory, committed, (number + 1) * 10, hour=hour))
        committed = (number + 1) * 10
    load(directory, committed, 130)  # written, never committed
    return directory


def parquet_files(path: Path) -> int:
    return sum(not part.name.endswith("checkpoint.parquet") for part in path.rglob("*.parquet"))


def facts(path: Path) -> tuple[object, ...]:
    table = WarehouseTable.open(path)
    assert table is not None
    files = table.file_paths()
    rows = duckdb.sql(f"select n, server from read_parquet({files!r}) order by all").fetchall()
    return rows, table.next_offset(TOPIC, ONE), table.known_partitions(TOPIC), read_commits(path)


def test_small_files_of_an_hour_are_joined_and_nothing_else_changes(path: Path) -> None:
    before = facts(path)
    outcome = maintain_table(path, UpkeepPolicy(files_min=8))
    assert outcome == UpkeepOutcome(files_joined=10, files_written=1)
    table = WarehouseTable.open(path)
    assert table is not None
    assert len(table.file_paths()) == 3
    assert facts(path) == before
    assert maintain_table(path, UpkeepPolicy(files_min=8)) == UpkeepOutcome()
    table.commit(load(path, 120, 140))
    assert table.next_offset(TOPIC, ONE) == 140


def test_what_no_version_names_is_removed_after_its_time(path: Path) -> None:
    maintain_table(path, UpkeepPolicy(files_min=8))
    assert parquet_files(path) == 14  # 10 joined, 1 written, 2 left alone, 1 orphan
    for file in path.rglob("*.parquet"):
        os.utime(file, (1_431_945_000, 1_431_945_000))
    before = facts(path)
    assert maintain_table(path, UpkeepPolicy(vacuum_hours=1)).files_removed >= 1
    assert facts(path) == before


def test_old_hours_are_dropped_and_the_offsets_stay(path: Path) -> None:
    policy = UpkeepPolicy(retention_hours=24)
    assert oldest_hour(policy, AT_MS) == "2015-05-17-10"
    assert maintain_table(path, policy, lambda: AT_MS).hours_dropped == 0
    assert maintain_table(path, policy, lambda: AT_MS + 3_600_000).hours_dropped == 1
    rows, next_offset, _, commits = facts(path)
    assert len(rows) == 6  # type: ignore[arg-type]
    assert next_offset == 120
    assert len(commits) == 12  # type: ignore[arg-type]


def test_without_a_table_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert maintain_table(tmp_path / "none", UpkeepPolicy()) == UpkeepOutcome()


def test_everything_is_kept_by_default() -> None:
    assert oldest_hour(UpkeepPolicy(), AT_MS) is None
