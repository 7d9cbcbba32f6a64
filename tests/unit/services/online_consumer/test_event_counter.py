"""What the online consumer counts, with a clock in the test's hand."""

from typing import Any

from kafka2011.events.topics import PAGE_VIEW
from kafka2011.services.online_consumer.event_counter import WINDOW_MS, EventCounter
from tests.unit.events.samples import page_view

NOW_MS = 1_300_000_000_000


def latency_of_ages(*ages: int) -> Any:
    """The recent latency when events of these ages were read."""
    counter = EventCounter()
    counter.count(PAGE_VIEW, [page_view(NOW_MS - age) for age in ages], NOW_MS)
    return counter.snapshot(NOW_MS)[PAGE_VIEW]["latency_ms"]


def test_counts_messages_bytes_and_what_is_no_event() -> None:
    counter = EventCounter()
    payloads = [page_view(NOW_MS - 5), b"no event"]
    for _ in range(2):
        counter.count(PAGE_VIEW, payloads, NOW_MS)
    found = counter.snapshot(NOW_MS)[PAGE_VIEW]
    assert (found["messages"], found["unreadable"]) == (4, 2)
    assert found["bytes"] == 2 * sum(map(len, payloads))


def test_latency_is_the_age_of_the_event_when_read_and_never_negative() -> None:
    latency = latency_of_ages(*range(1, 101))
    assert abs(latency[0.5] - 50) <= 1
    assert abs(latency[0.99] - 99) <= 1
    assert latency_of_ages(-5000)[0.5] <= 1


def test_recent_latency_forgets_and_the_overall_one_does_not() -> None:
    counter = EventCounter()
    counter.count(PAGE_VIEW, [page_view(NOW_MS - 100)], NOW_MS)
    later_ms = NOW_MS + WINDOW_MS
    counter.count(PAGE_VIEW, [page_view(later_ms - 10)], later_ms)
    assert counter.snapshot(later_ms)[PAGE_VIEW]["latency_ms"][0.999] == 100
    found = counter.snapshot(later_ms + WINDOW_MS)[PAGE_VIEW]
    assert (found["latency_ms"][0.999], found["latency_overall_ms"][0.999]) == (10, 100)
    assert counter.snapshot(later_ms + 5 * WINDOW_MS)[PAGE_VIEW]["latency_ms"] == {}
