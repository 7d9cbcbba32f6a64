"""What a task of the traffic report counts, beside the same counted in plain Python."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka2011.services.warehouse.load.parquet_files import HourFiles
from kafka2011.services.warehouse.reports import traffic_counts
from kafka2011.services.warehouse.reports.traffic_counts import by_hour, count_hours, first_copies

START = datetime(2026, 5, 17, 22, 10, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("guid", pa.binary()),
        ("hour", pa.string()),
        ("host", pa.string()),
        ("path", pa.string()),
        ("status", pa.int32()),
        ("bytes", pa.int64()),
    ]
)
WRITTEN = COLUMNS.remove(1).append(pa.field("header_time", pa.timestamp("us", tz="UTC")))
Row = dict[str, Any]


def made_rows(seed: int, guid_bytes: int) -> list[Row]:
    rng = random.Random(seed)
    rows = [
        {
            "guid": rng.randbytes(guid_bytes),
            "header_time": START + timedelta(minutes=rng.randrange(200)),
            "host": rng.choice([None, "a", "b", "c", "d"]),
            "path": rng.choice([None, "/", "/x", "/ä"]),
            "status": rng.choice([None, 200, 399, 400, 500]),
            "bytes": rng.choice([None, 0, 7, 1 << 40]),
        }
        for _ in range(300)
    ]
    return rows + rng.sample(rows, 40)  # delivered again


def written(directory: Path, rows: list[Row]) -> list[list[str]]:
    """In two loads, so that an hour has copies in two files."""
    names = []
    for part in (rows[:200], rows[200:]):
        files = HourFiles(directory, ("header_time",))
        for start in range(0, len(part), 64):
            files.add(pa.RecordBatch.from_pylist(part[start : start + 64], WRITTEN))
        names += [str(directory / file.path) for file in files.finish()]
    return by_hour(names)


def counted(hours: list[list[str]]) -> dict[str, dict[str | None, Row]]:
    found: dict[str, dict[str | None, Row]] = {"hour": {}, "host": {}, "path": {}}
    for batch in count_hours(hours, COLUMNS):
        for row in batch.to_pylist():
            assert row["name"] not in found[row["kind"]]
            found[row["kind"]][row["name"]] = row
    return found


@pytest.mark.parametrize("guid_bytes", [16, 15])
def test_every_figure_is_the_one_counted_by_hand(tmp_path: Path, guid_bytes: int) -> None:
    rows = made_rows(3, guid_bytes)
    once = list({row["guid"]: row for row in rows}.values())
    found = counted(written(tmp_path, rows))
    deliveries = Counter(f"{row['header_time']:%Y-%m-%d-%H}" for row in rows)
    assert len(deliveries) == len(found["hour"]) == 4
    for hour, shown in found["hour"].items():
        part = [row for row in once if f"{row['header_time']:%Y-%m-%d-%H}" == hour]
        assert shown == {
            "kind": "hour",
            "name": hour,
            "page_views": len(part),
            "visitors": len({row["host"] for row in part} - {None}),
            "bytes": sum(row["bytes"] or 0 for row in part),
            "errors": sum((row["status"] or 0) >= 400 for row in part),
            "deliveries": deliveries[str(hour)],
            "left_out": 0,
        }
    assert set(found["host"]) == {"a", "b", "c", "d"}
    views = {path: row["page_views"] for path, row in found["path"].items()}
    assert views == Counter(row["path"] for row in once)


def test_bytes_beyond_64_bits_are_added_up(tmp_path: Path) -> None:
    row = made_rows(5, 16)[0]
    rows = [{**row, "guid": bytes([n] * 16), "bytes": 2**62} for n in range(4)]
    [hour] = counted(written(tmp_path, rows))["hour"].values()
    assert hour["bytes"] == 2**64


def test_bytes_that_no_row_has_are_not_0(tmp_path: Path) -> None:
    row = made_rows(5, 16)[0]
    rows = [{**row, "guid": bytes([n] * 16), "bytes": None} for n in range(4)]
    [hour] = counted(written(tmp_path, rows))["hour"].values()
    assert hour["bytes"] is None


def test_an_hour_with_rows_without_a_time_and_one_too_large_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = made_rows(4, 16)
    hours = written(tmp_path, rows)
    sizes = [sum(f"{row['header_time']:%Y-%m-%d-%H}" in each[0] for row in rows) for each in hours]
    monkeypatch.setattr(traffic_counts, "HOUR_ROWS_MAX", sorted(sizes)[-2])
    left_out = [row["left_out"] for row in counted(hours)["hour"].values()]
    assert sorted(left_out) == [0, 0, 0, max(sizes)]

    monkeypatch.undo()
    untimed = written(tmp_path / "untimed", [{**rows[0], "header_time": None}, *rows[1:]])
    assert sum(row["left_out"] > 0 for row in counted(untimed)["hour"].values()) == 1


def test_the_first_copy_is_found_whatever_a_guid_is() -> None:
    def found(*guids: bytes | None) -> list[int] | None:
        chunks = pa.chunked_array([guids[:2], guids[2:]], pa.binary())
        first = first_copies(chunks)
        return None if first is None else first.to_pylist()

    def of(number: int) -> bytes:
        return number.to_bytes(16, "big")

    assert found() is None
    assert found(of(1), of(2), of(3)) is None  # equal first halves, and yet no copy
    assert found(of(1 << 70), of(1 << 71), of(1 << 70)) == [0, 1]
    assert found(b"a", b"b", b"a", b"c") == [0, 1, 3]
    assert found(None, b"b", None) == [0, 1]
    sliced = pa.chunked_array([pa.array([of(1 << 70), of(1 << 70), of(1 << 71)]).slice(1)])
    assert first_copies(sliced) is None
