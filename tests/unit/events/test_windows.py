from hypothesis import example, given
from hypothesis import strategies as st

from kafka2011.events.windows import WindowCount, WindowCounts, window_start


@given(time_ms=st.integers(0, 2**62), window_ms=st.integers(1, 2**40))
@example(time_ms=1000, window_ms=1000)
@example(time_ms=999, window_ms=1000)
def test_a_window_holds_its_time_and_starts_on_a_multiple(time_ms, window_ms) -> None:
    start = window_start(time_ms, window_ms)
    assert start <= time_ms < start + window_ms
    assert start % window_ms == 0


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
