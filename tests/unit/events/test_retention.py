"""Since when a log is whole whose beginning was deleted."""

import pytest

from kafka2011.events.retention import SLACK_MS, may_be_deleted, whole_from_ms
from kafka2011.events.sequences import Gap

NOW, DAY_MS = 1_300_000_000_000, 86_400_000


@pytest.mark.parametrize(
    ("ages_ms", "whole_age_ms"),
    [
        ([], 0),
        ([5 * SLACK_MS] * 3, 4 * SLACK_MS),
        # Most are of a server whose clock is a day behind: it does not say up to when others are.
        ([DAY_MS] * 24 + [5 * SLACK_MS], 4 * SLACK_MS),
        ([5 * SLACK_MS, -DAY_MS], 0),  # a clock that is ahead excuses nothing that is still to come
    ],
)
def test_a_log_is_whole_from_the_latest_of_its_first_entries(
    ages_ms: list[int], whole_age_ms: int
) -> None:
    assert whole_from_ms([NOW - age_ms for age_ms in ages_ms], NOW) == NOW - whole_age_ms


def test_only_what_begins_behind_the_cut_cannot_be_deleted() -> None:
    """However late the event behind the gap is: its producer may have been idle."""
    for before_ms in (NOW + 1, NOW + DAY_MS):
        assert may_be_deleted(Gap(0, 4, 0, before_ms), NOW)
        assert may_be_deleted(Gap(3, 4, NOW - 1, before_ms), NOW)
        assert not may_be_deleted(Gap(3, 4, NOW, before_ms), NOW)
        assert not may_be_deleted(Gap(0, 4, 0, before_ms), 0), "all are there"
