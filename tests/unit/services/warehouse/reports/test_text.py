"""The report for people, and answers of SQL in their three forms."""

import csv
import datetime
import decimal
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.services.dashboard.sampling.spark_jobs import JobReader
from kafka2011.services.warehouse.load.commit import WarehouseError
from kafka2011.services.warehouse.reports.text import as_svg, as_text, tables, visible
from kafka2011.services.warehouse.reports.traffic import (
    HourTraffic,
    PathViews,
    Report,
    Traffic,
    choose_table,
)
from kafka2011.services.warehouse.reports.traffic_job import write_files
from kafka2011.services.warehouse.shell.sql import columns_named, write_result
from kafka2011.services.warehouse.table_paths import tables_in


def report(hours: int = 3, rows: int = 60) -> Report:
    return Report(
        table="access_log",
        version=7,
        took_ms=1500,
        rows=rows,
        totals=Traffic(60, 5, 5_000_000_000, 6, 0.1),
        hours=[
            HourTraffic(20, 3, 100, 2, 0.1, hour=f"2015-05-{17 + n // 24:02}-{n % 24:02}")
            for n in range(hours)
        ],
        top_paths=[
            PathViews("/a[b]c", 30),
            PathViews("/\x1b[31m\x9b", 20),
            PathViews("/" * 300, 1),
        ],
    )


def test_text_has_every_figure_and_no_control_characters() -> None:
    text = as_text(report())
    assert "60 page views of 5 visitors, 5,000,000,000 bytes, 6 errors (10.00%)" in text
    assert "2015-05-17 02:00" in text
    assert "/a[b]c" in text
    assert r"/\x1b[31m\x9b" in text
    assert "\x1b" not in text
    assert "delivered again" not in text


def test_rows_delivered_again_are_named() -> None:
    assert "5 rows were delivered again and count once" in as_text(report(rows=65))


def test_a_terminal_gets_a_hundred_hours_and_the_file_all() -> None:
    told = [part for part in tables(report(hours=130)) if isinstance(part, str)]
    assert "and 30 hours more in the report's files" in told
    assert "2015-05-22 09:00" in as_text(report(hours=130))


def test_long_text_is_cut() -> None:
    assert visible("abcdef", 4) == "abc…"
    assert visible("abcd", 4) == "abcd"


@pytest.mark.parametrize("hours", [0, 1, 84])
def test_the_picture_is_well_formed(hours: int) -> None:
    root = ElementTree.fromstring(as_svg(report(hours)))
    bars = [node for node in root.iter() if node.tag.endswith("title")]
    assert len(bars) == 2 * hours


def test_files_are_json_text_and_picture(tmp_path: Path) -> None:
    write_files(report(), tmp_path / "reports")
    assert sorted(entry.name for entry in (tmp_path / "reports").iterdir()) == [
        "access_log.json",
        "access_log.svg",
        "access_log.txt",
    ]
    told = json.loads((tmp_path / "reports" / "access_log.json").read_text())
    assert told["totals"]["bytes"] == 5_000_000_000
    assert told["top_paths"][0] == {"path": "/a[b]c", "page_views": 30}
    shown = JobReader(None, tmp_path / "reports").reports()["access_log"]
    assert (shown["took_ms"], shown["rows"]) == (1500, 60)


def test_the_table_is_the_named_one_or_the_first_there_is(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="no table access_log or page_view"):
        choose_table(tmp_path, "")
    (tmp_path / "page_view" / "_delta_log").mkdir(parents=True)
    assert choose_table(tmp_path, "") == "page_view"
    (tmp_path / "access_log" / "_delta_log").mkdir(parents=True)
    assert choose_table(tmp_path, "") == "access_log"
    with pytest.raises(WarehouseError, match="no table click"):
        choose_table(tmp_path, "click")


def test_quarantine_tables_have_names_of_their_own(tmp_path: Path) -> None:
    assert tables_in(tmp_path / "nowhere") == {}
    for name in ("access_log", "quarantine/access_log", "not-a-table", "a.b"):
        (tmp_path / name / ("x" if name == "not-a-table" else "_delta_log")).mkdir(parents=True)
    assert tables_in(tmp_path) == {
        "a_b": tmp_path / "a.b",
        "access_log": tmp_path / "access_log",
        "quarantine_access_log": tmp_path / "quarantine" / "access_log",
    }


class Frame:
    """What `write_result` uses of a DataFrame."""

    columns = ("text", "at", "raw", "amount", "parts", "yes")

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows

    def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)


ROW = (
    'a "b", \x1b[31mä',
    datetime.datetime(2015, 5, 17, 10, 5, 3),
    bytearray(b"\x01\xff"),
    decimal.Decimal("1.50"),
    [1, "x"],
    True,
)


def written(form: str, *rows: tuple[Any, ...]) -> str:
    out = io.StringIO()
    assert write_result(Frame(list(rows)), form, out) == len(rows)
    return out.getvalue()


def test_csv() -> None:
    rows = list(csv.reader(io.StringIO(written("csv", ROW, (None,) * 6))))
    assert rows[0] == list(Frame.columns)
    assert rows[1][1:] == ["2015-05-17 10:05:03", "01ff", "1.50", '[1, "x"]', "true"]
    assert rows[1][0] == ROW[0]
    assert rows[2] == [""] * 6


def test_json() -> None:
    assert json.loads(written("json")) == []
    first, second = json.loads(written("json", ROW, (None,) * 6))
    assert first == {
        "text": ROW[0],
        "at": "2015-05-17 10:05:03",
        "raw": "01ff",
        "amount": 1.5,
        "parts": [1, "x"],
        "yes": True,
    }
    assert set(second.values()) == {None}


def test_a_table_is_safe_for_a_terminal() -> None:
    text = written("table", ROW)
    assert r"\x1b[31mä" in text
    assert "\x1b" not in text
    assert "2015-05-17 10:05:03" in text


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("select count(*) from raw_t", ["broker"]),
        ("SELECT COUNT( * ) FROM raw_t WHERE Partition = 1", ["partition"]),
        ("select max(offset), topic from raw_t group by topic", ["topic", "offset"]),
        ("select * from raw_t", None),
        ("select raw_t.*, count(*) from raw_t", None),
        ("select 2 * 3 from raw_t", None),
        ("from raw_a natural join raw_b select count(*)", None),
        ("select payload from raw_t union select payload from raw_u", None),
        ("table raw_t", None),
    ],
)
def test_only_columns_that_a_statement_can_need_are_read(
    statement: str, columns: list[str] | None
) -> None:
    assert columns_named(statement) == (columns or MESSAGE_SCHEMA.names)
