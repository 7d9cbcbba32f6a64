"""The traffic report: its table of the warehouse, and its text and picture."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kafka2011.services.dashboard.sampling.spark_jobs import JobReader
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.reports import traffic
from kafka2011.services.warehouse.reports.traffic_job import write_files
from kafka2011.services.warehouse.reports.traffic_text import as_svg, as_text, tables


def report(hours: int = 3, rows: int = 60) -> traffic.Report:
    return traffic.Report(
        table="access_log",
        version=7,
        took_ms=1500,
        rows=rows,
        totals=traffic.Traffic(60, 5, 5_000_000_000, 6, 0.1),
        hours=[
            traffic.HourTraffic(20, 3, 100, 2, 0.1, hour=f"2015-05-{17 + n // 24:02}-{n % 24:02}")
            for n in range(hours)
        ],
        top_paths=[
            traffic.PathViews(path, views)
            for path, views in (("/a[b]c", 30), ("/\x1b[31m\x9b", 20), ("/" * 300, 1))
        ],
    )


def test_text_has_every_figure_and_no_control_characters() -> None:
    text = as_text(report())
    for part in (
        "60 page views of 5 visitors (different hosts)\n"
        "5,000,000,000 bytes, 6 errors (answers of status 400 and above: 10.00%)",
        "2015-05-17 02:00",
        "/a[b]c",
        r"/\x1b[31m\x9b",
    ):
        assert part in text
    assert "\x1b" not in text
    assert "delivered again" not in text
    assert "5 rows were delivered again and count once" in as_text(report(rows=65))


def test_sizes_that_the_log_has_not_are_no_0_bytes() -> None:
    sized = report()
    hours = [replace(hour, bytes=None) for hour in sized.hours]
    text = as_text(replace(sized, totals=replace(sized.totals, bytes=None), hours=hours))
    assert "sizes are unknown, 6 errors (" in text
    assert "bytes" not in text


@pytest.mark.parametrize(("path", "said"), [(None, "(no path)"), ("", "(empty path)")])
def test_page_views_without_a_path_say_so(path: str | None, said: str) -> None:
    """A cell of nothing looked like a fault of the table."""
    text = as_text(replace(report(), top_paths=[traffic.PathViews(path, 7)]))
    assert text.splitlines()[-1].split(maxsplit=2) == ["1", "7", said]


def test_a_terminal_gets_ten_hours_and_ten_paths_and_the_file_all() -> None:
    long = replace(report(hours=130), top_paths=[traffic.PathViews(f"/{n}/", 9) for n in range(13)])
    *_, last = tables(long, whole_in="reports/t.txt")
    assert last == "and 120 more hours and 3 more paths in reports/t.txt"
    assert "2015-05-22 09:00" in as_text(long)
    assert "/12/" in as_text(long)
    assert "more" not in as_text(long)
    assert [*tables(report(hours=11), whole_in="t.txt")][-1] == "and 1 more hour in t.txt"


def of_hours(*hours: str) -> traffic.Report:
    return replace(
        report(), hours=[traffic.HourTraffic(20, 3, 100, 2, 0.1, hour=hour) for hour in hours]
    )


YEARS_APART = of_hours("1999-12-31-23", "2000-01-01-00", "2000-01-01-02", "2029-07-04-03")


def test_a_gap_between_hours_is_a_line_of_its_own() -> None:
    text = as_text(YEARS_APART)
    _, _, after = text.partition("error share\n")
    assert [line[:16].rstrip() for line in after.splitlines()[:6]] == [
        "1999-12-31 23:00",
        "2000-01-01 00:00",
        "...",
        "2000-01-01 02:00",
        "...",
        "2029-07-04 03:00",
    ]
    assert "Traffic per hour (UTC); ... are hours without page views" in text
    assert "..." not in as_text(report())


def texts(picture: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(picture).findall("{*}text")]


def test_the_picture_shows_gaps_and_the_years_where_there_is_more_than_one() -> None:
    found = texts(as_svg(YEARS_APART))
    assert found.count("...") == 2
    assert found[-4:] == [
        "1999-12-31 23h",
        "2000-01-01 00h",
        "2000-01-01 02h",
        "2029-07-04 03h",
    ]
    assert "12-31 23h" in texts(as_svg(of_hours("1999-12-31-23")))
    assert "..." not in texts(as_svg(report()))


def test_labels_of_the_picture_do_not_overlap() -> None:
    with_gaps = of_hours(*(f"20{n:02}-01-01-{h:02}" for n in range(11, 41) for h in range(5)))
    for picture in (as_svg(with_gaps), as_svg(report(84)), as_svg(report(9))):
        labels = [
            float(node.attrib["x"])
            for node in ElementTree.fromstring(picture).findall("{*}text")
            if (node.text or "").endswith("h")
        ]
        assert len(labels) in range(4, 10)
        gaps = [after - before for before, after in pairwise(labels)]
        assert min(gaps) >= 99
        assert labels[-1] <= 860


@pytest.mark.parametrize("hours", [0, 1, 84])
def test_the_picture_is_well_formed(hours: int) -> None:
    root = ElementTree.fromstring(as_svg(report(hours)))
    bars = [node for node in root.iter() if node.tag.endswith("title")]
    assert len(bars) == 2 * hours


def test_files_are_json_text_and_picture(tmp_path: Path) -> None:
    directory = tmp_path / "reports"
    write_files(report(), directory)
    names = {entry.name for entry in directory.iterdir()}
    assert names == {"access_log.json", "access_log.svg", "access_log.txt"}
    document = json.loads((directory / "access_log.json").read_text())
    assert document["totals"]["bytes"] == 5_000_000_000
    assert document["top_paths"][0] == {"path": "/a[b]c", "page_views": 30}
    shown = JobReader(None, directory).reports()["access_log"]
    assert (shown["took_ms"], shown["rows"]) == (1500, 60)


def test_the_table_is_the_named_one_or_the_first_there_is(tmp_path: Path) -> None:
    with pytest.raises(
        WarehouseError, match=r"no table access_log or page_view in .*--set warehouse\.dir="
    ):
        traffic.choose_table(tmp_path, "")
    with pytest.raises(WarehouseError, match=r"there is no warehouse at .*/mistyped"):
        traffic.choose_table(tmp_path / "mistyped", "")
    (tmp_path / "page_view" / "_delta_log").mkdir(parents=True)
    assert traffic.choose_table(tmp_path, "") == "page_view"
    (tmp_path / "access_log" / "_delta_log").mkdir(parents=True)
    assert traffic.choose_table(tmp_path, "") == "access_log"
    with pytest.raises(WarehouseError, match="no table click"):
        traffic.choose_table(tmp_path, "click")
