"""Browsing a partition: against a client that serves a byte string as 0.7 does."""

from typing import Any

import pytest

from kafka2011.events import codec
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.protocol import message_set
from kafka2011.services.dashboard import message_browser
from kafka2011.services.dashboard.message_browser import MessageQuery, browse, describe, query_from

CODEC = TopicCodec(FORMS_2011)


def event(number: int) -> bytes:
    record: dict[str, Any] = {
        "header": {
            "guid": number.to_bytes(16, "big"),
            "time": 1_000_000 + number * 10,
            "server": "frontend-1",
            "service": "site",
        },
        "event_time": 1_000_000 + number * 10,
        "member_id": number,
        "path": f"/in/{number}",
        "referer": None,
        "status": 200,
        "bytes": 1,
        "host": "10.0.0.1",
        "agent": None,
    }
    return codec.encode("page-view", record)


class FakeClient:
    data = b""
    base = 5000

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def earliest(self, _topic: str, _partition: int) -> int:
        return self.base

    def latest(self, _topic: str, _partition: int) -> int:
        return self.base + len(self.data)

    def fetch(self, topic: str, partition: int, offset: int, size: int) -> Any:
        from kafka2011.consumer.simple import FetchedSet

        start = offset - self.base
        return FetchedSet(topic, partition, offset, memoryview(self.data[start : start + size]))


COUNT = 20_000


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    FakeClient.data = message_set.encode([event(number) for number in range(COUNT)])
    monkeypatch.setattr(message_browser, "SimpleConsumer", FakeClient)
    return FakeClient


def found(**query: Any) -> dict[str, Any]:
    return browse(("h", 1), MessageQuery("page-view", 0, **query), CODEC)


def ids(answer: dict[str, Any]) -> list[int]:
    return [message["record"]["member_id"] for message in answer["messages"]]


def test_newest_are_the_last_ones_in_order(log: type[FakeClient]) -> None:
    answer = found(count=3)
    assert ids(answer) == [COUNT - 3, COUNT - 2, COUNT - 1]
    assert answer["next"] == answer["latest"]


def test_time_is_found_by_halving(log: type[FakeClient]) -> None:
    answer = found(time_ms=1_000_000 + 12_345 * 10, count=2)
    assert ids(answer) == [12_345, 12_346]
    assert answer["scanned_bytes"] < 1_000_000


def test_time_before_and_after_everything(log: type[FakeClient]) -> None:
    assert ids(found(time_ms=1, count=1)) == [0]
    assert ids(found(time_ms=9_999_999_999, count=1)) == []


def test_offset_gives_exactly_that_message_and_the_next_offset_goes_on(
    log: type[FakeClient],
) -> None:
    first = found(offset=log.base, count=2)
    again = found(offset=first["messages"][1]["offset"], count=1)
    assert ids(first) == [0, 1]
    assert ids(again) == [1]
    assert ids(found(offset=first["next"], count=1)) == [2]


def test_search_looks_into_decoded_events_and_is_bounded(log: type[FakeClient]) -> None:
    answer = found(offset=log.base, search="/IN/1234", count=1)
    assert ids(answer) == [1234]
    nothing = found(offset=log.base, search="not there")
    assert nothing["messages"] == []
    assert nothing["ended"] in ("end", "bytes", "time")


def test_what_cannot_be_decoded_is_shown_as_it_is() -> None:
    row = describe(CODEC, "page-view", 1, 2, b"<script>\xff")
    assert row["text"].startswith("<script>")
    assert row["hex"].startswith("3c 73")
    assert row["error"]


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        query_from({"offset": "-1"})
