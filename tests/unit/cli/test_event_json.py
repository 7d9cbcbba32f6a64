"""The console's `--formatter event`: what is decoded, and what is told of the rest."""

import json

import pytest

from kafka2011.cli.event_json import event_formatter
from kafka2011.consumer.chunk import ConsumedMessage
from tests.unit.events.samples import page_view


def message(payload: bytes, topic: str = "page-view") -> ConsumedMessage:
    return ConsumedMessage(payload, topic, 1, 0, 734)


def test_an_event_is_shown_with_its_schema() -> None:
    shown = event_formatter({"event.forms": "*:2011"}, b"\n")(message(page_view(1_300_000_000_000)))
    assert shown.endswith(b"\n")
    told = json.loads(shown)
    assert (told["topic"], told["next_offset"]) == ("page-view", 734)
    assert told["schema"] == "kafka2011.PageView"
    assert told["event"]["header"]["guid"] == "00" * 16
    assert told["event"]["path"] == "/in/ada?trk=nav"


@pytest.mark.parametrize("properties", [{}, {"event.forms": "*:2011"}])
def test_what_cannot_be_decoded_is_shown_with_the_reason(properties: dict[str, str]) -> None:
    told = json.loads(event_formatter(properties, b"\n")(message(b"\1no event")))
    assert told["payload_base64"] == "AW5vIGV2ZW50"
    assert told["error"]


def test_without_a_registry_the_reason_says_what_to_set() -> None:
    told = json.loads(event_formatter({}, b"")(message(page_view(1))))
    assert "schema.registry.url" in told["error"]


def test_a_setting_that_cannot_be_used_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        event_formatter({"event.forms": "share:2012"}, b"")
    assert caught.value.code == 2
    assert "topic:id or topic:2011" in capsys.readouterr().err
