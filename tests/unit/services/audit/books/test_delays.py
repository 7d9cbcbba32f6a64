"""Delays that are counted first and entered later give the percentiles of all of them."""

from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.audit.books.delays import (
    DELAY_MS_MAX,
    PENDING_MAX,
    RECENT_MS,
    SIGNIFICANT_DIGITS,
    DelayMeter,
)

DELAYS = st.dictionaries(st.integers(-5, 2 * DELAY_MS_MAX), st.integers(1, 1000), max_size=20)


def entered(delays: list[tuple[dict[int, int], int]], periods: set[int]) -> HdrHistogram:
    """A histogram of the delays of these periods, each entered by itself."""
    found = HdrHistogram(1, DELAY_MS_MAX, SIGNIFICANT_DIGITS)
    for each, now_ms in delays:
        for delay_ms, count in each.items() if now_ms // RECENT_MS in periods else ():
            found.record_value(min(max(delay_ms, 1), DELAY_MS_MAX), count)
    return found


@given(st.lists(st.tuples(DELAYS, st.integers(0, 2 * RECENT_MS)), max_size=12), st.booleans())
def test_percentiles_are_those_of_all_delays(
    steps: list[tuple[dict[int, int], int]], is_restarted: bool
) -> None:
    meter = DelayMeter()
    now_ms, added = 0, []
    for delays, later_ms in steps:
        now_ms += later_ms
        added.append((delays, now_ms))
        meter.add(delays, now_ms)
    period = now_ms // RECENT_MS
    recent = entered(added, {period, period - 1})
    total = entered(added, set(range(period + 1)))
    assert meter.recent(now_ms).count == recent.total_count
    if recent.total_count:
        assert meter.recent(now_ms).p99_ms == recent.get_value_at_percentile(99)
    if is_restarted:
        meter = DelayMeter(meter.encoded())
    found = meter.summary()
    assert found.count == total.total_count
    if total.total_count:
        assert found.p50_ms == total.get_value_at_percentile(50)
        assert found.max_ms == total.get_max_value()


def test_what_is_counted_and_not_entered_is_bounded() -> None:
    meter = DelayMeter()
    for delay_ms in range(3 * PENDING_MAX):
        meter.add({delay_ms: 1}, 0)
        assert len(meter._pending) < PENDING_MAX
    assert meter.summary().count == 3 * PENDING_MAX
