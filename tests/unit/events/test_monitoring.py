from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import monitoring
from kafka2011.events.errors import EventError
from kafka2011.events.windows import WindowCount
from tests.unit.events.samples import page_view

SENDER: dict[str, Any] = {
    "server": "frontend-1",
    "service": "site",
    "instance": "a1b2",
    "time_ms": 1_700_000_000_000,
}
SIZES = st.integers(0, 2**50)
COUNTS = st.lists(st.builds(WindowCount, st.text(max_size=10), SIZES, SIZES, SIZES), max_size=5)


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
