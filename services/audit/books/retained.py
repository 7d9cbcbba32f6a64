"""Since when the logs are whole: what retention deleted before an audit began is not missing.

New books, or a recount, may find the oldest part of a log deleted: monitoring events whose messages
are kept elsewhere, or messages whose events are kept. The windows of that part cannot be judged.
Retention deletes a partition's oldest entries, so that the first one left says up to when. Pure and
not thread-safe.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka2011.events.retention import whole_from_ms
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.clock import utc_text
from kafka2011.services.audit.books.progress import PartitionKey


class LogName(NamedTuple):
    """A topic's logs at one tier."""

    tier: str
    topic: str


class Cut(NamedTuple):
    """A partition whose beginning was deleted: it is whole from that time on (ms since the epoch).
    `is_waiting`: nothing was read in it yet that would say from when on."""

    from_ms: int
    is_waiting: bool


class Retained:
    """The logs that are not whole. `from_ms`: windows of a topic that began before that time (ms
    since the epoch) are not whole at that tier; the time of topic `audit` holds for every topic at
    every tier."""

    def __init__(
        self,
        from_ms: Mapping[LogName, int] | None = None,
        cuts: Mapping[PartitionKey, Cut] | None = None,
    ) -> None:
        self._earlier = dict(from_ms or {})  # of books that do not name the partitions
        self._cuts = dict(cuts or {})
        self.from_ms: dict[LogName, int] = {}
        self.reports_from_ms = 0
        self.is_dirty = False
        self._changed()

    def cut(self, key: PartitionKey, now_ms: int) -> None:
        """Note that the beginning of a partition was deleted. Until something is read in it,
        nothing older than `now_ms` is known to be whole."""
        self._cuts[key] = Cut(now_ms, is_waiting=True)
        self._changed()

    def begins(self, key: PartitionKey, times_ms: Sequence[int]) -> None:
        """Note the header times of the first entries read in a partition that was cut; without any,
        do nothing."""
        if times_ms and self.is_waiting(key):
            from_ms = whole_from_ms(times_ms, self._cuts[key].from_ms)
            self._cuts[key] = Cut(from_ms, is_waiting=False)
            self._changed()

    def dropped(self, tier: str, topic: str, from_ms: int) -> None:
        """Note that a tier keeps nothing of a topic that was made before a time (ms); 0: all."""
        if from_ms:
            name = LogName(tier, topic)
            self._earlier[name] = max(from_ms, self._earlier.get(name, 0))
            self._changed()

    def is_waiting(self, key: PartitionKey) -> bool:
        """Whether the partition was cut and `begins` has yet to be called for it."""
        cut = self._cuts.get(key)
        return cut is not None and cut.is_waiting

    def cuts(self) -> dict[PartitionKey, Cut]:
        """The partitions that were cut."""
        return dict(self._cuts)

    def _changed(self) -> None:
        self.is_dirty = True
        self.from_ms = dict(self._earlier)
        for key, cut in self._cuts.items():
            name = LogName(key.tier, key.topic)
            self.from_ms[name] = max(cut.from_ms, self.from_ms.get(name, 0))
        reports = (ms for (_, topic), ms in self.from_ms.items() if topic == AUDIT)
        self.reports_from_ms = max(reports, default=0)

    def is_cut(self, tier: str, topic: str, window_start_ms: int) -> bool:
        """Whether a window of the topic cannot be judged at the tier."""
        if not self.from_ms:
            return False
        from_ms = max(self.from_ms.get(LogName(tier, topic), 0), self.reports_from_ms)
        return 0 <= window_start_ms < from_ms

    def notes(self) -> list[str]:
        """One line for each log that is not whole, that of monitoring events first."""
        logs = sorted(self.from_ms.items(), key=lambda each: each[0].topic != AUDIT)
        return [
            f"{tier} {topic}: what was made before {utc_text(time_ms)} is not audited"
            f"{'' if topic == AUDIT else ' there'}: retention had deleted "
            f"{'monitoring events' if topic == AUDIT else 'messages'} of it before the audit began"
            for (tier, topic), time_ms in logs
        ]
