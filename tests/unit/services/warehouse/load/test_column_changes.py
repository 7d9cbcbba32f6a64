"""What a next version does to a table's columns, as the load would do it."""

import json
from typing import Any

import fastavro.schema
import pytest

from kafka2011.events.topic_codec import WriterSchema
from kafka2011.services.warehouse.load.column_changes import column_changes, table_columns


def writer(*fields: dict[str, Any]) -> WriterSchema:
    found: Any = fastavro.schema.parse_schema(
        json.loads(json.dumps({"type": "record", "name": "R", "fields": fields}))
    )
    return WriterSchema(found, found, found["__named_schemas"], has_header=False)


def inner(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "int"} for name in names]
    return {"name": "r", "type": {"type": "record", "name": "I", "fields": fields}}


F: dict[str, Any] = {"name": "f", "type": "int"}


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        ([F], []),
        (
            [F | {"type": "long"}],
            [
                "f: stays; null in rows of this version",
                "f_long: new, int64; null in rows of other versions",
                "f: its values go to the column f_long",
            ],
        ),
        ([{"name": "g", "type": "int", "aliases": ["f"]}], ["g: its values go to the column f"]),
        (
            [F | {"type": "string"}],
            [
                "the load does not take this version, its messages go to quarantine: "
                "column f is int32 in the table, string in this schema"
            ],
        ),
        (
            [F, {"name": "hour", "type": "int"}],
            ["event_hour: new, int32; null in rows of other versions"],
        ),
    ],
)
def test_a_column_comes_stays_or_does_not_fit(new: list[dict[str, Any]], lines: list[str]) -> None:
    assert column_changes(table_columns([writer(F)]), writer(*new)) == lines


def test_a_record_grows_and_a_column_of_an_older_version_is_known() -> None:
    table = table_columns([writer(F, inner("a")), writer(inner("a"))])
    assert column_changes(table, writer(F, inner("a", "b"))) == [
        "r: struct<a: int32> becomes struct<a: int32, b: int32>"
    ]
    table = table_columns([writer(F), writer(F | {"type": "string"})])  # which the load leaves out
    assert column_changes(table, writer(F)) == []
