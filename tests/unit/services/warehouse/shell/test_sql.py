"""Results of SQL in their three forms, and the columns of a topic that a statement reads."""

import csv
import datetime
import decimal
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.services.warehouse.shell.sql import columns_named, write_result


class Frame:
    """The part of a DataFrame that `write_result` uses."""

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
