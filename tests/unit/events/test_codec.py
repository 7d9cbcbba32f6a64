import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import codec, schemas
from kafka2011.events.errors import EventCorrupt, EventError, HeaderUnreadable, UnknownSchema
from kafka2011.events.topics import PAGE_VIEW, SHARE, schema_name
from tests.unit.events.samples import page_view

EVENT = page_view(1)


def test_the_2011_form_byte_for_byte() -> None:
    guid = bytes(range(16))
    header = {"guid": guid, "time": 1_300_000_000_123, "server": "fe", "service": "s"}
    event = {"header": header, "event_time": 1, "member_id": -1, "path": "/", "channel": "m"}
    md5 = schemas.fingerprint_of_name(schema_name(SHARE))
    zigzag_of_the_time = bytes.fromhex("f6a1cee0d54b")
    body = guid + zigzag_of_the_time + b"\x04fe\x02s" + b"\x02\x01" + b"\x02/" + b"\x02m"
    assert codec.encode(SHARE, event) == b"\0" + md5 + body


def test_times_are_whole_milliseconds_not_datetimes() -> None:
    schema, record = codec.decode(page_view(2**62))
    assert schema is schemas.schema_named(schema_name(PAGE_VIEW))
    assert record["event_time"] == 2**62
    assert codec.decode_as(PAGE_VIEW, page_view(2**62)) == record


def test_a_record_that_does_not_fit_is_the_callers_error() -> None:
    with pytest.raises(EventError, match="page-view"):
        codec.encode(PAGE_VIEW, {"header": None})


def test_bytes_left_over_are_corrupt() -> None:
    with pytest.raises(EventCorrupt, match=r"^1 bytes"):
        codec.decode(EVENT + b"x")


def test_another_topics_event_is_refused() -> None:
    with pytest.raises(EventCorrupt, match="page-view event is in topic share"):
        codec.decode_as(SHARE, EVENT)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (bytes(40), UnknownSchema),
        (b"\x01" + bytes(40), HeaderUnreadable),
        (b"\0" + bytes(15), HeaderUnreadable),
        *[(EVENT[:cut], EventCorrupt) for cut in range(17, len(EVENT))],
    ],
)
def test_payloads_that_are_no_event(payload, error) -> None:
    with pytest.raises(error):
        codec.decode(payload)


@pytest.mark.parametrize("name", schemas.names())
@given(body=st.binary(max_size=200))
def test_hostile_bodies_raise_event_errors_only(name, body) -> None:
    try:
        codec.decode(b"\0" + schemas.fingerprint_of_name(name) + body)
    except EventError:
        pass
