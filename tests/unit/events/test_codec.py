import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import codec, schemas
from kafka2011.events.errors import EventCorrupt, EventError, HeaderUnreadable, UnknownSchema
from kafka2011.events.topics import AUDIT, PAGE_VIEW, SHARE
from tests.unit.events.samples import page_view, records

TOPIC_OF_NAME = {
    name: {"unreadable-line": "access-log-unreadable", "monitoring-event": AUDIT}.get(name, name)
    for name in schemas.names()
}


@pytest.mark.parametrize("name", schemas.names())
@given(data=st.data())
def test_what_was_encoded_is_decoded(name: str, data: st.DataObject) -> None:
    record = data.draw(records(schemas.physical_schema(name)))
    payload = codec.encode(TOPIC_OF_NAME[name], record)
    schema, decoded = codec.decode(payload)
    assert decoded == record
    assert schema is schemas.schema_named(name)
    assert codec.decode_as(TOPIC_OF_NAME[name], payload) == record


def test_the_2011_form_byte_for_byte() -> None:
    record = {
        "header": {
            "guid": bytes(range(16)),
            "time": 1_300_000_000_123,
            "server": "fe",
            "service": "s",
        },
        "event_time": 1,
        "member_id": -1,
        "path": "/",
        "channel": "m",
    }
    md5 = schemas.fingerprint(schemas.schema_for(SHARE))
    assert codec.encode(SHARE, record) == (
        b"\0"
        + md5
        + bytes(range(16))
        + bytes.fromhex("f6a1cee0d54b")  # zigzag of the time
        + b"\x04fe"
        + b"\x02s"
        + b"\x02"
        + b"\x01"
        + b"\x02/"
        + b"\x02m"
    )


def test_times_are_whole_milliseconds_not_datetimes() -> None:
    _, record = codec.decode(page_view(2**62))
    assert record["event_time"] == 2**62


def test_a_record_that_does_not_fit_is_the_callers_error() -> None:
    with pytest.raises(EventError, match="page-view"):
        codec.encode(PAGE_VIEW, {"header": None})


def test_bytes_left_over_are_corrupt() -> None:
    with pytest.raises(EventCorrupt, match="1 bytes"):
        codec.decode(page_view(1) + b"x")


def test_another_topics_event_is_refused() -> None:
    with pytest.raises(EventCorrupt, match="page-view event is in topic share"):
        codec.decode_as(SHARE, page_view(1))


def test_unknown_fingerprint_and_other_forms_are_told_apart() -> None:
    with pytest.raises(UnknownSchema):
        codec.decode(bytes(40))
    with pytest.raises(HeaderUnreadable):
        codec.decode(b"\x01" + bytes(40))
    with pytest.raises(HeaderUnreadable):
        codec.decode(b"\0" + bytes(15))


@pytest.mark.parametrize("cut", range(17, len(page_view(1))))
def test_every_cut_is_corrupt(cut: int) -> None:
    with pytest.raises(EventCorrupt):
        codec.decode(page_view(1)[:cut])


@pytest.mark.parametrize("name", schemas.names())
@given(body=st.binary(max_size=200))
def test_hostile_bodies_raise_event_errors_only(name: str, body: bytes) -> None:
    try:
        codec.decode(b"\0" + schemas.fingerprint_of_name(name) + body)
    except EventError:
        pass
