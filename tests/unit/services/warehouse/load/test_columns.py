"""Events to columns: names and types, nulls, and rejected messages."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from kafka2011.events import codec
from kafka2011.events.topics import ACCESS_LOG, ACTIVITY_TOPICS, unreadable_topic
from kafka2011.services.warehouse.load import columns
from tests.unit.services.warehouse.samples import (
    EVENT_TIME_MS,
    HEADER_TIME_MS,
    access_log_event,
    access_log_payload,
)

UTC = datetime.UTC
TABLE = columns.EventColumns(ACCESS_LOG)
UNREADABLE_LINE = {
    "header": access_log_event(1)["header"],
    "line": b"x",
    "length": 1,
    "sha256": bytes(32),
    "line_number": 1,
}


def test_a_topics_table_has_the_headers_columns_the_events_own_and_the_source() -> None:
    assert TABLE.table_schema.names == [
        *("guid", "header_time", "server", "service", "event_time"),
        *("host", "ident", "user", "time", "method", "path", "protocol", "status", "bytes"),
        *("referer", "agent", "source_broker", "source_partition", "source_offset", "hour"),
    ]
    types = {column.name: str(column.type) for column in TABLE.table_schema}
    assert types["header_time"] == types["event_time"] == "timestamp[us, tz=UTC]"
    assert (types["status"], types["bytes"], types["guid"]) == ("int32", "int64", "binary")
    for topic in ACTIVITY_TOPICS:
        names = columns.EventColumns(topic).table_schema.names
        assert names[:4] == ["guid", "header_time", "server", "service"]
    assert columns.EventColumns("no-such-topic").event_schema == pa.schema(columns.HEADER_FIELDS)


def test_payloads_that_are_no_events_are_each_looked_at_a_few_times() -> None:
    """Each has another prefix; one round a prefix over all that is left was hours of a load."""

    class Counted(list[bytes]):
        looks = 0

        def __getitem__(self, index: Any) -> Any:
            self.looks += 1
            return super().__getitem__(index)

    payloads = Counted(b"%08x is a line of text" % number for number in range(500))
    payloads[7:7] = [access_log_payload(0), access_log_payload(1)]
    batch, rejected = TABLE.decode(payloads)
    assert (batch.num_rows, len(rejected)) == (2, 500)
    assert [reject.message_index for reject in rejected] == [*range(7), *range(9, 502)]
    assert payloads.looks <= 3 * len(payloads)


def test_one_event_is_one_row_with_nulls_where_it_has_none() -> None:
    event = access_log_event(8)
    batch, rejected = TABLE.decode([codec.encode(ACCESS_LOG, event)])
    header = event.pop("header")
    header["header_time"] = datetime.datetime.fromtimestamp((HEADER_TIME_MS + 8) / 1000, UTC)
    del header["time"]
    event["event_time"] = datetime.datetime.fromtimestamp((EVENT_TIME_MS + 8000) / 1000, UTC)
    assert (batch.to_pylist(), rejected) == ([{**header, **event}], [])
    nothing = TABLE.decode([]).batch
    assert (nothing.num_rows, nothing.schema) == (0, TABLE.event_schema)


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
def test_rejected_messages_are_named_in_order_and_their_neighbours_are_kept(
    payload: bytes, reason: str
) -> None:
    late = access_log_payload(3, event_time=2**62)
    good = [access_log_payload(0), access_log_payload(2)]
    batch, rejected = TABLE.decode([late, good[0], payload, good[1], late])
    assert [reject.message_index for reject in rejected] == [0, 2, 4]
    assert reason in rejected[1].reason
    assert batch.column("path").to_pylist() == ["/page/0?q=0", "/page/2?q=2"]
