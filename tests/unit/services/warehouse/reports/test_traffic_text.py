"""The traffic report for people: text, and a picture."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kafka2011.services.dashboard.sampling.spark_jobs import JobReader
from kafka2011.services.warehouse.reports.traffic import HourTraffic, PathViews, Report, Traffic
from kafka2011.services.warehouse.reports.traffic_job import write_files
from kafka2011.services.warehouse.reports.traffic_text import as_svg, as_text, tables


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
    lines = [part for part in tables(report(hours=130)) if isinstance(part, str)]
    assert "and 30 hours more in the report's files" in lines
    assert "2015-05-22 09:00" in as_text(report(hours=130))


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
    document = json.loads((tmp_path / "reports" / "access_log.json").read_text())
    assert document["totals"]["bytes"] == 5_000_000_000
    assert document["top_paths"][0] == {"path": "/a[b]c", "page_views": 30}
    shown = JobReader(None, tmp_path / "reports").reports()["access_log"]
    assert (shown["took_ms"], shown["rows"]) == (1500, 60)
