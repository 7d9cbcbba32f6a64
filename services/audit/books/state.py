"""The running service's books in memory: ledger, read positions, delays, and what went wrong.

Readers on several threads bring facts; each call here takes one fact whole, its counts together
with the offset behind them, under one lock, so that whatever a snapshot catches is consistent.
`snapshot` hands the changes to the store, `restore` takes them back when the disk refused.
"""

import threading
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import NamedTuple

from kafka2011.events.errors import EventError
from kafka2011.events.monitoring import Heartbeat, MonitoringEvent, decode_report
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.clock import Clock
from kafka2011.services.audit.books.delays import DelayMeter
from kafka2011.services.audit.books.heartbeats import Beat, Heartbeats, Sender
from kafka2011.services.audit.books.ledger import CELLS_MAX, Cell, CellKey, Horizon, Ledger
from kafka2011.services.audit.books.persistence import changes_of, give_back, take_over
from kafka2011.services.audit.books.read_positions import (
    UNREAD_MAX,
    PartitionKey,
    Position,
    UnreadRange,
)
from kafka2011.services.audit.books.store import AuditStore, Changes
from kafka2011.services.audit.server_filter import IsOurs
from kafka2011.services.audit.verdicts import Progress

NOTES_MAX = 100
NAME_LENGTH_MAX = 255
TIME_MS_MAX = 253_402_300_799_999  # the year 9999
INTERVAL_MAX = 86_400_000  # of heartbeats
COUNT_MAX = 2**53  # of one monitoring event; more is garbage


class TierView(NamedTuple):
    """How one tier's reading stands, for the summary."""

    lag_bytes: int
    partitions: int
    is_caught_up: bool
    progress: Progress


class AuditState:
    """All of it. Every method may be called from any thread."""

    def __init__(
        self,
        tiers: Sequence[str],
        window_ms: int,
        clock: Clock,
        *,
        cells_max: int = CELLS_MAX,
        exempt: Set[tuple[str, str]] = frozenset(),
        ignored: Container[str] = (),
        is_ours: IsOurs | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.ledger = Ledger(tiers, window_ms, cells_max=cells_max, exempt=exempt, is_ours=is_ours)
        self._ignored = ignored
        self.clock = clock
        self.heartbeats = Heartbeats()
        self.delays = {tier: DelayMeter() for tier in tiers}
        self.positions: dict[PartitionKey, Position] = {}
        self.table_versions: dict[str, int] = {}
        self.unread: deque[tuple[int, UnreadRange]] = deque(maxlen=UNREAD_MAX)
        self.unread_count = 0
        self.reports_rejected = 0
        self._notes: dict[str, int] = {}  # text -> when it was last true
        self._discovered_ms = dict.fromkeys(tiers, 0)
        self._away: dict[str, dict[str, str]] = {tier: {} for tier in tiers}
        self._away_brokers: dict[str, set[int]] = {tier: set() for tier in tiers}
        self.dirty_positions: set[PartitionKey] = set()
        self.dirty_versions: set[str] = set()
        self._settled_ms = Horizon().settled_ms
        self.new_unread: list[tuple[int, UnreadRange]] = []

    # --- facts -------------------------------------------------------------------------------

    def position(self, key: PartitionKey) -> int | None:
        """The next offset to read, None for a partition that was never read."""
        with self.lock:
            found = self.positions.get(key)
            return found.next_offset if found else None

    def expect(self, tier: str, topic: str, broker_id: int, partition: int) -> None:
        """A partition is registered: nobody may call the tier read before it is."""
        key = PartitionKey(tier, topic, broker_id, partition)
        with self.lock:
            if key not in self.positions:
                self.begin(key, 0)

    def begin(self, key: PartitionKey, offset: int) -> None:
        """Start reading a partition that was never read at `offset`."""
        with self.lock:
            self.positions[key] = Position(offset)
            self.dirty_positions.add(key)

    def counted(
        self,
        key: PartitionKey,
        counts: Mapping[tuple[int, str], int],
        delays: Mapping[int, int],
        next_offset: int,
    ) -> None:
        """Messages were read up to `next_offset`."""
        with self.lock:
            self.ledger.add_counts(key.tier, key.topic, counts)
            self.delays[key.tier].add(delays, self.clock())
            self._advance(key, next_offset)

    def reported(self, key: PartitionKey, payloads: Iterable[bytes], next_offset: int) -> None:
        """Payloads of the topic `audit` were read up to `next_offset`."""
        events = []
        beats = []
        for payload in payloads:
            try:
                report = decode_report(payload)
                if isinstance(report, Heartbeat):
                    beats.append(_beat(report))
                else:
                    events.append(_checked(report))
            except (EventError, ValueError) as error:
                with self.lock:
                    self.reports_rejected += 1
                self.note(f"{key.tier}: a message in {AUDIT} is no monitoring event: {error}")
        now_ms = self.clock()
        for event in events:
            if self.ledger.window_ms % event.window_ms:
                self.note(
                    f"{event.header.server} counts in windows of {event.window_ms} ms, "
                    f"which do not fit into this audit's of {self.ledger.window_ms} ms"
                )
        with self.lock:
            for server, beat in beats:
                self.heartbeats.add(Sender(key.tier, server), beat)
            for event in events:
                self.ledger.add_report(
                    key.tier,
                    server=event.header.server,
                    instance=event.instance,
                    sequence=event.sequence,
                    counts=[count for count in event.counts if count.topic not in self._ignored],
                    now_ms=now_ms,
                )
            self._advance(key, next_offset)

    def loaded(
        self,
        table: str,
        *,
        tier: str,
        topic: str,
        counts: Mapping[tuple[int, str], int],
        delays: Mapping[int, int],
        version: int,
    ) -> None:
        """A load's commit was read."""
        with self.lock:
            self.ledger.add_counts(tier, topic, counts)
            self.delays[tier].add(delays, self.clock())
            self.table_versions[table] = version
            self.dirty_versions.add(table)

    def versions_read(self, table: str, version: int) -> None:
        """Every commit of the table up to `version` was read."""
        with self.lock:
            self.table_versions[table] = version
            self.dirty_versions.add(table)

    def passed_over(self, key: PartitionKey, first: int, last: int, reason: str) -> None:
        """Bytes from `first` up to `last` cannot be read; reading goes on at `last`."""
        with self.lock:
            self.note_unread(key, first, last, reason)
            self._advance(key, last)

    def note_unread(self, key: PartitionKey, first: int, last: int, reason: str) -> None:
        """Bytes from `first` up to `last` were not readable, inside of what was counted."""
        place = f"{key.broker_id}-{key.partition}"
        with self.lock:
            self._add_unread(
                UnreadRange(self.clock(), key.tier, key.topic, place, first, last, reason)
            )

    def versions_passed_over(
        self, tier: str, table: str, *, first: int, last: int, why: str
    ) -> None:
        """Table versions `first` up to and without `last` are gone."""
        with self.lock:
            self._add_unread(UnreadRange(self.clock(), tier, table, "versions", first, last, why))
            self.table_versions[table] = last - 1
            self.dirty_versions.add(table)

    def _add_unread(self, unread: UnreadRange) -> None:
        self.unread_count += 1
        self.unread.append((self.unread_count, unread))
        self.new_unread.append((self.unread_count, unread))

    def _advance(self, key: PartitionKey, next_offset: int) -> None:
        self.positions[key].next_offset = next_offset
        self.dirty_positions.add(key)

    # --- how the readers are doing -----------------------------------------------------------

    def read_to(self, key: PartitionKey, time_ms: int, lag_bytes: int = 0) -> None:
        """With no lag: everything visible at `time_ms` is counted."""
        with self.lock:
            position = self.positions[key]
            position.trouble = ""
            position.lag_bytes = lag_bytes
            if not lag_bytes:
                position.read_to_ms = time_ms

    def trouble(self, key: PartitionKey, reason: str) -> None:
        """The partition cannot be read at present; the reason is shown until it can."""
        with self.lock:
            self.positions[key].trouble = reason

    def discovered(self, tier: str, time_ms: int) -> None:
        """All topics, brokers and tables that existed at `time_ms` are known to the reader."""
        with self.lock:
            self._discovered_ms[tier] = time_ms

    def away(self, tier: str, who: str, reason: str, broker_id: int | None = None) -> None:
        """`who` (a broker, ZooKeeper) does not answer; what can be said is said without it."""
        with self.lock:
            self._away[tier][who] = reason
            if broker_id is not None:
                self._away_brokers[tier].add(broker_id)

    def back(self, tier: str, who: str, broker_id: int | None = None) -> None:
        with self.lock:
            self._away[tier].pop(who, None)
            if broker_id is not None:
                self._away_brokers[tier].discard(broker_id)

    def note(self, text: str) -> None:
        """Something a person should know; shown with the audit, the newest hundred."""
        with self.lock:
            self._notes.pop(text, None)
            self._notes[text] = self.clock()
            while len(self._notes) > NOTES_MAX:
                del self._notes[next(iter(self._notes))]

    # --- questions ---------------------------------------------------------------------------

    def tier_view(self, tier: str) -> TierView:
        """The reading of a tier's own messages."""
        with self.lock:
            return self._view(
                tier, [k for k in self.positions if k.tier == tier and k.topic != AUDIT]
            )

    def reports_progress(self) -> Progress:
        """The reading of monitoring events, wherever they stand."""
        with self.lock:
            views = [
                self._view(tier, [k for k in self.positions if k.tier == tier and k.topic == AUDIT])
                for tier in self.ledger.tiers
                if tier != "warehouse"
            ]
        if not views:
            return Progress(0, "no brokers with monitoring events are configured")
        return Progress(
            min(view.progress.read_to_ms for view in views),
            "; ".join(view.progress.away for view in views if view.progress.away),
        )

    def _view(self, tier: str, keys: Sequence[PartitionKey]) -> TierView:
        away = self._away[tier]
        absent = self._away_brokers[tier]
        reading = [self.positions[key] for key in keys if key.broker_id not in absent]
        stuck = [position for position in reading if position.trouble]
        flowing = [position for position in reading if not position.trouble]
        reasons = list(away.values())
        if stuck:
            reasons.append(f"{tier}: {len(stuck)} partitions cannot be read: {stuck[0].trouble}")
        times = [position.read_to_ms for position in flowing]
        if "ZooKeeper" not in away:
            times.append(self._discovered_ms[tier])
        read_to_ms = min(times, default=self._discovered_ms[tier])
        return TierView(
            sum(position.lag_bytes for position in reading),
            len(keys),
            read_to_ms > 0 and not any(position.lag_bytes for position in reading),
            Progress(read_to_ms, "; ".join(reasons)),
        )

    def silent(self) -> list[tuple[Sender, int]]:
        """Who has not been heard for too long: (sender, since when, ms), the longest first."""
        with self.lock:
            found: list[tuple[Sender, int]] = []
            for tier in {sender.tier for sender in self.heartbeats.beats}:
                keys = [k for k in self.positions if k.tier == tier and k.topic == AUDIT]
                read_to_ms = self._view(tier, keys).progress.read_to_ms
                found += self.heartbeats.silent(tier, read_to_ms)
            return sorted(found, key=lambda each: each[1])

    def notes(self) -> list[str]:
        """What a person should know, the standing matters first."""
        with self.lock:
            found = [reason for away in self._away.values() for reason in away.values()]
            found += [
                f"{sender.server} ({sender.tier}) is silent since {_utc(since_ms)}"
                for sender, since_ms in self.silent()[:NOTES_MAX]
            ]
            found += [
                f"{key.tier} {key.topic} {key.broker_id}-{key.partition}: {position.trouble}"
                for key, position in self.positions.items()
                if position.trouble
            ][:NOTES_MAX]
            for count, (instance, (first, last)) in enumerate(self.ledger.report_gaps()):
                if count >= NOTES_MAX:
                    found.append("... and more monitoring events that have not been read")
                    break
                which = f"{first}" if first == last else f"{first} to {last}"
                found.append(
                    f"monitoring events {which} of {instance.server} ({instance.instance}) "
                    "have not been read: the produced number is too small"
                )
            return found + list(self._notes)

    # --- the store ---------------------------------------------------------------------------

    def load(self, store: AuditStore) -> None:
        """Take over what an earlier run stored. Call once, before anything else."""
        take_over(self, store)

    def snapshot(self) -> Changes:
        """Everything that changed since the last snapshot, as it is now."""
        with self.lock:
            return changes_of(self)

    def restore(self, changes: Changes) -> None:
        """The store could not take `changes`: let the next snapshot hold them again."""
        with self.lock:
            give_back(self, changes)

    def fold(self, before_ms: int, instances_before_ms: int) -> None:
        with self.lock:
            self.ledger.fold(before_ms)
            self.ledger.forget_instances(instances_before_ms)
            self.heartbeats.forget(instances_before_ms)

    def make_room(self, lateness_ms: int, excused_ms: int) -> None:
        """Fold judged windows where there are too many; see `Ledger.make_room`.

        `lateness_ms`: the longest of any tier. Where somebody is away no more windows count as
        judged than before, for what it has may still come.
        """
        with self.lock:
            progress = [self.tier_view(tier).progress for tier in self.ledger.tiers]
            progress.append(self.reports_progress())
            if not any(each.away for each in progress):
                read_to_ms = min(self.clock(), *(each.read_to_ms for each in progress))
                self._settled_ms = read_to_ms - self.ledger.window_ms - lateness_ms
            self.ledger.make_room(Horizon(self._settled_ms, excused_ms))

    def cells(self) -> dict[CellKey, Cell]:
        """A copy of the open cells."""
        with self.lock:
            return {
                key: Cell(cell.produced.copy(), cell.counted.copy())
                for key, cell in self.ledger.cells.items()
            }


def _utc(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _beat(report: Heartbeat) -> tuple[str, Beat]:
    """Raises ValueError for numbers that no producer writes."""
    if not 0 <= report.header.time_ms <= TIME_MS_MAX or not 0 < report.interval_ms <= INTERVAL_MAX:
        raise ValueError("time or interval of a heartbeat out of range")
    beat = Beat(report.header.time_ms, report.interval_ms, report.is_last)
    return report.header.server, beat


def _checked(event: MonitoringEvent) -> MonitoringEvent:
    """Raises ValueError for numbers and names that no producer writes."""
    if event.sequence < 0 or event.window_ms <= 0 or len(event.instance) > NAME_LENGTH_MAX:
        raise ValueError("sequence, window or instance out of range")
    for count in event.counts:
        if not 0 <= count.count <= COUNT_MAX or not 0 <= count.bytes <= 2**62:
            raise ValueError(f"a count of {count.count} in {count.bytes} bytes")
        if count.window_start < 0 or len(count.topic) > NAME_LENGTH_MAX:
            raise ValueError("a window before 1970, or a topic that cannot be")
    return event
