"""The console's `--formatter event`: what is decoded, and what is shown of the rest."""

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from kafka2011.cli.event_json import event_formatter
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.events.topic_codec import TopicCodec
from tests.unit.events.samples import page_view

FORM_2011 = {"event.forms": "*:2011"}


def shown(payload: bytes, properties: dict[str, str]) -> Any:
    message = ConsumedMessage(payload, "page-view", 1, 0, 734)
    line = event_formatter(properties, b"\n")(message)
    assert line.endswith(b"\n")
    return json.loads(line)


def test_an_event_is_shown_with_its_schema() -> None:
    found = shown(page_view(1_300_000_000_000), FORM_2011)
    assert (found["topic"], found["next_offset"]) == ("page-view", 734)
    assert found["schema"] == "kafka2011.PageView"
    assert found["event"]["header"]["guid"] == "00" * 16
    assert found["event"]["path"] == "/in/ada?trk=nav"


@pytest.mark.parametrize(
    ("form", "payload", "event"),
    [
        ("json", b'{"a": [1]}', {"a": [1]}),
        ("text", b"a line", {"value": "a line"}),
        ("bytes", b"\xff", {"value": "ff"}),
    ],
)
def test_messages_without_avro_are_shown_by_their_form(
    form: str, payload: bytes, event: dict[str, Any]
) -> None:
    found = shown(payload, {"event.forms": f"page-view:{form}"})
    assert (found["schema"], found["event"]) == (form, event)


def test_a_decimal_is_a_text_without_an_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"price": Decimal("1E-8"), "raw": b"2"}
    decoded = ({"name": "Parcel"}, event)
    monkeypatch.setattr(TopicCodec, "decode_to_show", lambda *_: decoded)
    assert shown(b"", {})["event"] == {"price": "0.00000001", "raw": "32"}


@pytest.mark.parametrize(
    ("payload", "properties", "reason"),
    [
        (b"\1no event", {}, ""),
        (b"\1no event", FORM_2011, ""),
        (page_view(1), {}, "schema.registry.url"),  # says what to set
    ],
)
def test_what_cannot_be_decoded_is_shown_with_the_reason(
    payload: bytes, properties: dict[str, str], reason: str
) -> None:
    found = shown(payload, properties)
    assert base64.b64decode(found["payload_base64"]) == payload
    assert found["error"]
    assert reason in found["error"]


def test_a_setting_that_cannot_be_used_is_status_2(refused: Callable[..., str]) -> None:
    line = refused(event_formatter, {"event.forms": "share:2012"}, b"")
    assert "topic:form, the form one of id, 2011, json, text, bytes" in line
