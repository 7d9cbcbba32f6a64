"""What retention may have deleted before a log was first read, wherever reports are counted. Pure.

Retention deletes the oldest entries of a partition, so the times of the first ones read show from
when on it is complete.
"""

from collections.abc import Sequence

from kafka2011.events.sequences import Gap

FIRST_READ = 25  # entries that decide when a log begins
SLACK_MS = 60_000  # entries are only roughly in the order of their times, and clocks differ


def whole_from_ms(times_ms: Sequence[int], now_ms: int) -> int:
    """The time from which a log whose beginning was deleted is complete, ms since the epoch.

    `times_ms` are those in the headers of its first entries: the latest, since a clock that is
    behind says nothing of what others made, and at most `now_ms`, since one that is ahead must not
    excuse what is still to come.
    """
    if not times_ms:
        return now_ms
    return min(max(times_ms) + SLACK_MS, now_ms)


def may_be_deleted(gap: Gap, whole_ms: int) -> bool:
    """Whether the monitoring events of a gap may be from before `whole_ms` (0: all are there).

    The time of the event behind it says nothing: a producer that is idle writes none.
    """
    return gap.after_ms < whole_ms
