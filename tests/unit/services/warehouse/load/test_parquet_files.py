"""Rows to files: one a bucket, complete or absent."""

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka2011.services.warehouse.load import parquet_files as files_module
from kafka2011.services.warehouse.load.parquet_files import HourFiles, hour_name, split_by_hour

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("event_time", TIME), ("header_time", TIME), ("source_offset", pa.int64())])


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


def batch(*rows: tuple[str | None, str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([moment(row[0]) if row[0] else None for row in rows], TIME),
            pa.array([moment(row[1]) for row in rows], TIME),
            pa.array([row[2] for row in rows], pa.int64()),
        ],
        schema=SCHEMA,
    )


@pytest.mark.parametrize(
    ("hours", "name"),
    [
        (0, "1970-01-01-00"),
        (-1, "1969-12-31-23"),
        (397738, "2015-05-17-10"),
        (-17_259_888, "0001-01-01-00"),
        (70_389_527, "9999-12-31-23"),
    ],
)
def test_hour_names(hours: int, name: str) -> None:
    assert hour_name(hours) == name


def test_rows_go_to_their_event_hour_and_keep_their_order() -> None:
    table = pa.Table.from_batches(
        [
            batch(
                ("2015-05-17T11:00:00", "2026-01-01T00:00:00", 1),
                ("2015-05-17T10:59:59.999999", "2026-01-01T00:00:00", 2),
                (None, "2026-01-01T00:30:00", 3),
                ("2015-05-17T11:59:59", "2026-01-01T00:00:00", 4),
            )
        ]
    )
    parts = split_by_hour(table, ("event_time", "header_time"))
    assert [(hour, part.column("source_offset").to_pylist()) for hour, part in parts] == [
        ("2015-05-17-10", [2]),
        ("2015-05-17-11", [1, 4]),
        ("2026-01-01-00", [3]),
    ]


def test_one_file_per_hour_with_its_facts(tmp_path: Path) -> None:
    writer = HourFiles(tmp_path, SCHEMA, ("event_time", "header_time"))
    writer.add(batch(("2015-05-17T10:00:00", "2026-01-01T00:00:00", 5)))
    writer.add(batch(("2015-05-17T10:30:00", "2026-01-01T00:00:00", 9)))
    writer.add(batch())
    (file,) = writer.finish()
    assert (file.hour, file.rows) == ("2015-05-17-10", 2)
    written = tmp_path / file.path
    assert written.parent.name == "hour=2015-05-17-10"
    assert written.stat().st_size == file.size_bytes
    assert pq.ParquetFile(written).read().column("source_offset").to_pylist() == [5, 9]
    assert json.loads(file.stats) == {
        "numRecords": 2,
        "minValues": {"source_offset": 5},
        "maxValues": {"source_offset": 9},
        "nullCount": {"source_offset": 0},
    }


def test_the_buffer_is_written_when_it_is_full(tmp_path: Path) -> None:
    row = ("2015-05-17T10:00:00", "2026-01-01T00:00:00", 5)
    writer = HourFiles(tmp_path, SCHEMA, ("event_time",), buffer_bytes_max=1)
    writer.add(batch(row))
    writer.add(batch(row))
    assert len(writer.finish()) == 2


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    assert HourFiles(tmp_path, SCHEMA, ("event_time",)).finish() == []
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_module.pq, "write_table", full)
    writer = HourFiles(tmp_path, SCHEMA, ("event_time",))
    writer.add(batch(("2015-05-17T10:00:00", "2026-01-01T00:00:00", 5)))
    with pytest.raises(OSError, match="No space"):
        writer.finish()
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == []
