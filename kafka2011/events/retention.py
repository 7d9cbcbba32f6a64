"""What retention may have deleted before a log was first read, for all that count by reports. Pure.

Deleted are the oldest entries of a partition, so that the times of those that are read first say
from when on it is whole.
"""

from collections.abc import Sequence

from kafka2011.events.sequences import Gap

FIRST_READ = 25  # so many entries say when a log begins
SLACK_MS = 60_000  # entries stand about in the order of their times, and clocks differ


def whole_from_ms(times_ms: Sequence[int], now_ms: int) -> int:
    """From when on a log is whole whose beginning was deleted, ms since the epoch.

    `times_ms` are those of its first entries, by their headers. Of the clocks one may be wrong, and
    one that is ahead excuses nothing that is still to come (`now_ms`).
    """
    if not times_ms:
        return now_ms
    return min(sorted(times_ms)[len(times_ms) // 2] + SLACK_MS, now_ms)


def may_be_deleted(gap: Gap, whole_ms: int, window_ms: int) -> bool:
    """Whether the monitoring events of a gap may have stood before `whole_ms` (0: all are there).

    Its last one was written a window before the event behind it, at most.
    """
    return gap.after_ms < whole_ms and gap.before_ms <= whole_ms + window_ms + SLACK_MS
