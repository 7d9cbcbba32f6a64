"""Since when a log is whole whose beginning was deleted."""

from kafka2011.events.retention import may_be_deleted
from kafka2011.events.sequences import Gap

NOW, DAY_MS = 1_300_000_000_000, 86_400_000


def test_only_what_begins_behind_the_cut_cannot_be_deleted() -> None:
    """However late the event behind the gap is: its producer may have been idle."""
    for before_ms in (NOW + 1, NOW + DAY_MS):
        assert may_be_deleted(Gap(0, 4, 0, before_ms), NOW)
        assert may_be_deleted(Gap(3, 4, NOW - 1, before_ms), NOW)
        assert not may_be_deleted(Gap(3, 4, NOW, before_ms), NOW)
        assert not may_be_deleted(Gap(0, 4, 0, before_ms), 0), "all are there"
