"""Where messages say when and by whom they were made, in each form; and what is JSON at all."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events.bounds import DEPTH_MAX
from kafka2011.events.errors import EventCorrupt, HeaderUnreadable
from kafka2011.events.forms import Form, forms_of
from kafka2011.events.header import UNREADABLE
from kafka2011.events.origin import Origin, origin_of, time_of
from kafka2011.events.plain import json_record, json_text, record_of
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.runtime.clock import TIME_MS_MAX
from tests.unit.services.audit.samples import T0, event

FORMS = forms_of(
    {
        "event.forms": "*:2011,orders:json,half:json,notes:json,lines:text,raw:bytes",
        "event.time.field": "orders:at,half:at",
        "event.server.field": "orders:host",
    }
)
SAID = {"at": T0 + 7, "host": "shop-1", "n": 1}


def payload(**changed: Any) -> bytes:
    return json.dumps({**SAID, **changed}).encode()


def test_fields_say_what_a_header_says() -> None:
    origin = origin_of(FORMS, "orders")
    header = origin.header(payload())
    assert header[1:] == (T0 + 7, "shop-1", "")
    assert header.guid == origin.guid(payload()) != origin.guid(payload(n=2))
    counts: dict[tuple[int, str], int] = {}
    delays: dict[int, int] = {}
    payloads = [payload(), payload(n=2), payload(host="shop-2"), payload(host=7), b"poison"]
    assert origin.count(payloads, 10_000, counts, delays, T0 + 9) == 5
    assert counts == {(T0, "shop-1"): 2, (T0, "shop-2"): 1, UNREADABLE: 2}
    assert delays == {2: 3}
    in_header = origin_of(FORMS, "page-view")
    assert in_header.header(event(1, T0, "frontend-1")).server == "frontend-1"
    assert in_header.has_guids
    assert not origin.has_guids


@pytest.mark.parametrize("topic", ["half", "notes", "lines", "raw"])
def test_without_both_fields_nothing_is_counted_under_a_server(topic: str) -> None:
    """Also what looks like an event: such a topic is never extra."""
    origin = origin_of(FORMS, topic)
    counts: dict[tuple[int, str], int] = {}
    payloads = [payload(), event(1, T0, "frontend-1")]
    assert origin.count(iter(payloads), 10_000, counts) == 2
    assert counts == {UNREADABLE: 2}
    with pytest.raises(HeaderUnreadable):
        origin.header(payloads[0])
    assert origin.time_ms(payload()) == (T0 + 7 if topic == "half" else None)


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        (0, 0),
        (TIME_MS_MAX, TIME_MS_MAX),
        (1431857103000.9, 1431857103000),
        ("2015-05-17T10:05:03Z", 1431857103000),
        ("2015-05-17T12:05:03.123456+02:00", 1431857103123),
        ("2015-05-17 10:05:03", 1431857103000),
        ("2015-05-17", 1431820800000),
        *((value, None) for value in (-1, TIME_MS_MAX + 1, True, None, "", "1431857103000", [1])),
        ("1969-12-31T23:59:59Z", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_times_are_ms_or_iso_8601(value: object, time_ms: int | None) -> None:
    assert time_of(value) == time_ms


@pytest.mark.parametrize("server", ["", "s" * 256, "\ud800", 7, None, ["shop"]])
def test_a_server_is_a_name(server: object) -> None:
    assert origin_of(FORMS, "orders").moment({**SAID, "host": server}) == (T0 + 7, None)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not an object: list"),
        (b'{"a":1}{"a":2}', "Extra data"),
        (b'{"a":1,"b":{"c":1,"c":2}}', "'c' occurs twice"),
        (b'{"a":NaN}', "NaN is not a JSON number"),
        (b'{"a":1e999}', "larger than a double"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":' * 100_000, f"more than {DEPTH_MAX} deep"),
        (b'{"a":' * DEPTH_MAX + b"[]" + b"}" * DEPTH_MAX, f"more than {DEPTH_MAX} deep"),
        (b'{"a":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}", f"more than {DEPTH_MAX} deep"),
        (b'{"a":' + b"9" * 5000 + b"}", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_what_two_readers_could_take_for_different_values_is_no_event(
    raw: bytes, reason: str
) -> None:
    with pytest.raises(EventCorrupt, match=reason):
        json_record(raw)


@pytest.mark.parametrize(
    "record",
    [
        {"text": "[{" * 500},
        {"flat": [[{}]] * 500},
        json.loads('{"a":' * (DEPTH_MAX - 1) + "[]" + "}" * (DEPTH_MAX - 1)),
    ],
    ids=["brackets in text", "brackets beside each other", "as deep as may be"],
)
def test_only_the_depth_of_json_is_bounded(record: dict[str, Any]) -> None:
    assert json_record(json.dumps(record).encode()) == record


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(st.text("abc"), VALUES))
def test_what_is_read_can_be_written_again(record: dict[str, Any]) -> None:
    assert json_record(json.dumps(record).encode()) == record
    assert json_record(json_text(record).encode()) == record


def test_the_codec_reads_every_form() -> None:
    codec = TopicCodec(FORMS)
    assert codec.decode("orders", payload()) == ({"name": "json"}, SAID)
    assert codec.decode("lines", "é".encode())[1] == {"value": "é"}
    assert codec.decode("raw", b"\xff")[1] == {"value": b"\xff"}
    assert codec.prefixes("orders") == []
    with pytest.raises(EventCorrupt, match="invalid start byte at byte 1"):
        record_of(Form.TEXT, b"a\xff")
    assert Origin().guid(b"") == bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")
