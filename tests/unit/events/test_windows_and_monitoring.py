import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import monitoring
from kafka2011.events.errors import EventError
from kafka2011.events.windows import WindowCount, WindowCounts, window_start
from tests.unit.events.samples import page_view


@given(time_ms=st.integers(0, 2**62), window_ms=st.integers(1, 2**40))
def test_a_window_holds_its_time_and_starts_on_a_multiple(time_ms: int, window_ms: int) -> None:
    start = window_start(time_ms, window_ms)
    assert start <= time_ms < start + window_ms
    assert start % window_ms == 0


def test_the_boundary_belongs_to_the_window_it_starts() -> None:
    assert window_start(1000, 1000) == 1000
    assert window_start(999, 1000) == 0


def test_counts_add_up_and_are_taken_once() -> None:
    counts = WindowCounts(1000)
    counts.add("b", 1999, 2, 20)
    counts.add("b", 1000, 1, 5)
    counts.add("a", 2000, 1, 1)
    counts.merge([WindowCount("a", 2000, 1, 1)])
    assert bool(counts)
    assert counts.take() == [WindowCount("a", 2000, 2, 2), WindowCount("b", 1000, 3, 25)]
    assert counts.take() == []
    assert not counts


COUNTS = st.lists(
    st.builds(
        WindowCount,
        st.text(max_size=10),
        st.integers(0, 2**50),
        st.integers(0, 2**40),
        st.integers(0, 2**50),
    ),
    max_size=5,
)


@given(counts=COUNTS, sequence=st.integers(0, 2**40))
def test_a_monitoring_event_says_what_was_counted_and_repeats_byte_for_byte(
    counts: list[WindowCount], sequence: int
) -> None:
    def encoded() -> bytes:
        return monitoring.encode_monitoring(
            server="frontend-1",
            service="site",
            instance="a1b2",
            sequence=sequence,
            time_ms=1_700_000_000_000,
            window_ms=10_000,
            counts=counts,
        )

    event = monitoring.decode_monitoring(encoded())
    assert encoded() == encoded()
    assert event.counts == tuple(counts)
    assert event.identity == ("frontend-1", "a1b2", sequence)
    assert event.window_ms == 10_000
    assert event.header.time_ms == 1_700_000_000_000


def test_another_event_is_not_a_monitoring_event() -> None:
    with pytest.raises(EventError):
        monitoring.decode_monitoring(page_view(1))


def test_a_heartbeat_is_told_from_a_monitoring_event() -> None:
    payload = monitoring.encode_heartbeat(
        server="frontend-1",
        service="site",
        instance="a1b2",
        time_ms=1_700_000_000_000,
        interval_ms=5000,
        is_last=True,
    )
    found = monitoring.decode_report(payload)
    assert isinstance(found, monitoring.Heartbeat)
    assert (found.header.server, found.header.time_ms) == ("frontend-1", 1_700_000_000_000)
    assert (found.instance, found.interval_ms, found.is_last) == ("a1b2", 5000, True)
    with pytest.raises(EventError):
        monitoring.decode_monitoring(payload)
    with pytest.raises(EventError):
        monitoring.decode_report(page_view(1))
