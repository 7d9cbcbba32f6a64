"""Retention is a pure function: which of the oldest segments may go."""

import pytest

from kafka2011.broker.log.retention import SegmentSummary, by_age, by_size, each_in_turn

THREE = [SegmentSummary(start, 100, 1000 + 10 * start) for start in (0, 100, 200)]


@pytest.mark.parametrize(
    ("now_ms", "count"),
    [(1500, 0), (1501, 1), (2500, 1), (2501, 2), (3501, 3), (0, 0)],
)
def test_age_is_strict_and_by_the_last_write(now_ms: int, count: int) -> None:
    assert by_age(500)(THREE, now_ms) == count


def test_age_stops_at_the_first_segment_that_stays() -> None:
    young_first = [SegmentSummary(0, 1, 9000), SegmentSummary(1, 1, 1), SegmentSummary(2, 1, 1)]
    assert by_age(500)(young_first, 9400) == 0


@pytest.mark.parametrize(
    ("limit", "count"), [(-1, 0), (300, 0), (250, 0), (200, 1), (199, 1), (100, 2), (1, 2), (0, 3)]
)
def test_size_keeps_at_least_the_limit(limit: int, count: int) -> None:
    assert by_size(limit)(THREE, 0) == count


def test_age_first_then_size_on_what_is_left() -> None:
    assert each_in_turn(by_age(500), by_size(100))(THREE, 1501) == 2
    assert each_in_turn(by_age(500), by_size(-1))(THREE, 1501) == 1
    assert each_in_turn()(THREE, 1501) == 0
