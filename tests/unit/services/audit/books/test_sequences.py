import itertools

from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.audit.books.sequences import SequenceRanges


@given(st.lists(st.integers(0, 30)))
def test_ranges_equal_a_set(numbers: list[int]) -> None:
    ranges, model = SequenceRanges(), set[int]()
    for number in numbers:
        assert ranges.add(number) is (number not in model)
        model.add(number)
    held = [n for first, last in ranges.ranges() for n in range(first, last + 1)]
    assert held == sorted(model)
    missing = [n for first, last in ranges.gaps() for n in range(first, last + 1)]
    assert missing == sorted(set(range(max(model, default=0))) - model)
    # Ranges never touch: their number is that of the runs.
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(ranges.ranges()))


def test_in_order_sequences_take_the_room_of_one_range() -> None:
    ranges = SequenceRanges()
    for number in range(10_000):
        ranges.add(number)
    assert ranges.ranges() == [(0, 9_999)]


def test_too_many_gaps_are_closed_from_below() -> None:
    ranges = SequenceRanges([(0, 0), (2, 2), (4, 4), (6, 6)])
    ranges.keep_at_most(2)
    assert ranges.ranges() == [(0, 4), (6, 6)]
    ranges.keep_at_most(2)
    assert ranges.ranges() == [(0, 4), (6, 6)]
