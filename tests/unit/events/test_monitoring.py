from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import monitoring
from kafka2011.events.errors import EventError
from kafka2011.events.windows import WindowCount
from kafka2011.runtime.clock import TIME_MS_MAX
from tests.unit.events.samples import page_view

SENDER: dict[str, Any] = {
    "server": "frontend-1",
    "service": "site",
    "instance": "a1b2",
    "time_ms": 1_700_000_000_000,
}
COUNT = st.builds(
    WindowCount,
    st.text(max_size=10),
    st.integers(0, 2**50),
    st.integers(0, monitoring.COUNT_MAX // 5),
    st.integers(0, monitoring.BYTES_MAX),
)
COUNTS = st.lists(COUNT, max_size=5)


@given(counts=COUNTS, sequence=st.integers(0, 2**40))
def test_a_monitoring_event_says_what_was_counted_and_repeats_byte_for_byte(
    counts, sequence
) -> None:
    fields = {**SENDER, "sequence": sequence, "window_ms": 10_000, "counts": counts}
    payload = monitoring.encode_monitoring(**fields)
    assert monitoring.encode_monitoring(**fields) == payload
    event = monitoring.decode_monitoring(payload)
    assert event.counts == tuple(counts)
    assert event.identity == ("frontend-1", "a1b2", sequence)
    assert event.window_ms == 10_000
    assert event.header.time_ms == 1_700_000_000_000


def test_a_heartbeat_is_told_from_a_monitoring_event_and_from_other_events() -> None:
    payload = monitoring.encode_heartbeat(**SENDER, interval_ms=5000, is_last=True)
    found = monitoring.decode_report(payload)
    assert isinstance(found, monitoring.Heartbeat)
    assert (found.header.server, found.header.time_ms) == ("frontend-1", 1_700_000_000_000)
    assert (found.instance, found.interval_ms, found.is_last) == ("a1b2", 5000, True)
    for decode, other in (
        (monitoring.decode_monitoring, payload),
        (monitoring.decode_monitoring, page_view(1)),
        (monitoring.decode_report, page_view(1)),
    ):
        with pytest.raises(EventError):
            decode(other)


def counted(**fields: Any) -> bytes:
    count = WindowCount(**{"topic": "t", "window_start": 0, "count": 1, "bytes": 1, **fields})
    return monitored(counts=[count])


def monitored(**fields: Any) -> bytes:
    event = {**SENDER, "sequence": 0, "window_ms": 10_000, "counts": [], **fields}
    return monitoring.encode_monitoring(**event)


def beaten(**fields: Any) -> bytes:
    return monitoring.encode_heartbeat(**{**SENDER, "interval_ms": 1, "is_last": True, **fields})


@pytest.mark.parametrize(
    "payload",
    [
        monitored(sequence=-1),
        monitored(sequence=2**53),
        monitored(window_ms=0),
        monitored(window_ms=2**61 - 1),
        monitored(instance="i" * 256),
        counted(count=-1),
        counted(count=2**40 + 1),
        counted(bytes=-1),
        counted(bytes=2**62 + 1),
        counted(window_start=-10_000),
        counted(topic="t" * 256),
        beaten(time_ms=-1),
        beaten(time_ms=2**60),
        beaten(interval_ms=0),
        beaten(interval_ms=2**40),
        beaten(last_sequence=2**53),
        beaten(instance="i+" + "9" * 5000),
    ],
)
def test_what_no_producer_writes_is_no_report(payload: bytes) -> None:
    """For the audit, its recount and consumers that validate alike: each took other ones."""
    with pytest.raises(EventError):
        monitoring.decode_report(payload)


@pytest.mark.parametrize(
    ("said", "repeated_ms"),
    [
        ("1600000000000", 1_600_000_000_000),
        ("1700000000001", SENDER["time_ms"]),
        (str(TIME_MS_MAX), SENDER["time_ms"]),
        ("9" * 200, SENDER["time_ms"]),
    ],
)
def test_messages_were_sent_again_at_the_time_of_the_heartbeat_at_the_latest(
    said: str, repeated_ms: int
) -> None:
    """A time in the future excused all that its server sends too much until then."""
    found = monitoring.decode_report(beaten(instance=f"i+{said}"))
    assert isinstance(found, monitoring.Heartbeat)
    assert found.repeated_ms == repeated_ms
