"""How far each tier has taken what stands in the tier before it: late messages are not lost ones.

A tier's messages come from the logs of the tier before (`source`): the mirror copies live into
offline, the loads copy offline into the warehouse, and both record up to which offset of each
partition they have come (`confirmed`). The readers record between which offsets the messages of a
topic's window lie (`Span`). Three things can then be said of a window at a tier:

    PASSED   every offset of it is behind the tier: what is not here by now will not come
    BEHIND   the tier has not come there yet
    GONE     the source deleted part of it before the tier had come there

Pure and not thread-safe; `state.AuditState` owns one `Passages` and locks.
"""

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kafka2011.services.audit.books.progress import PartitionKey

SAMPLE_INTERVAL_MS = 1_000
SAMPLES_MAX = 512  # of one partition; above this every second one is dropped, and fewer are taken


class Passage(IntEnum):
    """How far a window has come. Ordered: it is as far as its least advanced partition."""

    PASSED = 0
    BEHIND = 1
    GONE = 2


class TopicWindow(NamedTuple):
    topic: str
    window_start_ms: int


@dataclass(slots=True)
class Span:
    """Offsets of one partition between which all messages of a window read so far lie."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """Offsets of a source partition that were deleted before `tier` had confirmed them."""

    tier: str
    source: PartitionKey
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of the source that a tier has not confirmed. `since_ms`: when the audit read the
    oldest of it there (ms since the epoch, 0: nothing)."""

    bytes: int = 0
    since_ms: int = 0


@dataclass(slots=True)
class _Source:
    """One partition of a source tier, as its reader sees it."""

    confirmed: int | None = None  # the tier behind has taken all below it, and that is counted
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # (asked at, confirmed then)
    earliest: int = 0
    counted_from: int | None = None  # the first offset that this run of the service counted
    read: deque[tuple[int, int]] = field(default_factory=deque)  # (time, offset of what was read)
    read_interval_ms: int = SAMPLE_INTERVAL_MS


class Passages:
    """The passage from every tier to the next. `tiers` in the order in which messages pass them."""

    def __init__(self, tiers: Sequence[str]) -> None:
        self._behind_of = dict(itertools.pairwise(tiers))
        self._sources: dict[PartitionKey, _Source] = {}
        self._spans: dict[str, dict[TopicWindow, dict[PartitionKey, Span]]] = {
            tier: {} for tier in tiers[:-1]
        }
        # Windows of earlier runs of the service: their offsets are not stored, and lie somewhere
        # below where each partition was read up to then.
        self._unplaced: set[TopicWindow] = set()
        # A window that is PASSED stays so while two numbers are the same: that of its last change
        # (by window start), and how often something went back.
        self.changes: dict[int, int] = {}
        self.went_back = 0
        self._change = 0
        self._unplaced_ends: dict[PartitionKey, int] = {}

    # --- what the readers see --------------------------------------------------------------------

    def restore(self, windows: Iterable[TopicWindow], ends: Mapping[PartitionKey, int]) -> None:
        """Take over the windows that an earlier run of the service counted, and how far it read."""
        self.went_back += 1
        self._unplaced = set(windows)
        self._unplaced_ends = {key: end for key, end in ends.items() if key.tier in self._spans}

    def counted(
        self, key: PartitionKey, windows: Iterable[int], first: int, end: int, now_ms: int
    ) -> None:
        """Note that messages of `windows` (starts, ms) lie between two offsets of a partition."""
        spans = self._spans.get(key.tier)
        if spans is None:  # nothing takes messages from the last tier
            return
        self._change += 1
        for start_ms in windows:
            self.changes[start_ms] = self._change
            of_window = spans.setdefault(TopicWindow(key.topic, start_ms), {})
            span = of_window.get(key)
            if span is None:
                of_window[key] = Span(first, end)
            else:
                span.end = end
        source = self._source(key)
        if source.counted_from is None:
            source.counted_from = first
        if not source.read or now_ms - source.read[-1][0] >= source.read_interval_ms:
            source.read.append((now_ms, first))
            if len(source.read) > SAMPLES_MAX:
                source.read = deque(list(source.read)[::2])
                source.read_interval_ms *= 2

    def confirm(self, key: PartitionKey, offset: int, asked_ms: int) -> None:
        """Note that the tier behind, asked at `asked_ms`, had confirmed everything below `offset`.

        This counts once `settle` says that the tier behind is read up to `asked_ms`.
        """
        waiting = self._source(key).waiting
        if not waiting or waiting[-1][1] != offset:
            waiting.append((asked_ms, offset))
        if len(waiting) > 2:  # the first of them is next, the last is the newest
            del waiting[1]

    def settle(self, source_tier: str, read_to_ms: int) -> None:
        """Let confirmations up to `read_to_ms` count, since the tier behind is read so far."""
        for key, source in self._sources.items():
            if key.tier != source_tier:
                continue
            while source.waiting and source.waiting[0][0] <= read_to_ms:
                before, source.confirmed = source.confirmed, source.waiting.popleft()[1]
                self.went_back += before is not None and source.confirmed < before
            confirmed = source.confirmed
            while confirmed is not None and len(source.read) > 1 and source.read[1][1] <= confirmed:
                source.read.popleft()
            if len(source.read) == 1:
                source.read_interval_ms = SAMPLE_INTERVAL_MS

    def set_earliest(self, key: PartitionKey, offset: int) -> None:
        """Note that the source's log of the partition begins at `offset`; the rest is deleted."""
        source = self._source(key)
        self.went_back += offset < source.earliest
        source.earliest = offset

    def cut(self, key: PartitionKey, end: int) -> None:
        """Forget what stood in the partition beyond `end`: it is lost, and will not come."""
        self.went_back += 1
        source = self._source(key)
        if source.confirmed is not None:
            source.confirmed = min(source.confirmed, end)
        source.waiting = deque((at, min(offset, end)) for at, offset in source.waiting)
        source.read = deque((at, offset) for at, offset in source.read if offset <= end)
        for spans in self._spans.get(key.tier, {}).values():
            span = spans.get(key)
            if span is not None and span.first >= end:
                del spans[key]
            elif span is not None:
                span.end = min(span.end, end)

    def replace(self, key: PartitionKey) -> None:
        """Forget the partition's log, which was lost and began anew: nothing of it will come."""
        self.went_back += 1
        self._sources.pop(key, None)
        self._unplaced_ends.pop(key, None)
        for spans in self._spans.get(key.tier, {}).values():
            spans.pop(key, None)

    def clamp(self, now_ms: int) -> None:
        """Take moments on record later than `now_ms` for that moment."""
        for source in self._sources.values():
            source.waiting = deque((min(at, now_ms), offset) for at, offset in source.waiting)
            source.read = deque((min(at, now_ms), offset) for at, offset in source.read)

    def keep_windows(self, open_windows: Collection[TopicWindow]) -> None:
        """Forget the spans of windows without an open cell."""
        for spans in self._spans.values():
            for window in [each for each in spans if each not in open_windows]:
                del spans[window]
        self._unplaced &= set(open_windows)
        starts = {window.window_start_ms for window in open_windows}
        self.changes = {start: n for start, n in self.changes.items() if start in starts}

    def _source(self, key: PartitionKey) -> _Source:
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source()
        return source

    # --- conclusions -----------------------------------------------------------------------------

    def of(self, source_tier: str, window: TopicWindow) -> Passage:
        """How far the tier behind `source_tier` is with a topic's window."""
        found = Passage.PASSED
        spans = self._spans[source_tier].get(window, {})
        for key, span in spans.items():
            found = max(found, self._of_span(key, span.first, span.end))
        if window in self._unplaced:
            for key, end in self._unplaced_ends.items():
                if key.tier == source_tier and key.topic == window.topic:
                    found = max(found, self._of_span(key, 0, end))
        return found

    def _of_span(self, key: PartitionKey, first: int, end: int) -> Passage:
        source = self._source(key)
        confirmed = -1 if source.confirmed is None else source.confirmed
        if max(confirmed, source.earliest) >= end:
            return Passage.PASSED
        if source.earliest > max(confirmed, first):
            return Passage.GONE
        return Passage.BEHIND

    def unconfirmed(self, source_tier: str, ends: Mapping[PartitionKey, int]) -> list[PartitionKey]:
        """Partitions of a source tier that are read further than the tier behind has confirmed."""
        return [
            key
            for key, end in ends.items()
            if key.tier == source_tier and (self._source(key).confirmed or 0) < end
        ]

    def backlog(self, source_tier: str, ends: Mapping[PartitionKey, int]) -> Backlog:
        """What the tier behind `source_tier` has not confirmed of what is read there (`ends`)."""
        total = 0
        since: list[int] = []
        for key in self.unconfirmed(source_tier, ends):
            source = self._source(key)
            begins = max(source.confirmed or 0, source.earliest)
            total += max(0, ends[key] - begins)
            if ends[key] > begins and source.read:
                before = [time_ms for time_ms, first in source.read if first <= begins]
                since.append(before[-1] if before else source.read[0][0])
        return Backlog(total, min(since, default=0))

    def deleted(self) -> list[DeletedRange]:
        """Ranges that the source deleted before the tier behind had confirmed them."""
        found = []
        for key, source in sorted(self._sources.items()):
            # What was deleted before the audit saw it, where nothing was ever confirmed, may never
            # have been meant for the tier behind.
            first = source.counted_from if source.confirmed is None else source.confirmed
            if first is not None and source.earliest > first:
                found.append(DeletedRange(self._behind_of[key.tier], key, first, source.earliest))
        return found
