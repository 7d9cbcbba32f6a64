"""Lag in time: by the message's header, by the segments' times, or honestly unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.tools.lag_time import NOTHING_LEFT, LagTime, lag_time, last_write
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.origin import origin_of
from kafka2011.events.primitives import long
from tests.support.scripted_server import ScriptedBroker

NOW = 1_800_000_000_000
NAME = TopicPartition("login", 0, 0)
PREFIX_2011 = 17
ORIGIN = origin_of(FORMS_2011, "login")


def event(time_ms: int) -> bytes:
    """A header in the 2011 form; the body does not matter here."""
    return bytes(PREFIX_2011 + 16) + long(time_ms) + b"\x02s\x02v"


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("padding", [0, 300_000], ids=["small", "larger than a fetch"])
def test_the_header_of_the_first_unread_message_decides(
    broker: ScriptedBroker, client: SimpleConsumer, codec: int, padding: int
) -> None:
    middle = broker.append("login", 0, [event(NOW - 90_000)], codec)
    payloads = [event(NOW - 5000) + bytes(padding), event(NOW - 100)]
    end = broker.append("login", 0, payloads, codec)
    for offset, age_ms in ((middle, 5000), (0, 90_000)):
        found = lag_time(client, NAME, offset, end, NOW, origin=ORIGIN)
        assert found == LagTime(age_ms, age_ms, "header")


def test_nothing_left_is_no_lag_and_sends_no_request(client: SimpleConsumer) -> None:
    client.close()
    assert lag_time(client, NAME, 50, 50, NOW) == NOTHING_LEFT
    assert lag_time(client, NAME, None, 50, NOW).source == ""
    assert lag_time(client, NAME, 50, None, NOW).source == ""


@pytest.mark.parametrize("payload", [b"text", b"", bytes(100), b"\xff" * 100])
def test_what_is_no_event_falls_back_to_the_segments(
    broker: ScriptedBroker, client: SimpleConsumer, payload: bytes
) -> None:
    end = broker.append("login", 0, [payload])
    found = lag_time(client, NAME, 0, end, NOW, origin=ORIGIN)
    assert found.source == "segment"


def test_what_cannot_be_known_has_a_reason(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    end = broker.append("login", 0, [b"a", b"b"])
    broker.retire("login", 0, 11)
    assert lag_time(client, NAME, 0, end, NOW).reason == "the offset is no longer in the log"
    broker.close()
    assert "broker at" in lag_time(client, NAME, 11, end, NOW).reason


@given(st.lists(st.integers(1, 30 * 365 * 86_400_000), min_size=1, max_size=6, unique=True))
def test_the_time_of_a_segments_last_write_is_found(ages: list[int]) -> None:
    """Segments of 100 bytes, the oldest first, as old as `ages`; the log ends now."""
    ages = sorted(ages, reverse=True)
    written_ms = [NOW - age for age in ages] + [NOW]
    asked: list[int] = []

    def newest_before(time_ms: int) -> int | None:
        asked.append(time_ms)
        older = [100 * number for number, at_ms in enumerate(written_ms) if at_ms <= time_ms]
        return older[-1] if older else None

    for number, age in enumerate(ages):
        asked.clear()
        found = last_write(newest_before, 100 * number, NOW)
        assert found is not None
        assert abs(NOW - found - age) <= max(1000, age // 50)
        assert len(asked) < 60


def test_a_broker_whose_clock_is_ahead_is_not_asked_for_ever() -> None:
    assert last_write(lambda _: None, 0, NOW) is None
    assert last_write(lambda _: 0, 0, NOW) is not None
