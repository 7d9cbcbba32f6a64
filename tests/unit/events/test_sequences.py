import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events.sequences import EventTimes, Gap, SequenceRanges


@given(st.lists(st.integers(0, 30)))
def test_ranges_equal_a_set(numbers: list[int]) -> None:
    ranges, model = SequenceRanges(), set[int]()
    for number in numbers:
        assert ranges.add(number, 10 * number) is (number not in model)
        model.add(number)
    held = [n for each in ranges.ranges() for n in range(each.first, each.last + 1)]
    assert held == sorted(model)
    missing = [n for gap in ranges.gaps() for n in range(gap.first, gap.last + 1)]
    assert missing == sorted(set(range(max(model, default=0))) - model)
    edges = [(each.first_ms, each.last_ms) for each in ranges.ranges()]
    assert edges == [(10 * each.first, 10 * each.last) for each in ranges.ranges()]
    # Ranges never touch: their number is that of the runs.
    assert all(a.last + 1 < b.first for a, b in itertools.pairwise(ranges.ranges()))


def test_too_many_gaps_are_closed_from_below() -> None:
    ranges = SequenceRanges()
    for n in (0, 2, 4, 6):
        ranges.add(n, 10 * n)
    for _ in range(2):
        ranges.keep_at_most(2)
        assert ranges.ranges() == [(0, 4, 0, 40, 0, 0, 40), (6, 6, 60, 60, 0, 60, 60)]


@pytest.mark.parametrize(
    ("numbers", "final", "gaps"),
    [
        ([], -1, []),
        ([], 2, [(0, 2, 0, 99, 1000)]),
        ([0, 1], 1, []),
        ([0, 1], 3, [(2, 3, 10, 99, 1000)]),
        ([2, 3, 7], 7, [(0, 1, 0, 20, 100), (4, 6, 30, 70, 102)]),
        ([0, 5], 3, [(1, 4, 0, 50, 101)]),
        # What is filled in part was known before.
        ([0, 9, 4, 7], -1, [(1, 3, 0, 40, 101), (5, 6, 40, 70, 101), (8, 8, 70, 90, 101)]),
        ([0, 9, 8, 1], -1, [(2, 7, 10, 80, 101)]),
    ],
)
def test_gaps_reach_to_the_last_sequence_and_lie_between_the_times_of_their_neighbours(
    numbers: list[int], final: int, gaps: list[tuple[int, int, int, int, int]]
) -> None:
    ranges = SequenceRanges(final=final, final_ms=99, final_seen_ms=1000)
    for at, number in enumerate(numbers):
        ranges.add(number, 10 * number, 100 + at)
    found = [Gap(*gap) for gap in gaps]
    assert ranges.gaps() == found
    for known_ms in (0, 100, 101, 102, 1000):
        assert ranges.gaps(known_ms) == [gap for gap in found if gap.seen_ms <= known_ms]


def test_a_repeat_from_before_the_clock_was_set_back_is_no_other_event() -> None:
    """After a restart the times of single events are not known, those of ranges are."""
    counted = SequenceRanges()
    counted.add(0, 3_600_000)
    counted.add(1, 10_000)
    instance = ("server", "instance")
    assert EventTimes().not_counted_after(instance, 0, 3_600_000, counted) is None
    assert EventTimes().not_counted_after(instance, 1, 10_000, counted) is None
    assert EventTimes().not_counted_after(instance, 1, 3_700_000, counted) == 3_600_000
    assert EventTimes().not_counted_after(instance, 0, 5_000, counted) == 0
    counted.add(2, 20_000)
    counted.add(3, 5_000_000)
    counted.add(4, 2_000_000)
    counted.keep_at_most(1)
    assert EventTimes().not_counted_after(instance, 1, 10_000, counted) is None
    assert EventTimes().not_counted_after(instance, 3, 5_000_000, counted) is None
