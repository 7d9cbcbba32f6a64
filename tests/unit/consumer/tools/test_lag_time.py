"""Lag in time: by the message's header, by the segments' times, or honestly unknown."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.tools.lag_time import NOTHING_LEFT, LagTime, lag_time, last_write
from kafka2011.events.primitives import long
from tests.support.scripted_server import ScriptedBroker

NOW = 1_800_000_000_000
NAME = TopicPartition("login", 0, 0)
PREFIX_2011 = 17


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as made:
        yield made


@pytest.fixture
def client(broker: ScriptedBroker) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(*broker.address, socket_timeout_ms=5000) as made:
        yield made


def event(time_ms: int) -> bytes:
    """A header in the 2011 form; the body is nobody's business here."""
    return bytes(PREFIX_2011 + 16) + long(time_ms) + b"\x02s\x02v"


@pytest.mark.parametrize("codec", [0, 1])
def test_the_header_of_the_first_unread_message_tells(
    broker: ScriptedBroker, client: SimpleConsumer, codec: int
) -> None:
    offset = broker.append("login", 0, [event(NOW - 90_000)], codec)
    end = broker.append("login", 0, [event(NOW - 5000), event(NOW - 100)], codec)
    found = lag_time(client, NAME, offset, end, NOW, prefix_bytes=PREFIX_2011)
    assert found == LagTime(5000, 5000, "header")
    found = lag_time(client, NAME, 0, end, NOW, prefix_bytes=PREFIX_2011)
    assert found == LagTime(90_000, 90_000, "header")


def test_a_message_larger_than_a_fetch_has_a_header_too(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    end = broker.append("login", 0, [event(NOW - 5000) + bytes(300_000)])
    found = lag_time(client, NAME, 0, end, NOW, prefix_bytes=PREFIX_2011)
    assert found == LagTime(5000, 5000, "header")


def test_nothing_left_is_no_lag_and_asks_nobody(client: SimpleConsumer) -> None:
    client.close()
    assert lag_time(client, NAME, 50, 50, NOW) == NOTHING_LEFT
    assert lag_time(client, NAME, None, 50, NOW).source == ""
    assert lag_time(client, NAME, 50, None, NOW).source == ""


@pytest.mark.parametrize("payload", [b"text", b"", bytes(100), b"\xff" * 100])
def test_what_is_no_event_falls_back_to_the_segments(
    broker: ScriptedBroker, client: SimpleConsumer, payload: bytes
) -> None:
    end = broker.append("login", 0, [payload])
    found = lag_time(client, NAME, 0, end, NOW, prefix_bytes=PREFIX_2011)
    assert found.source == "segment"


def test_what_cannot_be_told_has_a_reason(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    end = broker.append("login", 0, [b"a", b"b"])
    broker.retire("login", 0, 11)
    assert lag_time(client, NAME, 0, end, NOW).reason == "the offset is no longer in the log"
    broker.close()
    assert "broker at" in lag_time(client, NAME, 11, end, NOW).reason


class Segments:
    """A broker's answers by time: (segment start, when it was last written), ascending."""

    def __init__(self, segments: list[tuple[int, int]], end: int) -> None:
        self.segments = segments
        self.end = end
        self.asked = 0

    def newest_before(self, time_ms: int) -> int | None:
        self.asked += 1
        pairs = [*self.segments, (self.end, NOW)]
        found = [start for start, written_ms in pairs if written_ms <= time_ms]
        return found[-1] if found else None


@given(st.lists(st.integers(1, 30 * 365 * 86_400_000), min_size=1, max_size=6, unique=True))
def test_the_time_of_a_segments_last_write_is_found(ages: list[int]) -> None:
    ages = sorted(ages, reverse=True)
    log = Segments([(100 * n, NOW - age) for n, age in enumerate(ages)], 100 * len(ages))
    for number, age in enumerate(ages):
        log.asked = 0
        found = last_write(log.newest_before, 100 * number, NOW)
        assert found is not None
        assert abs(NOW - found - age) <= max(1000, age // 50)
        assert log.asked < 60


def test_a_broker_whose_clock_is_ahead_is_not_asked_for_ever() -> None:
    assert last_write(lambda _: None, 0, NOW) is None
    assert last_write(lambda _: 0, 0, NOW) is not None
