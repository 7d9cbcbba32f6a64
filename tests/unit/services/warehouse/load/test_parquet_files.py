"""Rows to files: one a bucket, complete or absent."""

import datetime
import json
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka2011.services.warehouse.load import parquet_files
from kafka2011.services.warehouse.load.parquet_files import HourFiles, hour_name, write_file

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("event_time", TIME), ("header_time", TIME), ("source_offset", pa.int64())])


def moment(text: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(f"{text}+00:00") if text else None


def batch(*rows: tuple[str | None, str, int]) -> pa.RecordBatch:
    """Rows of (event time, header's time, offset)."""
    named = [
        dict(zip(SCHEMA.names, (moment(event), moment(header), offset), strict=True))
        for event, header, offset in rows
    ]
    return pa.RecordBatch.from_pylist(named, schema=SCHEMA)


AT_TEN = batch(("2015-05-17T10:00:00", "2026-01-01T00:00:00", 5))


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


def test_rows_go_to_the_file_of_their_hour_in_their_order(tmp_path: Path) -> None:
    """A row without an event time, to that of its header's."""
    writer = HourFiles(tmp_path, ("event_time", "header_time"))
    writer.add(
        batch(
            ("2015-05-17T11:00:00", "2026-01-01T00:00:00", 5),
            ("2015-05-17T10:59:59.999999", "2026-01-01T00:00:00", 2),
            (None, "2026-01-01T00:30:00", 3),
        )
    )
    writer.add(batch(("2015-05-17T11:59:59", "2026-01-01T00:00:00", 9)))
    writer.add(batch())
    files = writer.finish()
    tables = {file.hour: pq.ParquetFile(tmp_path / file.path).read() for file in files}
    offsets = {hour: rows.column("source_offset").to_pylist() for hour, rows in tables.items()}
    assert offsets == {"2015-05-17-10": [2], "2015-05-17-11": [5, 9], "2026-01-01-00": [3]}
    file = files[1]
    written = tmp_path / file.path
    assert (file.hour, file.rows) == ("2015-05-17-11", 2)
    assert written.parent.name == "hour=2015-05-17-11"
    assert written.stat().st_size == file.size_bytes
    assert json.loads(file.stats) == {
        "numRecords": 2,
        "minValues": {"source_offset": 5},
        "maxValues": {"source_offset": 9},
        "nullCount": {"source_offset": 0},
    }


def test_the_buffer_is_written_when_it_is_full(tmp_path: Path) -> None:
    writer = HourFiles(tmp_path, ("event_time",), buffer_bytes_max=1)
    writer.add(AT_TEN)
    writer.add(AT_TEN)
    assert len(writer.finish()) == 2


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(parquet_files.pq, "write_table", full)
    writer = HourFiles(tmp_path, ("event_time",))
    writer.add(AT_TEN)
    with pytest.raises(OSError, match="No space"):
        writer.finish()
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == []


def test_columns_that_may_hold_nan_have_no_smallest_and_largest_value(tmp_path: Path) -> None:
    """NaN is in neither, so that rows were passed over, or not, as files were cut."""
    rows = pa.table(
        {
            "source_offset": [1, 2],
            "elapsed": [1.0, float("nan")],
            "at": [{"x": 1.0}, {"x": float("nan")}],
            "share": pa.array([0.5, float("nan")], pa.float32()),
            "path": ["a", "b"],
        }
    )
    written = write_file(tmp_path, "2015-05-17-10", rows, "file")
    group = pq.ParquetFile(tmp_path / written.path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    known = {each.path_in_schema for each in columns if each.is_stats_set}
    assert known == {"source_offset", "path"}
