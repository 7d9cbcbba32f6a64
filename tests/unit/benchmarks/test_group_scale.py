"""Rebalances on simulated time: which member owns what in the end, and what a request costs."""

import pytest

from benchmarks.group_scale import ROUND_TRIP_S, Group


def test_a_group_settles_at_each_moment_and_the_same_seed_takes_the_same_time() -> None:
    moments = list(Group(3, 2, 2, seed=5).moments())
    assert [(one.moment, one.members, one.partitions) for one in moments] == [
        ("all start", 3, 4),
        ("one joins", 4, 4),
        ("one dies", 3, 4),
    ]
    again = Group(3, 2, 2, seed=5).moments()
    assert [(one.seconds, one.requests) for one in moments] == [
        (one.seconds, one.requests) for one in again
    ]


def test_a_single_member_takes_a_round_trip_a_request() -> None:
    started = next(Group(1, 1, 1, seed=1).moments())
    assert started.seconds == pytest.approx(started.requests * ROUND_TRIP_S, rel=0.2)


def test_requests_grow_with_the_square_of_the_members_for_each_reads_all_the_others() -> None:
    few, many = (next(Group(count, 2, 4, seed=1).moments()) for count in (4, 16))
    assert many.requests > 8 * few.requests
