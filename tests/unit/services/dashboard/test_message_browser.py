"""Browsing a partition of a broker that serves a byte string as 0.7 does."""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from fastavro.utils import generate_one

from kafka2011.consumer.ranges.boundaries import NoBoundary
from kafka2011.events import codec
from kafka2011.events.forms import FORMS_2011, Form, Forms
from kafka2011.events.schemas import physical_schema
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.protocol import message_set
from kafka2011.protocol.checksum import crc32
from kafka2011.protocol.compression import Codec, compress
from kafka2011.protocol.message import MAGIC1_HEADER
from kafka2011.services.dashboard import message_browser
from kafka2011.services.dashboard.message_browser import (
    FETCH_BYTES,
    FOUND_BYTES_MAX,
    Found,
    MessageQuery,
    browse,
    describe,
    query_from,
)
from tests.support.bombs import BOMB_BYTES, BOMBS_COUNT, bombs, bounded_memory
from tests.support.scripted_server import ScriptedBroker

CODEC = TopicCodec(FORMS_2011)
COUNT = 20_000
BASE = 5000  # the first offset
BEGAN_MS = 1_000_000  # an event every 10 ms


def event(number: int) -> bytes:
    time_ms = BEGAN_MS + number * 10
    guid = number.to_bytes(16, "big")
    record: dict[str, Any] = {
        "header": {"guid": guid, "time": time_ms, "server": "frontend-1", "service": "site"},
        "event_time": time_ms,
        "member_id": number,
        "host": f"host-{number}",
        "agent": None,
        "succeeded": True,
    }
    return codec.encode("login", record)


@pytest.fixture(autouse=True)
def _no_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine ends no scan; the test of the limit sets one."""
    monkeypatch.setattr("kafka2011.services.dashboard.message_browser.SCAN_S_MAX", 3600.0)


@pytest.fixture(scope="module")
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as found:
        found.append("login", 0, [event(number) for number in range(COUNT)])
        found.starts["login", 0] = BASE
        yield found


def found(broker: ScriptedBroker, **query: Any) -> tuple[list[int], dict[str, Any]]:
    """The numbers of the events found, and the whole answer."""
    answer = browse(broker.address, MessageQuery("login", 0, **query), CODEC)
    return [message["record"]["member_id"] for message in answer["messages"]], answer


def test_newest_are_the_last_ones_in_order(broker: ScriptedBroker) -> None:
    ids, answer = found(broker, count=3)
    assert ids == [COUNT - 3, COUNT - 2, COUNT - 1]
    assert answer["next"] == answer["latest"]


def test_what_came_during_the_scan_is_before_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = message_browser._start
    with ScriptedBroker() as broker:
        broker.append("login", 0, [event(0)])

        def grown(*place: Any, **options: Any) -> int:
            broker.append("login", 0, [event(1)])
            return start(*place, **options)

        monkeypatch.setattr(message_browser, "_start", grown)
        ids, answer = found(broker)
        assert ids == [0, 1]
        assert answer["next"] == answer["latest"] == broker.end("login", 0)


def test_a_newest_message_larger_than_what_is_read_for_newest_ones_is_shown() -> None:
    with ScriptedBroker() as broker:
        broker.append("login", 0, [event(1)] * 10_000)
        broker.append("login", 0, [b"x" * 900_000])
        answer = browse(broker.address, MessageQuery("login", 0, count=1), CODEC)
    assert [message["size"] for message in answer["messages"]] == [900_000]


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [(BEGAN_MS + 12_345 * 10, [12_345, 12_346]), (1, [0, 1]), (9_999_999_999, [])],
    ids=["within", "before everything", "after everything"],
)
def test_a_time_is_found_by_halving(
    broker: ScriptedBroker, time_ms: int, expected: list[int]
) -> None:
    ids, answer = found(broker, time_ms=time_ms, count=2)
    assert ids == expected
    assert answer["scanned_bytes"] < 1_000_000


def test_offset_gives_exactly_that_message_and_the_next_offset_goes_on(
    broker: ScriptedBroker,
) -> None:
    first_ids, first = found(broker, offset=BASE, count=2)
    second_ids, _ = found(broker, offset=first["messages"][1]["offset"], count=1)
    next_ids, _ = found(broker, offset=first["next"], count=1)
    assert (first_ids, second_ids, next_ids) == ([0, 1], [1], [2])


def test_a_compressed_set_is_gone_through_in_parts() -> None:
    with ScriptedBroker() as broker:
        for numbers in (range(120), range(120, 122)):
            broker.append("login", 0, [event(number) for number in numbers], Codec.GZIP)
        parts, at = [], {"offset": 0}
        while at["offset"] < broker.end("login", 0):
            ids, answer = found(broker, **at, count=50)
            parts.append(ids)
            at = {"offset": answer["next"], "skip": answer["next_skip"]}
        assert parts == [[*range(50)], [*range(50, 100)], [*range(100, 122)]]
        numbers = [message["number"] for message in answer["messages"]]
        assert numbers == [*range(100, 120), 0, 1]
        # Of another entry, or of one with fewer messages, none are passed over beyond it.
        assert found(broker, offset=0, skip=500)[0] == [120, 121]
        assert found(broker, time_ms=BEGAN_MS, skip=5)[0][:1] == [0]


def test_search_looks_into_decoded_events_and_is_bounded(broker: ScriptedBroker) -> None:
    ids, _ = found(broker, offset=BASE, search="HOST-1234", count=1)
    assert ids == [1234]
    ids, answer = found(broker, offset=BASE, search="not there")
    assert ids == []
    assert answer["ended"] in ("end", "bytes", "time")


def test_what_cannot_be_decoded_is_shown_as_it_is() -> None:
    row = describe(CODEC, "login", Found(1, 2, b"<script>\xff"))
    assert row["text"].startswith("<script>")
    assert row["hex"].startswith("3c 73")
    assert row["error"]


def test_numbers_that_a_page_would_refuse_or_change_are_shown_as_texts() -> None:
    metric = generate_one(physical_schema("service-metric"))
    for number, shown in [(math.nan, "NaN"), (-math.inf, "-Infinity"), (1.5, 1.5)]:
        payload = codec.encode("service-metric", metric | {"value": number})
        row = describe(CODEC, "service-metric", Found(1, 2, payload))
        assert row["record"]["value"] == shown
    login = codec.decode(event(0))[1]
    for number, shown in [(2**53, 2**53), (2**53 + 1, "9007199254740993")]:
        row = describe(
            CODEC, "login", Found(1, 2, codec.encode("login", login | {"member_id": number}))
        )
        assert row["record"]["member_id"] == shown
    assert row["record"]["succeeded"] is True


def test_json_is_shown_with_the_time_and_server_that_it_says() -> None:
    forms = Forms(Form.JSON, times={"*": "at"}, servers={"*": "host"})
    payloads = [b'{"at":%d,"host":"shop","n":%d}' % (BEGAN_MS + n, n) for n in range(3)]
    with ScriptedBroker() as broker:
        broker.append("sales", 0, [*payloads, b"poison"])
        query = MessageQuery("sales", 0, time_ms=BEGAN_MS + 1)
        answer = browse(broker.address, query, TopicCodec(forms))
    *shown, poison = answer["messages"]
    assert [(row["time_ms"], row["server"], row["record"]["n"]) for row in shown] == [
        (BEGAN_MS + n, "shop", n) for n in (1, 2)
    ]
    assert (poison["text"], poison["error"][:8]) == ("poison", "not JSON")


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        query_from({"offset": "-1"})


# --- hostile payloads ---------------------------------------------------------------------------


def test_newest_of_a_partition_of_bombs_are_shown_in_bounded_memory() -> None:
    with ScriptedBroker() as broker:
        broker.logs["login", 0] += bombs()
        broker.append("login", 0, [event(1)])
        with bounded_memory():
            answer = browse(broker.address, MessageQuery("login", 0), CODEC)
    assert answer["scanned"] == BOMBS_COUNT + 1
    assert answer["next"] == answer["latest"]
    assert answer["messages"][-1]["record"]["member_id"] == 1
    assert sum(message["size"] for message in answer["messages"]) <= FOUND_BYTES_MAX


def test_from_an_offset_bombs_are_shown_up_to_a_limit_and_it_can_be_gone_on() -> None:
    with ScriptedBroker() as broker:
        broker.logs["login", 0] += bombs()
        with bounded_memory():
            answer = browse(broker.address, MessageQuery("login", 0, offset=0), CODEC)
            assert answer["ended"] == "bytes"
            assert len(answer["messages"]) == FOUND_BYTES_MAX // BOMB_BYTES + 1
            again = MessageQuery("login", 0, offset=answer["next"], count=1)
            assert browse(broker.address, again, CODEC)["start"] == answer["next"]


def test_an_entry_that_cannot_be_read_is_shown_with_the_reason_and_passed() -> None:
    too_large = message_set.encode_compressed([bytes(17 << 20)], Codec.GZIP)
    with ScriptedBroker() as broker:
        start = broker.append("login", 0, [event(0)])
        broker.logs["login", 0] += too_large
        broker.append("login", 0, [event(1)])
        answer = browse(broker.address, MessageQuery("login", 0, offset=0), CODEC)
    first, bad, last = answer["messages"]
    assert (first["record"]["member_id"], last["record"]["member_id"]) == (0, 1)
    assert (bad["offset"], bad["next"]) == (start, start + len(too_large))
    assert f"offset {start} is damaged: compressed set unpacks to more than" in bad["error"]
    assert answer["ended"] == "end"


def test_compressed_sets_without_messages_do_not_end_a_scan() -> None:
    packed = compress(Codec.GZIP, b"")
    empty = MAGIC1_HEADER.pack(len(packed) + 6, 1, int(Codec.GZIP), crc32(packed)) + packed
    with ScriptedBroker() as broker:
        broker.logs["login", 0] += empty * (FETCH_BYTES // len(empty) + 1)
        broker.append("login", 0, [event(1)])
        assert found(broker, offset=0)[0] == [1]


# Each of its positions but the last is followed by what looks like the header of an entry of 64 KB.
HEADERS = bytes.fromhex("000100") * 200_000


@pytest.mark.parametrize("query", [{}, {"time_ms": BEGAN_MS}], ids=["newest", "from a time"])
def test_payloads_of_headers_do_not_hold_the_browser(
    query: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_browser, "SEARCH_S_MAX", 0.05)
    with ScriptedBroker() as broker:
        broker.append("login", 0, [HEADERS] * 2)
        with pytest.raises(NoBoundary):
            browse(broker.address, MessageQuery("login", 0, **query), CODEC)


def test_a_decimal_is_shown_and_searched_as_text() -> None:
    assert message_browser.text_of({"price": Decimal("0.50")}) == "{'price': '0.50'}"
