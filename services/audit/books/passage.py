"""How far each tier has taken what stands in the tier before it: late messages are not lost ones.

A tier's messages come from the logs of the tier before (`source`): the mirror copies live into
offline, the loads copy offline into the warehouse, and both record up to which offset of each
partition they have come (`confirmed`). The readers record between which offsets the messages of a
topic's window lie (`Span`). Three things can then be said of a window at a tier:

    PASSED   every offset of it is behind the tier: what is not here by now will not come
    BEHIND   the tier has not come there yet
    GONE     the source deleted or lost part of it before the tier had come there

That a log's beginning was deleted is seen later than it happened, and so is what the tier behind
had confirmed by then: a deleted range counts as not taken only if that tier, asked after the
deletion was seen, had still not confirmed it.

What a tier says it has confirmed outlives the log: after a loss the offsets of the old log stand
there until the tier has taken something of the new one. They confirm nothing of it.

Pure and not thread-safe; `state.AuditState` owns one `Passages` and locks.
"""

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kafka2011.services.audit.books.progress import PartitionKey, ReadPosition

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

    @property
    def what(self) -> str:
        """A line on it."""
        return (
            f"{self.source.tier} {self.source.topic} {self.source.place}: from offset "
            f"{self.first} to {self.last} was deleted before {self.tier} had confirmed it"
        )


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of the source that a tier has not confirmed. `since_ms`: when the audit read the
    oldest of it there (ms since the epoch, 0: nothing)."""

    bytes: int = 0
    since_ms: int = 0


def deleted_notes(ranges: Iterable[DeletedRange]) -> dict[tuple[str, str], str]:
    """A line for each tier and topic of them."""
    by_topic: dict[tuple[str, str], list[DeletedRange]] = {}
    for each in ranges:
        by_topic.setdefault((each.tier, each.source.topic), []).append(each)
    return {of: first.what + _and_the_like(others) for of, (first, *others) in by_topic.items()}


def _and_the_like(others: Sequence[object]) -> str:
    """The end of a line on one partition of a topic, where others are as it is."""
    left = len(others)
    return f" (and the like of {left} more partition{'s' * (left > 1)})" if left else ""


class _Said(NamedTuple):
    """What the tier behind had confirmed: it was asked at `asked_ms` and answered by `seen_ms`."""

    asked_ms: int
    offset: int
    seen_ms: int


@dataclass(slots=True)
class _Source:
    """One partition of a source tier, as its reader sees it."""

    confirmed: int | None = None  # the tier behind has taken all below it, and that is counted
    waiting: deque[_Said] = field(default_factory=deque)
    # Offsets from one to the other may be of a log before this one; None: none are.
    old: tuple[int, int] | None = None
    common: int = -1  # up to there both logs are the same
    earliest: int = 0
    earliest_seen_ms: int = 0
    # Offsets, from one to the other (-1: from the beginning), that were deleted before the tier
    # behind had confirmed them, until it has confirmed what follows; None: none are.
    deleted: tuple[int, int] | None = None
    counted_from: int | None = None  # the first offset that this run of the service counted
    read: deque[tuple[int, int]] = field(default_factory=deque)  # (time, offset of what was read)
    read_interval_ms: int = SAMPLE_INTERVAL_MS

    def said(self) -> int | None:
        """The newest offset that the tier behind said it had confirmed."""
        return self.waiting[-1].offset if self.waiting else self.confirmed

    def taken(self) -> int:
        """Up to where the tier behind said it had confirmed this log, -1: nothing of it."""
        said = self.said()
        if said is not None and self.old is not None and self.old[0] <= said <= self.old[1]:
            said = self.confirmed
        return -1 if said is None else said

    def is_of_this_log(self, said: _Said, position: ReadPosition) -> bool | None:
        """Whether the tier behind said it of this log, None: not known yet. `position`: where the
        reader of the log is."""
        if said.offset > position.next_offset:
            return None if position.read_to_ms < said.seen_ms else False
        return self.old is None or not self.old[0] <= said.offset <= self.old[1]


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
        # Windows in logs that were lost before the tier behind had confirmed them: until it has
        # come to the new log it may have more of the old one than it has confirmed.
        self._lost: dict[PartitionKey, set[TopicWindow]] = {}

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

    def confirm(self, key: PartitionKey, offset: int, asked_ms: int, seen_ms: int) -> None:
        """Note that the tier behind, asked at `asked_ms`, had confirmed everything below `offset`;
        its answer was there at `seen_ms`.

        This counts once `settle` says that the tier behind is read up to `asked_ms`.
        """
        waiting = self._source(key).waiting
        if not waiting or waiting[-1].offset != offset:
            waiting.append(_Said(asked_ms, offset, seen_ms))
        if len(waiting) > 2:  # the first of them is next, the last is the newest
            del waiting[1]

    def asked(self, keys: Iterable[PartitionKey], asked_ms: int) -> None:
        """Note that the tier behind was asked at `asked_ms` how far it has come in these
        partitions, and that `confirm` was called with each answer."""
        for key in keys:
            source = self._source(key)
            if asked_ms < source.earliest_seen_ms:
                continue
            taken = source.taken()
            if source.deleted is None:
                if source.earliest > taken:
                    source.deleted = (taken, source.earliest)
            elif taken < source.deleted[1]:
                first = max(taken, source.deleted[0])  # more where it still had some in hand
                self.went_back += first > source.deleted[0]
                source.deleted = (first, source.earliest)
            # Else it has passed that range: another one waits until this one is settled.

    def settle(
        self, source_tier: str, read_to_ms: int, positions: Mapping[PartitionKey, ReadPosition]
    ) -> list[DeletedRange]:
        """Let confirmations up to `read_to_ms` count, since the tier behind is read so far.
        `positions`: how far the partitions of the source are read. Returns the deleted ranges that
        the tier has passed by that: `deleted` has them no more."""
        passed = []
        for key, source in self._sources.items():
            if key.tier != source_tier:
                continue
            while source.waiting and source.waiting[0].asked_ms <= read_to_ms:
                said = source.waiting[0]
                position = positions.get(key)
                is_new = source.is_of_this_log(said, position) if position is not None else None
                if is_new is None:
                    break
                source.waiting.popleft()
                if not is_new:
                    old_end = source.old[1] if source.old is not None else 0
                    source.old = (said.offset, max(said.offset, old_end))
                    continue
                if said.offset > source.common:
                    source.old = None
                    self.went_back += self._lost.pop(key, None) is not None
                before, source.confirmed = source.confirmed, said.offset
                self.went_back += before is not None and source.confirmed < before
            confirmed = source.confirmed
            if source.deleted is not None and (confirmed or 0) >= source.deleted[1]:
                passed += self._deleted(key, source)
                source.deleted = None
            while confirmed is not None and len(source.read) > 1 and source.read[1][1] <= confirmed:
                source.read.popleft()
            if len(source.read) == 1:
                source.read_interval_ms = SAMPLE_INTERVAL_MS
        return passed

    def set_earliest(self, key: PartitionKey, offset: int, seen_ms: int) -> None:
        """Note that the source's log of the partition begins at `offset`, as was seen at `seen_ms`;
        the rest is deleted."""
        source = self._source(key)
        if offset < source.earliest:
            self._forget_deleted(source, offset)
        if offset != source.earliest:
            source.earliest, source.earliest_seen_ms = offset, seen_ms

    def _forget_deleted(self, source: _Source, end: int) -> None:
        """Forget what the source deleted from `end` on."""
        self.went_back += 1
        if source.deleted is not None:
            first, last = source.deleted
            source.deleted = (first, min(last, end)) if first < end else None

    def cut(self, key: PartitionKey, end: int, read_end: int) -> None:
        """Forget what stood in the partition beyond `end`: it is lost, and will not come. It was
        read up to `read_end`."""
        source = self._source(key)
        self._forget_deleted(source, end)
        said = source.said()
        if said is not None and said > end:
            source.old, source.common = (said, max(said, read_end)), end
        if source.confirmed is not None:
            source.confirmed = min(source.confirmed, end)
        source.waiting = deque(
            each._replace(offset=min(each.offset, end)) for each in source.waiting
        )
        source.read = deque((at, offset) for at, offset in source.read if offset <= end)
        for spans in self._spans.get(key.tier, {}).values():
            span = spans.get(key)
            if span is not None and span.first >= end:
                del spans[key]
            elif span is not None:
                span.end = min(span.end, end)

    def replace(self, key: PartitionKey, read_end: int) -> None:
        """Forget the partition's log, which was lost and began anew; it was read up to `read_end`.

        Nothing of it will come but what the tier behind has taken and not confirmed yet.
        """
        self.went_back += 1
        before = self._sources.pop(key, None) or _Source()
        confirmed = before.confirmed or 0
        old_from, old_end = before.old or (-1, 0)
        said = before.said()
        self._source(key).old = (old_from if said is None else said, max(old_end, read_end))
        lost = set()
        if self._unplaced_ends.pop(key, 0) > confirmed:
            lost = {window for window in self._unplaced if window.topic == key.topic}
        for window, spans in self._spans.get(key.tier, {}).items():
            span = spans.pop(key, None)
            if span is not None and span.end > confirmed:
                lost.add(window)
        if lost:
            self._lost.setdefault(key, set()).update(lost)

    def clamp(self, now_ms: int) -> None:
        """Take moments on record later than `now_ms` for that moment."""
        for source in self._sources.values():
            source.waiting = deque(
                _Said(min(said.asked_ms, now_ms), said.offset, min(said.seen_ms, now_ms))
                for said in source.waiting
            )
            source.read = deque((min(at, now_ms), offset) for at, offset in source.read)
            source.earliest_seen_ms = min(source.earliest_seen_ms, now_ms)

    def keep_windows(self, open_windows: Collection[TopicWindow]) -> None:
        """Forget the spans of windows without an open cell."""
        for spans in self._spans.values():
            for window in [each for each in spans if each not in open_windows]:
                del spans[window]
        self._unplaced &= set(open_windows)
        for windows in self._lost.values():
            windows &= set(open_windows)
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
        if any(window in lost for key, lost in self._lost.items() if key.tier == source_tier):
            return Passage.GONE
        return found

    def _of_span(self, key: PartitionKey, first: int, end: int) -> Passage:
        source = self._source(key)
        confirmed = -1 if source.confirmed is None else source.confirmed
        if confirmed >= end:
            return Passage.PASSED
        begins = max(confirmed, first)
        if source.deleted is not None and source.deleted[0] < end and source.deleted[1] > begins:
            # What the tier behind has confirmed of it and is not counted yet may be on its way.
            is_whole = source.deleted[0] <= begins and source.deleted[1] >= end
            return Passage.PASSED if is_whole else Passage.GONE
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

    def never_confirmed(self, source_tier: str, before_ms: int) -> set[str]:
        """Topics that were read at the source before that time, of which the tier behind has never
        said an offset."""
        unsaid: set[str] = set()
        said: set[str] = set()
        for key, source in self._sources.items():
            if key.tier != source_tier:
                continue
            if source.said() is not None or (source.old is not None and source.old[0] >= 0):
                said.add(key.topic)
            elif source.read and source.read[0][0] <= before_ms:
                unsaid.add(key.topic)
        return unsaid - said

    def outlived(self) -> list[str]:
        """A line for each tier and topic with partitions of which the tier behind says offsets of
        lost logs."""
        found: dict[tuple[str, str], list[tuple[PartitionKey, int, int]]] = {}
        for key, source in sorted(self._sources.items()):
            if source.old is not None and source.old[0] > 0:
                found.setdefault((key.tier, key.topic), []).append((key, *source.old))
        notes = []
        for (tier, topic), lost in found.items():
            behind, (key, taken, old_end) = self._behind_of[tier], lost[0]
            more = _and_the_like(lost[1:])
            until = f" to {old_end}" if old_end > taken else ""
            notes.append(
                f"{tier} {topic} {key.place}: its log, or the end of it, "
                f"was lost: {behind} had taken it up to offset {taken}, and how much it has of "
                f"what is there now is not known while its offset is {taken}{until}{more}"
            )
        return notes

    def deleted(self) -> list[DeletedRange]:
        """Ranges that the source deleted before the tier behind had confirmed them."""
        return [each for found in sorted(self._sources.items()) for each in self._deleted(*found)]

    def _deleted(self, key: PartitionKey, source: _Source) -> list[DeletedRange]:
        if source.deleted is None:
            return []
        first, last = source.deleted
        if first < 0:
            # What was deleted before the audit saw it, where nothing was ever confirmed, may never
            # have been meant for the tier behind.
            first = last if source.counted_from is None else source.counted_from
        return [DeletedRange(self._behind_of[key.tier], key, first, last)] if first < last else []
