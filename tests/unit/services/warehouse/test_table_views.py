"""Rows of a file where Arrow reads it for Spark or DuckDB: the columns of the table's newest one,
whatever the file has."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

from kafka2011.runtime import object_store
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load.parquet_files import write_file
from kafka2011.services.warehouse.load_commits import Load
from kafka2011.services.warehouse.table_views import rows_of
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_table

HOUR = "2015-05-17-10"
POINT = pa.struct([("x", pa.int64())])
POINT_NOW = pa.struct([("x", pa.int64()), ("y", pa.string())])
OLD = pa.schema([("n", pa.int64()), ("text", pa.string()), ("raw", pa.binary()), ("at", POINT)])
NOW = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("at", POINT_NOW),
        ("hour", pa.string()),
        ("more", pa.list_(pa.string())),
    ]
)
ROWS = [{"n": n, "text": f"t{n}", "raw": b"r%d" % n, "at": {"x": n}} for n in range(3)]
EXPECTED = [
    {**row, "at": {"x": row["n"], "y": None}, "hour": HOUR, "more": None}  # type: ignore[dict-item]
    for row in ROWS
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Written before the columns `more` and `at.y` were added."""
    written = write_file(tmp_path, HOUR, pa.Table.from_pylist(ROWS, OLD), "file")
    return str(tmp_path / written.path)


def read(file: str, columns: list[str]) -> list[dict[str, object]]:
    wanted = pa.schema([NOW.field(name) for name in columns])
    return [row for batch in rows_of(file, wanted) for row in batch.to_pylist()]


def test_an_old_file_has_the_columns_of_now(file: str) -> None:
    assert read(file, NOW.names) == EXPECTED


@pytest.mark.parametrize("columns", [["hour"], ["more"], ["more", "n"]], ids=str)
def test_only_the_columns_that_are_asked_for_are_read(file: str, columns: list[str]) -> None:
    assert read(file, columns) == [{name: row[name] for name in columns} for row in EXPECTED]


def test_duckdb_gets_the_same(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "files", LocalFileSystem)
    dataset = storage.dataset([file], NOW, Path(file).parent.parent)
    assert dataset.to_table().to_pylist() == EXPECTED
    found = duckdb.sql('select "at", hour, more from dataset order by n').fetchall()
    assert found == [(row["at"], HOUR, None) for row in EXPECTED]


def test_a_file_that_compaction_has_written_is_read_alike(tmp_path: Path) -> None:
    """delta-rs declares text and bytes as views."""
    schema = pa.schema([*OLD, ("hour", pa.string())])
    table = WarehouseTable.open_or_create(tmp_path / "t", schema, "test")
    files = [
        write_file(table.path, HOUR, pa.Table.from_pylist([row], OLD), f"{row['n']}")
        for row in ROWS
    ]
    table.commit(Load("test", [], files, {}, 1000))
    assert maintain_table(table.path, UpkeepPolicy(files_min=2)).files_written == 1
    table.refresh()
    [joined] = table.file_paths()
    assert sorted(read(joined, NOW.names), key=lambda row: row["n"]) == EXPECTED  # type: ignore[arg-type,return-value]
    assert storage.parquet_file(joined).metadata.num_rows == 3
