"""Reports for people: bars in SVG, tables in text."""

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka2011.services.warehouse.reports.charts import figure, rows_svg, rows_text


@given(st.lists(st.tuples(st.text(max_size=90), st.integers(0, 10**12)), max_size=30))
@example([("\ufffe", 0)])
def test_a_picture_has_a_bar_for_each_row_within_it(rows: list[tuple[str, int]]) -> None:
    given_rows = [{"name": name, "count": count} for name, count in rows]
    text = rows_svg("A & B", ("name",), "count", "things", given_rows)
    picture = ElementTree.fromstring(text)
    bars = picture.findall("{*}rect")[1:]
    assert len(bars) == len(rows)
    width, height = map(float, picture.attrib["viewBox"].split()[2:])
    for bar in bars:
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= height


def test_the_bar_of_a_null_has_no_label() -> None:
    text = rows_svg("Paths", ("path",), "views", "views", [{"path": None, "views": 3}])
    _, label, value = ElementTree.fromstring(text).findall("{*}text")
    assert (label.text or "", value.text) == ("", "3")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234567, "1,234,567"),
        (0.10001, "0.1"),
        (0.0988, "0.0988"),
        (4321.5, "4,322"),
        (None, ""),
        (True, "yes"),
        ("a\x1b[31m", "a\\x1b[31m"),
    ],
)
def test_figures_are_short_and_safe(value: Any, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(41.53, "41.5 ms"), (2000, "2 s"), (95_500, "1.59 min"), (7_200_000, "2 h"), (None, "")],
)
def test_a_duration_has_its_unit(ms: float | None, shown: str) -> None:
    text = rows_text("Title", ["length", "duration_ms"], [{"length": "1", "duration_ms": ms}])
    header, line = (words.split() for words in text.splitlines()[1:])
    assert header == ["length", "duration"]
    assert " ".join(line[1:]) == shown


def test_a_table_in_text_has_the_rows() -> None:
    text = rows_text("Title", ["query", "searches"], [{"query": "[b]x", "searches": 1500}])
    assert [part for part in ("Title", "[b]x", "1,500") if part not in text] == []
