"""Events to columns: names and types, nulls, and rejected messages."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from kafka2011.events import codec
from kafka2011.events.topics import ACCESS_LOG, PAGE_VIEW, unreadable_topic
from kafka2011.services.warehouse.load.columns import (
    _as_json,
    _columns_of,
    event_columns,
    with_source,
)
from tests.unit.services.warehouse.samples import (
    EVENT_TIME_MS,
    HEADER_TIME_MS,
    access_log_event,
    access_log_payload,
)

UTC = datetime.UTC
HEADER = access_log_event(1)["header"]
UNREADABLE_LINE = {
    "header": HEADER,
    "line": b"x",
    "length": 1,
    "sha256": bytes(32),
    "line_number": 1,
}


def access_log():
    columns = event_columns(ACCESS_LOG)
    assert columns is not None
    return columns


def test_access_log_table_has_the_columns_of_the_contract() -> None:
    assert access_log().table_schema.names == [
        *("guid", "header_time", "server", "service", "event_time"),
        *("host", "ident", "user", "time", "method", "path", "protocol", "status", "bytes"),
        *("referer", "agent", "source_broker", "source_partition", "source_offset", "hour"),
    ]
    types = {column.name: str(column.type) for column in access_log().table_schema}
    assert types["header_time"] == types["event_time"] == "timestamp[us, tz=UTC]"
    assert (types["status"], types["bytes"], types["guid"]) == ("int32", "int64", "binary")


def test_one_event_is_one_row_with_nulls_where_it_has_none() -> None:
    event = access_log_event(8)
    batch, rejected = access_log().decode([codec.encode(ACCESS_LOG, event)])
    assert rejected == []
    (row,) = batch.to_pylist()
    assert row["guid"] == event["header"]["guid"]
    assert row["header_time"] == datetime.datetime.fromtimestamp((HEADER_TIME_MS + 8) / 1000, UTC)
    assert row["event_time"] == datetime.datetime.fromtimestamp((EVENT_TIME_MS + 8000) / 1000, UTC)
    for name in ("host", "ident", "user", "time", "method", "path", "status", "bytes", "agent"):
        assert row[name] == event[name]


def test_no_payloads_are_no_rows() -> None:
    batch, rejected = access_log().decode([])
    assert (batch.num_rows, rejected) == (0, [])
    assert batch.schema == access_log().event_schema


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "2011 form"),
        (b"plain text from a console producer", "2011 form"),
        (b"\x00" + bytes(16) + b"body", "fingerprint"),
        (access_log_payload(1)[:-1], "body"),
        (access_log_payload(1) + b"x", "1 bytes are left over"),
        (codec.encode(unreadable_topic(ACCESS_LOG), UNREADABLE_LINE), "topic access-log"),
        (access_log_payload(1, header_time=-5), "header's time is -5"),
        (access_log_payload(1, event_time=2**62), "years 1 to 9999"),
        (access_log_payload(1, event_time=-(2**62)), "years 1 to 9999"),
    ],
)
def test_a_rejected_message_is_named_and_its_neighbours_are_kept(
    payload: bytes, reason: str
) -> None:
    batch, rejected = access_log().decode([access_log_payload(0), payload, access_log_payload(2)])
    assert [reject.message_index for reject in rejected] == [1]
    assert reason in rejected[0].reason
    assert batch.column("path").to_pylist() == ["/page/0?q=0", "/page/2?q=2"]


def test_several_kinds_of_rejection_come_in_order() -> None:
    payloads = [
        access_log_payload(1, event_time=2**62),
        b"junk",
        access_log_payload(2),
        access_log_payload(3, event_time=2**62),
    ]
    batch, rejected = access_log().decode(payloads)
    assert [reject.message_index for reject in rejected] == [0, 1, 3]
    assert batch.num_rows == 1


def test_a_topic_without_a_schema_has_no_columns() -> None:
    assert event_columns("no-such-topic") is None


def test_every_shipped_topic_has_a_table() -> None:
    for topic in (PAGE_VIEW, "impression", "click", "search", "login", "share", "service-metric"):
        columns = event_columns(topic)
        assert columns is not None
        assert columns.table_schema.names[:4] == ["guid", "header_time", "server", "service"]


def test_source_columns_are_partition_and_next_offset() -> None:
    batch, _ = access_log().decode([access_log_payload(0), access_log_payload(1)])
    rows = with_source(batch, 11, 3, [150, 300]).to_pylist()
    assert [(r["source_broker"], r["source_partition"], r["source_offset"]) for r in rows] == [
        (11, 3, 150),
        (11, 3, 300),
    ]


POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": ["null", "int"]}]}
TREE = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}


@pytest.mark.parametrize(
    ("node", "value", "shown"),
    [
        ({"type": "array", "items": "string"}, ["a", "b"], ["a", "b"]),
        ({"type": "map", "values": "long"}, {"k": 1}, [("k", 1)]),
        (POINT, {"x": None}, {"x": None}),
        (["null", POINT], None, None),
        (["null", "int", "string"], 5, "5"),
        ({"type": "int", "logicalType": "date"}, 16572, datetime.date(2015, 5, 17)),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            1_000_001,
            datetime.datetime(1970, 1, 1, 0, 0, 1, 1, UTC),
        ),
        ({"type": "enum", "name": "C", "symbols": ["red"]}, "red", "red"),
        (TREE, {"next": {"next": None}}, {"next": '{"next":null}'}),
    ],
)
def test_nested_and_odd_types_become_columns(node: Any, value: Any, shown: Any) -> None:
    fields = [{"name": "header", "type": "string"}, {"name": "a", "type": node}]
    (column,) = _columns_of({"type": "record", "name": "E", "fields": fields})
    assert column.array([{"a": value}]).to_pylist() == [shown]


def test_a_named_type_is_used_again_and_a_reserved_name_gets_a_prefix() -> None:
    fields = [
        {"name": "hour", "type": "string"},
        {"name": "point", "type": POINT},
        {"name": "again", "type": ["null", "P"]},
    ]
    columns = _columns_of({"type": "record", "name": "E", "fields": fields})
    assert [column.name for column in columns] == ["event_hour", "point", "again"]
    assert columns[2].array([{"again": None}]).type == pa.struct([("x", pa.int32())])
    assert columns[0].array([{"hour": "x"}]).to_pylist() == ["x"]


def test_bytes_in_a_json_column_are_hexadecimal() -> None:
    assert _as_json({"raw": b"\x01\xff"}) == '{"raw":"01ff"}'
