"""The Delta commit: all or nothing, once, and readable by others."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse import delta_table
from kafka2011.services.warehouse.delta_table import (
    AnotherLoadWon,
    Load,
    LoadedRange,
    SchemaConflict,
    WarehouseTable,
    read_commits,
)
from kafka2011.services.warehouse.load.parquet_files import write_file
from tests.unit.services.warehouse.samples import small_schema

TOPIC = "page-view"
ONE = BrokerPartition(11, 0)
TWO = BrokerPartition(12, 3)


def created(path: Path) -> WarehouseTable:
    return WarehouseTable.open_or_create(path, small_schema(), "test")


@pytest.fixture
def table(tmp_path: Path) -> WarehouseTable:
    return created(tmp_path / "page_view")


def load(
    path: Path,
    committed: int | None,
    end: int,
    *,
    start: int | None = None,
    source: BrokerPartition = ONE,
    rows: int = 3,
    hour: str = "2015-05-17-10",
    topic: str = TOPIC,
) -> Load:
    table = pa.table({"n": list(range(rows)), "server": ["a"] * rows})
    file = write_file(path, hour, table, f"{source.text}-{end}")
    first = start if start is not None else committed or 0
    return Load(
        topic=topic,
        ranges=[LoadedRange(source, committed, first, end)],
        files=[file],
        counts={(10_000, "a"): rows},
        window_ms=10_000,
        quarantined={(-1, "unreadable-header"): 1},
    )


def rows_seen_by_duckdb(table: WarehouseTable) -> int:
    ((rows,),) = duckdb.read_parquet(table.file_paths()).aggregate("count(*)").fetchall()
    return rows


def test_a_commit_publishes_files_offsets_and_counts_together(table: WarehouseTable) -> None:
    assert table.next_offset(TOPIC, ONE) is None
    version = table.commit(load(table.path, None, 700))
    assert version == 1
    assert table.next_offset(TOPIC, ONE) == 700
    assert rows_seen_by_duckdb(table) == 3
    (info,) = read_commits(table.path)
    assert (info.version, info.topic, info.rows, info.window_ms) == (1, TOPIC, 3, 10_000)
    assert info.counts == {(10_000, "a"): 3}
    assert info.quarantined == {(-1, "unreadable-header"): 1}
    assert info.offsets == {ONE: 700}
    assert info.gaps == {}
    assert info.timestamp_ms > 1_700_000_000_000


def test_files_are_invisible_before_the_commit(table: WarehouseTable) -> None:
    load(table.path, None, 700)
    table.refresh()
    assert table.file_paths() == []


def test_the_same_load_twice_is_refused_and_adds_nothing(table: WarehouseTable) -> None:
    table.commit(load(table.path, None, 700))
    with pytest.raises(AnotherLoadWon, match="planned from None, the table is at 700"):
        table.commit(load(table.path, None, 700))
    assert rows_seen_by_duckdb(table) == 3


@pytest.mark.parametrize("source", [ONE, TWO])
def test_of_two_commits_from_one_snapshot_the_second_wins_only_with_other_partitions(
    table: WarehouseTable, monkeypatch: pytest.MonkeyPatch, source: BrokerPartition
) -> None:
    other = created(table.path)
    mine, others = load(table.path, None, 500, rows=5), load(table.path, None, 700, source=source)

    def other_commits_between_check_and_commit(name: str) -> None:
        if name == "before_commit":
            monkeypatch.undo()
            other.commit(others)

    monkeypatch.setattr(delta_table, "failpoint", other_commits_between_check_and_commit)
    if source == ONE:
        with pytest.raises(AnotherLoadWon):
            table.commit(mine)
        table.refresh()
    else:
        table.commit(mine)
    assert table.next_offset(TOPIC, source) == 700
    assert table.next_offset(TOPIC, ONE) == (700 if source == ONE else 500)
    assert rows_seen_by_duckdb(table) == (3 if source == ONE else 8)


def test_offsets_survive_a_checkpoint_and_many_commits(table: WarehouseTable) -> None:
    path = table.path
    table.commit(load(path, None, 50, source=TWO))
    committed = None
    for end in range(10, 1130, 10):
        table.commit(load(path, committed, end, rows=1))
        committed = end
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    again = WarehouseTable.open(path)
    assert again is not None
    assert again.next_offset(TOPIC, ONE) == 1120
    assert again.known_partitions(TOPIC) == {ONE: 1120, TWO: 50}
    # The checkpoint alone must know the partition that was not loaded since.
    for version in range(100):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert again.known_partitions(TOPIC) == {ONE: 1120, TWO: 50}
    assert read_commits(path)[0].version == 100


def test_known_partitions_are_the_topics_own(table: WarehouseTable) -> None:
    table.commit(load(table.path, None, 50))
    table.commit(load(table.path, None, 60, topic="page-view-2", source=TWO))
    assert table.known_partitions(TOPIC) == {ONE: 50}


def test_commits_are_read_once_across_restarts(tmp_path: Path, table: WarehouseTable) -> None:
    path = table.path
    assert read_commits(tmp_path / "no_table") == []
    assert read_commits(path) == []
    table.commit(load(path, None, 10))
    table.commit(load(path, 10, 20))
    assert [info.version for info in read_commits(path)] == [1, 2]
    assert [info.offsets for info in read_commits(path, 1)] == [{ONE: 20}]
    assert read_commits(path, 2) == []


def test_a_gap_is_recorded_in_the_commit(table: WarehouseTable) -> None:
    path = table.path
    table.commit(load(path, None, 100))
    table.commit(load(path, 100, 900, start=500))
    assert read_commits(path, 1)[0].gaps == {ONE: (100, 500)}
    assert table.next_offset(TOPIC, ONE) == 900


def test_a_new_column_is_added_and_old_files_still_count(table: WarehouseTable) -> None:
    table.commit(load(table.path, None, 10))
    wider = pa.schema([*small_schema(), pa.field("extra", pa.string())])
    assert table.add_columns(wider) == ["extra"]
    assert table.add_columns(wider) == []
    assert table.schema().names == ["n", "server", "hour", "extra"]
    table.commit(load(table.path, 10, 20))
    assert table.next_offset(TOPIC, ONE) == 20
    assert rows_seen_by_duckdb(table) == 6


def test_a_column_of_another_type_is_a_conflict(table: WarehouseTable) -> None:
    other = pa.schema([pa.field("n", pa.string()), pa.field("new", pa.string())])
    with pytest.raises(SchemaConflict, match=r"page_view\.n is int64, the events have string"):
        table.add_columns(other)
    assert "new" not in table.schema().names


def test_a_table_is_none_before_it_is_created_and_created_once(
    tmp_path: Path, table: WarehouseTable
) -> None:
    assert WarehouseTable.open(tmp_path / "no_table") is None
    table.commit(load(table.path, None, 10))
    assert created(table.path).next_offset(TOPIC, ONE) == 10
