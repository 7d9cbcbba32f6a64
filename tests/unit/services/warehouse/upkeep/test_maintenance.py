"""Compaction, retention and vacuum change no row that is kept, no offset and no count."""

import contextlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.audit.recount import warehouse_rows
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.upkeep import maintenance
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_table
from tests.unit.services.warehouse.load.deployment import FIRST, Deployment
from tests.unit.services.warehouse.samples import EVENT_TIME_MS

# 2015-05-18 10:30 UTC, a day after the events of the first hour
AT_MS = 1_431_945_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def path(deployment: Deployment) -> Path:
    """A table with ten loads into one hour and two into another."""
    for number in range(12):
        day = 0 if number < 10 else 24 * HOUR_MS
        deployment.append(range(number, number + 1), event_time=EVENT_TIME_MS + day)
        deployment.load()
    return deployment.warehouse / "access_log"


def facts(deployment: Deployment) -> tuple[object, ...]:
    """The rows, the offsets of all partitions, and the commits."""
    table = WarehouseTable.open(deployment.warehouse / "access_log")
    assert table is not None
    return deployment.rows(), table.known_partitions(ACCESS_LOG), deployment.commits()


def test_small_files_are_joined_and_old_orphans_removed_and_nothing_else_changes(
    deployment: Deployment, path: Path
) -> None:
    before = facts(deployment)
    joined = maintain_table(path, UpkeepPolicy(files_min=8))
    assert joined == maintenance.UpkeepOutcome(files_joined=10, files_written=1)
    assert facts(deployment) == before
    assert len(deployment.named_files("access_log")) == 3
    assert maintain_table(path, UpkeepPolicy(files_min=8)) == maintenance.UpkeepOutcome()
    orphan = path / "hour=2015-05-17-10" / "written-and-never-committed.parquet"
    orphan.touch()
    files = set(path.glob("hour=*/*.parquet"))
    assert len(files) == 14  # 10 joined, 1 written, 2 left alone, 1 orphan
    for file in files:
        os.utime(file, (AT_MS / 1000, AT_MS / 1000))
    # The joined ones were in use until just now.
    assert maintain_table(path, UpkeepPolicy(vacuum_hours=1)).files_removed == 1
    assert set(path.glob("hour=*/*.parquet")) == files - {orphan}
    assert facts(deployment) == before
    deployment.append(range(12, 13))
    deployment.load()
    assert deployment.numbers() == [*range(13)]


def test_joined_files_have_no_bounds_of_columns_that_may_hold_nan(tmp_path: Path) -> None:
    rows = pa.table({"elapsed": [1.0, float("nan")], "n": [1, 2], "hour": ["2015-05-17-10"] * 2})
    for _ in range(2):
        write_deltalake(str(tmp_path / "timing"), rows, mode="append", partition_by=["hour"])
    assert maintain_table(tmp_path / "timing", UpkeepPolicy(files_min=2)).files_written == 1
    (file,) = DeltaTable(str(tmp_path / "timing")).file_uris()
    group = pq.ParquetFile(file).metadata.row_group(0)
    assert [group.column(number).is_stats_set for number in range(2)] == [False, True]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_line_ends_in_texts_of_joined_files_damage_no_log(deployment: Deployment, end: str) -> None:
    """delta-rs writes the largest text of a column into its commit, as it is."""
    for number in range(2):
        deployment.append(range(number, number + 1), agent=f"{end} a visitor's choice")
        deployment.load()
    path = deployment.warehouse / "access_log"
    before = facts(deployment)
    assert maintain_table(path, UpkeepPolicy(files_min=2)).files_written == 1
    assert end in max(path.glob("_delta_log/*.json")).read_text()
    assert facts(deployment) == before
    deployment.append(range(2, 3))
    deployment.load()
    assert deployment.numbers() == [*range(3)]


def test_an_hour_that_cannot_be_compacted_keeps_neither_others_nor_vacuum_from_it(
    deployment: Deployment, path: Path
) -> None:
    orphan = path / "hour=2015-05-17-10" / "written-and-never-committed.parquet"
    orphan.touch()
    os.utime(orphan, (AT_MS / 1000, AT_MS / 1000))
    damaged = next(file for file in deployment.named_files("access_log") if "17-10" in file)
    whole = Path(damaged).read_bytes()
    Path(damaged).write_bytes(b"PAR1 and no more")

    with structlog.testing.capture_logs() as logged:
        outcome = maintain_table(path, UpkeepPolicy(files_min=2, vacuum_hours=1))
    assert outcome == maintenance.UpkeepOutcome(files_joined=2, files_written=1, files_removed=1)
    [said] = [entry for entry in logged if entry["event"] == "not_compacted"]
    assert (said["hours"], said["first"]) == (1, "2015-05-17-10")
    Path(damaged).write_bytes(whole)
    assert deployment.numbers() == [*range(12)]


def test_old_hours_are_dropped_and_the_offsets_stay(deployment: Deployment, path: Path) -> None:
    policy = UpkeepPolicy(retention_hours=24)
    assert maintenance.oldest_hour(policy, AT_MS) == "2015-05-17-10"
    assert maintenance.oldest_hour(UpkeepPolicy(), AT_MS) is None
    # Hours are compared as texts.
    a_thousand_years_ago = UpkeepPolicy(retention_hours=9_000_000)
    assert maintenance.oldest_hour(a_thousand_years_ago, AT_MS) == "0988-08-29-10"
    _, *before = facts(deployment)
    assert maintain_table(path, policy, lambda: AT_MS).hours_dropped == 0
    assert warehouse_rows.whole_from_ms(path) == 0
    assert maintain_table(path, policy, lambda: AT_MS + HOUR_MS).hours_dropped == 1
    _, *after = facts(deployment)
    assert deployment.numbers() == [10, 11]
    assert after == before
    # By this a recount knows what is not missing; it outlives the commit.
    for _ in range(2):
        assert warehouse_rows.whole_from_ms(path) == (AT_MS // HOUR_MS + 1 - 24) * HOUR_MS
        DeltaTable(str(path)).create_checkpoint()


def test_where_delta_rs_panics_old_hours_stay_and_the_rest_is_done(tmp_path: Path) -> None:
    """It panics at some signs in a path, as soon as it has to make a plan of a query."""
    with contextlib.closing(Deployment(tmp_path / "data[1]")) as deployment:
        for number in range(3):
            deployment.append(range(number, number + 1), b"junk")
            deployment.load()
        path = deployment.warehouse / "access_log"
        with structlog.testing.capture_logs() as logged:
            outcome = maintain_table(path, UpkeepPolicy(2, retention_hours=1), lambda: AT_MS)
        assert outcome == maintenance.UpkeepOutcome(files_joined=3, files_written=1)
        [said] = [entry for entry in logged if entry["event"] == "not_dropped"]
        assert "delta-rs panicked" in said["reason"]
        assert deployment.numbers() == [0, 1, 2]
        quarantine = WarehouseTable.open(deployment.warehouse / "quarantine-tables" / "access_log")
        assert quarantine is not None
        with pytest.raises(DeltaError, match="delta-rs panicked"):
            quarantine.replace_range(FIRST, 0, 10**6, pa.table({}))


def test_without_a_table_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert maintain_table(tmp_path / "none", UpkeepPolicy()) == maintenance.UpkeepOutcome()
