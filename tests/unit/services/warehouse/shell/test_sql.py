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

ROW = {
    "text": 'a "b", \x1b[31mä',
    "at": datetime.datetime(2015, 5, 17, 10, 5, 3),
    "raw": bytearray(b"\x01\xff"),
    "amount": decimal.Decimal("1.50"),
    "parts": [1, "x"],
    "yes": True,
}
NULLS = dict.fromkeys(ROW)


class Frame:
    """The part of a DataFrame that `write_result` uses."""

    columns = tuple(ROW)

    def __init__(self, rows: tuple[dict[str, Any], ...]) -> None:
        self.rows = rows

    def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
        return (tuple(row.values()) for row in self.rows)


def written(form: str, *rows: dict[str, Any]) -> str:
    out = io.StringIO()
    assert write_result(Frame(rows), form, out) == len(rows)
    return out.getvalue()


def test_csv_has_the_columns_and_every_value_as_text() -> None:
    assert list(csv.reader(io.StringIO(written("csv", ROW, NULLS)))) == [
        list(ROW),
        [ROW["text"], "2015-05-17 10:05:03", "01ff", "1.50", '[1, "x"]', "true"],
        [""] * 6,
    ]


def test_json_is_an_object_a_row() -> None:
    shown = {**ROW, "at": "2015-05-17 10:05:03", "raw": "01ff", "amount": 1.5}
    assert json.loads(written("json", ROW, NULLS)) == [shown, NULLS]
    assert json.loads(written("json")) == []


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
        ("select * from raw_t", MESSAGE_SCHEMA.names),
        ("select raw_t.*, count(*) from raw_t", MESSAGE_SCHEMA.names),
        ("select 2 * 3 from raw_t", MESSAGE_SCHEMA.names),
        ("from raw_a natural join raw_b select count(*)", MESSAGE_SCHEMA.names),
        ("select payload from raw_t union select payload from raw_u", MESSAGE_SCHEMA.names),
        ("table raw_t", MESSAGE_SCHEMA.names),
    ],
)
def test_only_columns_that_a_statement_can_need_are_read(
    statement: str, columns: list[str]
) -> None:
    assert columns_named(statement) == columns
