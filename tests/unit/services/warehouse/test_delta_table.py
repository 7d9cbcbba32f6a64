"""The Delta commit: all or nothing, once, and readable by others."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse import delta_table, load_commits
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.errors import DamagedLog
from kafka2011.services.warehouse.load.parquet_files import write_file
from kafka2011.services.warehouse.load_commits import read_commits

TOPIC = "page-view"
ONE = BrokerPartition(11, 0)
TWO = BrokerPartition(12, 3)
SCHEMA = pa.schema([("n", pa.int64()), ("server", pa.string()), ("hour", pa.string())])


def created(path: Path) -> WarehouseTable:
    return WarehouseTable.open_or_create(path, SCHEMA, "test")


@pytest.fixture
def table(tmp_path: Path) -> WarehouseTable:
    return created(tmp_path / "größer, mit raum" / "page_view")


def load(
    table: WarehouseTable,
    committed: int | None,
    end: int,
    *,
    source: BrokerPartition = ONE,
    rows: int = 3,
    topic: str = TOPIC,
) -> load_commits.Load:
    """A load from the offset committed before to `end`; its one file is written."""
    data = pa.table({"n": list(range(rows)), "server": ["a"] * rows})
    file = write_file(table.path, "2015-05-17-10", data, f"{source.text}-{end}")
    loaded = load_commits.LoadedRange(source, committed, committed or 0, end)
    return load_commits.Load(
        topic, [loaded], [file], counts={(10_000, "a"): rows}, window_ms=10_000
    )


def row_count(table: WarehouseTable) -> int:
    """The rows that DuckDB finds in the table's files."""
    ((rows,),) = duckdb.read_parquet(table.file_paths()).aggregate("count(*)").fetchall()
    return rows  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("source", "offsets", "rows"),
    [(ONE, {ONE: 700}, 3), (TWO, {ONE: 500, TWO: 700}, 8)],
    ids=["the same partition", "another partition"],
)
def test_of_two_commits_from_one_snapshot_the_second_wins_only_with_other_partitions(
    table: WarehouseTable,
    monkeypatch: pytest.MonkeyPatch,
    source: BrokerPartition,
    offsets: dict[BrokerPartition, int],
    rows: int,
) -> None:
    other = created(table.path)
    mine, others = load(table, None, 500, rows=5), load(table, None, 700, source=source)

    def other_commits_between_check_and_commit(name: str) -> None:
        if name == "before_commit":
            monkeypatch.undo()
            other.commit(others)

    monkeypatch.setattr(delta_table, "failpoint", other_commits_between_check_and_commit)
    if source == ONE:
        with pytest.raises(delta_table.AnotherLoadWon):
            table.commit(mine)
        table.refresh()
    else:
        table.commit(mine)
    assert {part: table.next_offset(TOPIC, part) for part in offsets} == offsets
    assert row_count(table) == rows


def test_offsets_survive_a_checkpoint_and_many_commits(table: WarehouseTable) -> None:
    log = table.path / "_delta_log"
    table.commit(load(table, None, 50, source=TWO))
    table.commit(load(table, None, 60, topic="another", source=BrokerPartition(13, 0)))
    for end in range(10, 1130, 10):
        table.commit(load(table, end - 10 or None, end, rows=1))
    assert list(log.glob("*.checkpoint.parquet"))
    again = created(table.path)
    assert again.next_offset(TOPIC, ONE) == 1120
    assert again.known_partitions(TOPIC) == {ONE: 1120, TWO: 50}
    # The checkpoint alone must know the partition that was not loaded since.
    for version in range(100):
        (log / f"{version:020d}.json").unlink()
    assert again.known_partitions(TOPIC) == {ONE: 1120, TWO: 50}
    assert read_commits(table.path)[0].version == 100


@pytest.mark.parametrize(
    "hint", [None, "", "\0" * 40, "{}", "[1]", '{"version":3,"size":1}', '{"version":4,"size":1}']
)
def test_offsets_do_not_depend_on_the_hint_which_checkpoint_is_the_newest(
    table: WarehouseTable, hint: str | None
) -> None:
    """A partition that was left out was planned from the log's beginning at each load, and refused
    each time: another load was said to have won. delta-rs goes by what is there, too."""
    log = table.path / "_delta_log"
    table.commit(load(table, None, 50, source=TWO))
    for end in range(10, 100, 10):
        table.commit(load(table, end - 10 or None, end))
        if end in (20, 60):
            DeltaTable(str(table.path)).create_checkpoint()
    # Clean-up has removed what was before the second checkpoint.
    for version in range(7):
        (log / f"{version:020d}.json").unlink()
    (log / f"{3:020d}.checkpoint.parquet").unlink()
    if hint is None:
        (log / "_last_checkpoint").unlink()
    else:
        (log / "_last_checkpoint").write_text(hint)
    assert created(table.path).next_offset(TOPIC, TWO) == 50
    assert table.known_partitions(TOPIC) == {ONE: 90, TWO: 50}


def test_a_log_without_its_beginning_is_damaged(table: WarehouseTable) -> None:
    for end in (10, 20):
        table.commit(load(table, end - 10 or None, end))
    (table.path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(DamagedLog, match="_delta_log lacks commits that no checkpoint in it has"):
        table.known_partitions(TOPIC)


def test_commits_are_read_once_across_restarts(tmp_path: Path, table: WarehouseTable) -> None:
    assert WarehouseTable.open(tmp_path / "no_table") is None
    assert read_commits(tmp_path / "no_table") == read_commits(table.path) == []
    table.commit(load(table, None, 100))
    table.commit(load(table, 100, 900))
    assert [info.version for info in read_commits(table.path)] == [1, 2]
    assert [info.offsets for info in read_commits(table.path, 1)] == [{ONE: 900}]
    assert read_commits(table.path, 2) == []


def test_a_new_column_is_added_and_one_of_another_type_is_a_conflict(
    table: WarehouseTable,
) -> None:
    table.commit(load(table, None, 10))
    extra = pa.field("extra", pa.string())
    with pytest.raises(
        delta_table.SchemaConflict, match=r"page_view\.n is int64, the events have string"
    ):
        table.add_columns(pa.schema([extra, ("n", pa.string())]))
    assert table.schema().names == ["n", "server", "hour"]
    wider = pa.schema([*SCHEMA, extra])
    assert (table.add_columns(wider), table.add_columns(wider)) == (["extra"], [])
    assert table.schema().names == ["n", "server", "hour", "extra"]
    table.commit(load(table, 10, 20))
    assert (row_count(table), table.next_offset(TOPIC, ONE)) == (6, 20)
