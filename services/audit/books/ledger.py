"""What producers reported and what each tier holds, by topic, window and server.

Pure and not thread-safe; `state.AuditState` owns one and locks. Numbers are added in two ways:
`add_report` (a monitoring event, once each) and `add_counts` (messages read at a tier). Everything
is bounded: windows that balance are folded into totals after a while; above `cells_max` cells,
judged ones are folded too, and above twice that number the oldest of any kind.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from operator import gt
from typing import NamedTuple, Protocol

from kafka2011.events.monitoring import Heartbeat, MonitoringEvent
from kafka2011.events.retention import may_be_deleted
from kafka2011.events.sequences import USED_AGAIN, EventTimes, Gap, SequenceRanges
from kafka2011.events.windows import window_start
from kafka2011.services.audit.books.retained import Retained
from kafka2011.services.audit.server_filter import OWN_TIER, IsOurs
from kafka2011.services.audit.verdicts import UNREADABLE_WINDOW, expected_of

CELLS_MAX = 200_000
# Above so many (tier, topic) pairs a topic that only reports name, and no tier has, is in those of
# OTHER_TOPICS. One that a tier has keeps its own: whether it was reported decides its verdicts.
FOLDED_MAX = 20_000
OTHER_TOPICS = "(other topics)"
INSTANCES_MAX = 100_000
PRODUCED_MAX = 2**62  # messages of all topics and tiers; the store keeps numbers below 2**63
# Of one instance. A service with fresh books reads the partitions of a long history side by side,
# so that a report is a gap until its partition is read so far. Closing the gap before would take
# the report as counted.
RANGES_MAX = 100_000

# The order in which cells are folded when there are too many. One that balances loses nothing.
_RANK_BALANCED, _RANK_BALANCES_NOW, _RANK_JUDGED, _RANK_PENDING = range(4)


class CellKey(NamedTuple):
    """One cell. `window_start_ms` is -1 for messages without a readable header."""

    topic: str
    window_start_ms: int
    server: str


class CountedWindow(Protocol):
    """One entry of a monitoring event's counts (`events.windows.WindowCount`)."""

    @property
    def topic(self) -> str: ...
    @property
    def window_start(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class Instance(NamedTuple):
    """One run of one producer's counting."""

    server: str
    instance: str


@dataclass(slots=True)
class Cell:
    """The numbers of messages of one cell, by index of the tier.

    `produced`: as reported by producers that enter there; `counted`: read there; `reported_ms`:
    when the last report was read (ms since the epoch), not stored; `counted_ms`: when messages were
    last read at the tier, 0: long ago.
    """

    produced: list[int]
    counted: list[int]
    counted_ms: list[int]
    reported_ms: int = 0

    @property
    def is_over(self) -> bool:
        """Whether some tier has more than was reported."""
        return any(map(gt, self.counted, accumulate(self.produced)))

    @property
    def expected(self) -> list[int]:
        return expected_of(self.produced)


@dataclass(slots=True)
class OpenWindow:
    """The open cells of one window. `change` gets a new number when any of them changes."""

    keys: set[CellKey] = field(default_factory=set)
    change: int = 0


@dataclass(slots=True)
class ReportsSeen:
    """Counted monitoring events of one instance, and when the last one was seen, ms."""

    sequences: SequenceRanges = field(default_factory=SequenceRanges)
    last_seen_ms: int = 0


@dataclass(slots=True)
class FoldedTotals:
    """Totals of windows whose cells were folded, for one topic at one tier.

    `not_audited`: how many of `cells` are of windows that retention had cut.
    """

    cells: int = 0
    produced: int = 0
    expected: int = 0
    counted: int = 0
    missing: int = 0
    extra: int = 0
    redelivered: int = 0
    not_audited: int = 0


class FoldLimits(NamedTuple):
    """What is true of windows that began at these times (ms) or before, for folding them.

    `settled_ms`: every tier's reader has read what belongs to them, so that they may be judged.
    `excused_ms`: a restart explains their surplus. `late`: (topic, window) pairs that some tier has
    not reached yet; they are not judged whatever their time. A surplus that was read after `due_ms`
    may still be reported; it is not judged either. Nor is one that was read after `heard_ms` of its
    server, which is to send more.
    """

    settled_ms: int = UNREADABLE_WINDOW - 1
    excused_ms: int = UNREADABLE_WINDOW
    late: Container[tuple[str, int]] = frozenset()
    due_ms: float = inf
    heard_ms: Mapping[str, float] = {}


def may_count(*, after_ms: int, before_ms: int, window_start_ms: int, window_ms: int) -> bool:
    """Whether monitoring events between those of two times (ms) may have counted messages of a
    window: an event counts what was confirmed since the event before, made up to a window earlier.
    The clock of a producer that was set back in between has them in the other order.
    """
    first_ms, last_ms = sorted((after_ms, before_ms))
    return window_start_ms + 2 * window_ms > first_ms and 0 <= window_start_ms <= last_ms


class Ledger:
    """The open cells, the reports counted, and the totals of folded cells.

    `tiers` are in the order in which messages pass them, `window_ms` is the width of the windows,
    `exempt` are (tier, topic) pairs whose numbers need not agree. Behind the live tier, servers for
    which `is_ours` is false belong to another audit and are not counted.
    """

    def __init__(
        self,
        tiers: Sequence[str],
        window_ms: int,
        *,
        cells_max: int = CELLS_MAX,
        exempt: Set[tuple[str, str]] = frozenset(),
        is_ours: IsOurs | None = None,
    ) -> None:
        self.tiers = tuple(tiers)
        self.window_ms = window_ms
        self.exempt = exempt
        self._is_ours = is_ours
        self._cells_max = cells_max
        self._limits = FoldLimits()
        self._crowd: tuple[int, int] | None = None  # when room was last made, and how full it was
        self._index = {tier: index for index, tier in enumerate(self.tiers)}
        self.cells: dict[CellKey, Cell] = {}
        self.windows: dict[int, OpenWindow] = {}  # of the cells, by their start
        self._changes = 0
        self.seen: dict[Instance, ReportsSeen] = {}
        # Set aside: without gaps, and not heard of for long.
        self.idle: dict[Instance, ReportsSeen] = {}
        self.folded: dict[tuple[str, str], FoldedTotals] = {}  # (tier, topic)
        self.produced_messages = self.produced_bytes = 0
        self._times = EventTimes()
        self.retained = Retained()
        # Keys that changed since they were last stored; their present values are written.
        self.dirty_cells: set[CellKey] = set()
        self.dirty_seen: set[Instance] = set()
        self.dirty_folded: set[tuple[str, str]] = set()

    def tier_before(self, tier: str) -> str | None:
        """The tier that messages pass before `tier`, None for the first."""
        index = self._index[tier]
        return self.tiers[index - 1] if index else None

    def tier_behind(self, tier: str) -> str | None:
        """The tier that messages pass after `tier`, None for the last."""
        index = self._index[tier] + 1
        return self.tiers[index] if index < len(self.tiers) else None

    # --- numbers -----------------------------------------------------------------------------

    def add_report(
        self,
        entry_tier: str,
        *,
        server: str,
        instance: str,
        sequence: int,
        counts: Iterable[CountedWindow],
        now_ms: int,
        time_ms: int = 0,
    ) -> bool:
        """Count one monitoring event of `time_ms`, read at `entry_tier`.

        Returns False when it was counted before, or belongs to another audit.
        """
        if not self._counts(entry_tier, server):
            return False
        key = Instance(server, instance)
        seen = self._seen(key, now_ms)
        if not seen.sequences.add(sequence, time_ms, now_ms):
            after_ms = self._times.not_counted_after(key, sequence, time_ms, seen.sequences)
            if after_ms is not None:
                again = self._seen(Instance(server, instance + USED_AGAIN), now_ms).sequences
                again.use_again(sequence, after_ms=after_ms, time_ms=time_ms, seen_ms=now_ms)
            return False
        self._times.add(key, sequence, time_ms)
        seen.sequences.keep_at_most(RANGES_MAX)
        index = self._index[entry_tier]
        for count in counts:
            start_ms = window_start(count.window_start, self.window_ms)
            cell = self._cell(CellKey(count.topic, start_ms, server))
            cell.produced[index] += count.count
            self.produced_messages += count.count
            cell.reported_ms = now_ms
            self.produced_bytes += count.bytes
        self._keep_bounded()
        return True

    def has_room(self, counts: Iterable[CountedWindow]) -> bool:
        """Whether every sum of the books can take these counts."""
        return self.produced_messages + sum(count.count for count in counts) <= PRODUCED_MAX

    def add_goodbye(self, entry_tier: str, goodbye: Heartbeat, now_ms: int) -> None:
        """Note a producer's goodbye, which has the sequence of its last monitoring event."""
        header = goodbye.header
        instance = Instance(header.server, goodbye.counting_instance)
        self._add_final(entry_tier, instance, goodbye.last_sequence, header.time_ms, now_ms)

    def leave_out(self, entry_tier: str, event: MonitoringEvent, now_ms: int) -> None:
        """Take an event whose windows do not fit as one that was not read: what it counted cannot
        be said of the windows here, and is unknown."""
        instance = Instance(event.header.server, event.instance)
        self._add_final(entry_tier, instance, event.sequence, event.header.time_ms, now_ms)

    def _add_final(
        self, entry_tier: str, instance: Instance, last_sequence: int, time_ms: int, now_ms: int
    ) -> None:
        """Note that the producer has written monitoring events up to `last_sequence` (-1: none)."""
        if not self._counts(entry_tier, instance.server):
            return
        sequences = self._seen(instance, now_ms).sequences
        if last_sequence > sequences.final:
            sequences.final, sequences.final_ms = last_sequence, time_ms
            sequences.final_seen_ms = now_ms

    def _seen(self, key: Instance, now_ms: int) -> ReportsSeen:
        seen = self.seen.get(key)
        if seen is None:
            seen = self.seen[key] = self.idle.pop(key, ReportsSeen())
        seen.last_seen_ms = now_ms
        self.dirty_seen.add(key)
        return seen

    def add_counts(
        self, tier: str, topic: str, counts: Mapping[tuple[int, str], int], now_ms: int = 0
    ) -> None:
        """Add messages of `topic` read at `tier` at `now_ms`, by (window start, server)."""
        index = self._index[tier]
        for (window_start_ms, server), number in counts.items():
            if not self._counts(tier, server):
                continue
            cell = self._cell(CellKey(topic, window_start_ms, server))
            cell.counted[index] += number
            cell.counted_ms[index] = now_ms
        self._keep_bounded()

    def clamp(self, now_ms: int) -> None:
        """Take moments on record later than `now_ms` for that moment."""
        for cell in self.cells.values():
            cell.reported_ms = min(cell.reported_ms, now_ms)
            cell.counted_ms = [min(at_ms, now_ms) for at_ms in cell.counted_ms]
        for seen in self.seen.values():
            seen.last_seen_ms = min(seen.last_seen_ms, now_ms)
            seen.sequences.clamp_seen(now_ms)

    def _counts(self, tier: str, server: str) -> bool:
        return self._is_ours is None or tier == OWN_TIER or self._is_ours(server)

    def _cell(self, key: CellKey) -> Cell:
        """The cell, marked as changed and opened if it was not open."""
        self.dirty_cells.add(key)
        return self.opened(key)

    def opened(self, key: CellKey) -> Cell:
        """The cell, opened if it was not open; not marked as changed."""
        cell = self.cells.get(key)
        if cell is None:
            zeros = [0] * len(self.tiers)
            cell = self.cells[key] = Cell(zeros, zeros.copy(), zeros.copy())
        window = self.windows.get(key.window_start_ms)
        if window is None:
            window = self.windows[key.window_start_ms] = OpenWindow()
        window.keys.add(key)
        self._changes += 1
        window.change = self._changes
        return cell

    # --- bounds ------------------------------------------------------------------------------

    def fold(self, before_ms: int, gaps: Iterable[tuple[Instance, Gap]] = ()) -> int:
        """Fold cells of windows that began before `before_ms` and balance; returns how many. One
        that a monitoring event in `gaps` may have counted stays until that is read.

        A message or report that comes later for a folded window opens a new cell; since the folded
        numbers were equal, only the new ones decide its verdict.
        """
        of_server: dict[str, list[Gap]] = {}
        for instance, gap in gaps:
            of_server.setdefault(instance.server, []).append(gap)

        def is_in_gap(key: CellKey) -> bool:
            return any(
                may_count(
                    after_ms=gap.after_ms,
                    before_ms=gap.before_ms,
                    window_start_ms=key.window_start_ms,
                    window_ms=self.window_ms,
                )
                for gap in of_server.get(key.server, ())
            )

        gone = [
            key
            for key, cell in self.cells.items()
            if 0 <= key.window_start_ms < before_ms
            and self._balances(key, cell)
            and not is_in_gap(key)
        ]
        for key in gone:
            self._fold_cell(key)
        return len(gone)

    def set_aside_instances(self, before_ms: int) -> int:
        """Set instances aside that had no event since `before_ms`; returns how many.

        A judgement does not go through them. One that reports again goes on where it was: its
        next event begins no gap, and a repeat is not counted twice. One with a gap stays until the
        gap is filled. Above INSTANCES_MAX those set aside first are forgotten.
        """
        gone = [
            key
            for key, seen in self.seen.items()
            if seen.last_seen_ms < before_ms and not seen.sequences.gaps()
        ]
        for key in gone:
            self.idle[key] = self.seen.pop(key)
        if len(self.idle) > INSTANCES_MAX:
            for instance in list(self.idle)[: len(self.idle) - INSTANCES_MAX]:
                del self.idle[instance]
                self.dirty_seen.add(instance)
        return len(gone)

    @property
    def is_crowded(self) -> bool:
        """Whether more cells are open than there should be: call `make_room`."""
        return len(self.cells) > self._cells_max

    def make_room(self, limits: FoldLimits) -> None:
        """Fold judged cells when too many are open; cells that are not judged stay."""
        self._limits = limits
        if not self.is_crowded:
            return
        crowd = (limits.settled_ms // self.window_ms, 10 * len(self.cells) // self._cells_max)
        if crowd != self._crowd:  # sorting every cell again would fold nothing more
            self._crowd = crowd
            self._fold_oldest(self._cells_max * 9 // 10, rank_max=_RANK_JUDGED)

    def _fold_oldest(self, cells_left: int, rank_max: int) -> None:
        """Fold cells of at most `rank_max` until `cells_left` are open: first those whose folding
        hides the least."""
        ranked = sorted((self._rank(key), key.window_start_ms, key) for key in self.cells)
        for rank, _, key in ranked[: max(0, len(ranked) - cells_left)]:
            if rank > rank_max:
                break
            self._fold_cell(key)

    def _rank(self, key: CellKey) -> int:
        is_settled = key.window_start_ms <= self._limits.settled_ms
        cell = self.cells[key]
        if self._balances(key, cell):
            return _RANK_BALANCED if is_settled else _RANK_BALANCES_NOW
        is_late = (key.topic, key.window_start_ms) in self._limits.late
        due_ms = min(self._limits.due_ms, self._limits.heard_ms.get(key.server, inf))
        is_late |= max(cell.counted_ms) > due_ms and cell.is_over
        return _RANK_JUDGED if is_settled and not is_late else _RANK_PENDING

    def _keep_bounded(self) -> None:
        if len(self.cells) > 2 * self._cells_max:
            self._fold_oldest(2 * self._cells_max * 9 // 10, rank_max=_RANK_PENDING)
        if len(self.seen) > INSTANCES_MAX:
            by_age = sorted(self.seen, key=lambda key: self.seen[key].last_seen_ms)
            for instance in by_age[: INSTANCES_MAX // 10]:
                del self.seen[instance]
                self.dirty_seen.add(instance)

    def _balances(self, key: CellKey, cell: Cell) -> bool:
        return all(
            expected == counted or self._is_excused(tier, key)
            for tier, expected, counted in zip(self.tiers, cell.expected, cell.counted, strict=True)
        )

    def _is_excused(self, tier: str, key: CellKey) -> bool:
        """Whether the numbers of a cell need not agree at a tier."""
        is_exempt = (tier, key.topic) in self.exempt
        return is_exempt or self.retained.is_cut(tier, key.topic, key.window_start_ms)

    def _fold_cell(self, key: CellKey) -> None:
        cell = self.cells.pop(key)
        self.dirty_cells.add(key)
        window = self.windows[key.window_start_ms]
        window.keys.remove(key)
        self._changes += 1
        window.change = self._changes
        if not window.keys:
            del self.windows[key.window_start_ms]
        is_nowhere = not any(cell.counted)
        for tier, produced, expected, counted in zip(
            self.tiers, cell.produced, cell.expected, cell.counted, strict=True
        ):
            name = tier, key.topic
            if name not in self.folded and is_nowhere and len(self.folded) >= FOLDED_MAX:
                name = tier, OTHER_TOPICS
            folded = self.folded.setdefault(name, FoldedTotals())
            folded.cells += 1
            folded.produced += produced
            folded.expected += expected
            folded.counted += counted
            folded.not_audited += self.retained.is_cut(tier, key.topic, key.window_start_ms)
            if not self._is_excused(tier, key):
                folded.missing += max(0, expected - counted)
                surplus = max(0, counted - expected)
                if UNREADABLE_WINDOW < key.window_start_ms <= self._limits.excused_ms:
                    folded.redelivered += surplus
                else:
                    folded.extra += surplus
            self.dirty_folded.add(name)

    # --- gaps --------------------------------------------------------------------------------

    def report_gaps(self, read_to_ms: int) -> Iterator[tuple[Instance, Gap]]:
        """Monitoring events that must have been written and were not read: (instance, gap).

        `read_to_ms`: all monitoring events visible then are counted; a gap that was seen later may
        still be filled. Events that retention may have deleted before the books began are no gap.
        """
        of_server: dict[str, list[Instance]] = {}
        for instance in self.seen:
            of_server.setdefault(instance.server, []).append(instance)
        for instance, seen in self.seen.items():
            for found in seen.sequences.gaps(read_to_ms):
                others = of_server[instance.server]
                after_ms = found.after_ms or self._last_before(instance, found, others)
                gap = found._replace(after_ms=after_ms)
                is_read = instance.instance.endswith(USED_AGAIN)
                if is_read or not may_be_deleted(gap, self.retained.reports_from_ms):
                    yield instance, gap

    def _last_before(self, instance: Instance, gap: Gap, of_server: Iterable[Instance]) -> int:
        """The time (ms) of the last event before `gap` of the server's other instances, else 0."""
        times = [
            each.last_ms
            for other in of_server
            if other != instance
            for each in self.seen[other].sequences.ranges()
            if each.last_ms <= gap.before_ms
        ]
        return max(times, default=0)
