"""How far each tier has been read: what verdicts are made from besides the counts.

Offsets and times up to which partitions are read, versions of the warehouse's tables, what is
unreachable at present, and the ranges that could not be read. Pure and not thread-safe;
`state.AuditState` owns one `ReadProgress` and locks.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka2011.consumer.log_tail import Tail
from kafka2011.consumer.tools.lag_rules import total_lag
from kafka2011.events.retention import SLACK_MS
from kafka2011.events.topics import AUDIT

UNREAD_MAX = 1000
WAREHOUSE = "warehouse"
ZOOKEEPER = "ZooKeeper"
TABLE_VERSIONS = "versions"  # the place of an unread range of a table's versions
TABLE = "table"  # the place of one that stands for a table that was replaced
_ALL_MS = 2**63
DELETED_UNREAD = "deleted by the broker before the audit read it"
DELETED_FROM_START = "deleted by the broker before the audit read any of the log"
LOST = "lost: "  # the reason of what an unclean election cut begins with it


class PartitionKey(NamedTuple):
    """One partition of one tier's brokers."""

    tier: str
    topic: str
    broker_id: int
    partition: int

    @property
    def place(self) -> str:
        """`1-0`: broker and partition."""
        return f"{self.broker_id}-{self.partition}"


@dataclass(slots=True)
class ReadPosition:
    """How far a partition is read. `tail`: what stands there, None where that is not known.

    `read_to_ms`: all messages visible at that time (ms since the epoch) have been counted.
    `lag_bytes`: what was left at the last look at the log's end; None before the first one.
    `trouble`: why it cannot be read at present, empty when it can.
    """

    next_offset: int
    read_to_ms: int = 0
    lag_bytes: int | None = None
    trouble: str = ""
    tail: Tail | None = None


class UnreadRange(NamedTuple):
    """Bytes (or table versions) from `first` up to `last` that were skipped unread."""

    time_ms: int
    tier: str
    topic: str
    place: str
    first: int
    last: int
    reason: str


class TableMark(NamedTuple):
    """By which a table is known again: the digest of the commit of a version that was read.
    `topics`: those loaded into it."""

    version: int
    digest: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What was counted of a topic's windows that began at `until_ms` or before (ms since the epoch)
    may be too low; `is_any`: it says nothing of what is there. `of_reports`: what was reported may
    be."""

    until_ms: int
    reason: str
    is_any: bool = False
    of_reports: bool = False


@dataclass(frozen=True, slots=True)
class Election:
    """An unclean election of a replica set at `at_ms` (ms since the epoch): what its partitions
    held beyond `ends` is lost there."""

    epoch: int
    at_ms: int
    ends: Mapping[PartitionKey, int]
    reason: str


@dataclass(frozen=True, slots=True)
class TierProgress:
    """How far one tier has been read.

    `read_to_ms`: every message visible at that time (ms since the epoch) on the brokers that
    answer has been counted. `unreachable`: what does not answer, in words; empty when all do;
    `whole_to_ms`: as `read_to_ms`, for all brokers, including those that no longer answer;
    `answered_to_ms`: what `read_to_ms` was when the last of them still did.
    `lag_bytes`: not read yet; None while that is not known of some partition.
    `loss`: the unclean election of a replica set by which messages of the tier were lost.
    """

    read_to_ms: int
    unreachable: str = ""
    lag_bytes: int | None = None
    partitions: int = 0
    is_caught_up: bool = False
    loss: str = ""
    whole_to_ms: int = 0
    answered_to_ms: int = 0


class ReadProgress:
    """The progress of all tiers, and which of it changed since it was last stored."""

    def __init__(self, tiers: Sequence[str]) -> None:
        self._tiers = tuple(tiers)
        self.positions: dict[PartitionKey, ReadPosition] = {}
        self.table_versions: dict[str, int] = {}
        self.table_marks: dict[str, TableMark] = {}  # by the table's directory
        self.dirty_marks: set[str] = set()
        self.absent_tables: dict[tuple[str, str], str] = {}  # (tier, topic) -> reason, at present
        self.damaged_tables: dict[tuple[str, str], str] = {}  # the same; what was read stays read
        self.unread: deque[tuple[int, UnreadRange]] = deque()
        self.lost: deque[tuple[int, UnreadRange]] = deque()  # logs that began anew, kept longer
        self.unread_count = 0
        # (tier, topic) -> the newest unread range with messages that may be there, and be whole
        self._not_counted: dict[tuple[str, str], UnreadRange] = {}
        self._replaced: dict[tuple[str, str], UnreadRange] = {}  # the newest table that was
        self._discovered_ms = dict.fromkeys(tiers, 0)
        self._unreachable: dict[str, dict[str, str]] = {tier: {} for tier in tiers}
        self._unreachable_brokers: dict[str, set[int]] = {tier: set() for tier in tiers}
        self._answered_to_ms = dict.fromkeys(tiers, 0)  # of the tier's messages
        self.dirty_positions: set[PartitionKey] = set()
        self.dirty_versions: set[str] = set()
        self.new_unread: list[tuple[int, UnreadRange]] = []
        self.gone_unread: list[int] = []  # numbers of those that are not kept any more
        self.elections: dict[str, Election] = {}  # tier -> the newest unclean one there

    def begin(self, key: PartitionKey, offset: int) -> None:
        """Start at `offset` in a partition that was never read."""
        self.positions[key] = ReadPosition(offset)
        self.dirty_positions.add(key)

    def advance(self, key: PartitionKey, next_offset: int, tail: Tail | None = None) -> None:
        position = self.positions[key]
        position.next_offset, position.tail = next_offset, tail
        self.dirty_positions.add(key)

    def set_read_to(self, key: PartitionKey, time_ms: int, lag_bytes: int) -> None:
        """Set a partition's lag at `time_ms`; 0: everything visible then is counted."""
        position = self.positions[key]
        position.trouble = ""
        position.lag_bytes = lag_bytes
        if not lag_bytes:
            position.read_to_ms = time_ms

    def clamp(self, now_ms: int) -> None:
        """Take moments on record later than `now_ms` for that moment."""
        for position in self.positions.values():
            position.read_to_ms = min(position.read_to_ms, now_ms)
        for tier, time_ms in self._discovered_ms.items():
            self._discovered_ms[tier] = min(time_ms, now_ms)

    def advance_table(self, table: str, version: int) -> None:
        self.table_versions[table] = version
        self.dirty_versions.add(table)

    def mark_table(self, table: str, mark: TableMark) -> None:
        self.table_marks[table] = mark
        self.dirty_marks.add(table)

    def new_elections(
        self, tier: str, broker_id: int, elections: Sequence[Election]
    ) -> list[Election]:
        """Enter a set's elections in the books; returns those that were not there."""
        # Books of earlier versions have the highest epoch, of the set that there is now.
        earlier = f"unclean elections of {tier} broker {broker_id}"
        entered = self.table_versions.get(earlier, 0)
        if entered:
            self.advance_table(earlier, 0)
        new = []
        for election in elections:
            newest = self.elections.get(tier)
            if newest is None or newest.at_ms <= election.at_ms:
                self.elections[tier] = election
            # The epochs of a set that is made anew begin again; the time tells them apart.
            name = f"unclean election of {tier} broker {broker_id} in epoch {election.epoch}"
            if self.table_versions.get(name) != election.at_ms:
                self.advance_table(name, election.at_ms)
                if election.epoch > entered:
                    new.append(election)
        return new

    def read_until(self, tier: str, broker_id: int, time_ms: int) -> list[PartitionKey]:
        """The broker's partitions that were last read to their end at `time_ms` or before."""
        return [
            key
            for key, position in self.positions.items()
            if (key.tier, key.broker_id) == (tier, broker_id) and position.read_to_ms <= time_ms
        ]

    def add_unread(self, unread: UnreadRange) -> None:
        self.keep_unread(self.unread_count + 1, unread)
        self.new_unread.append((self.unread_count, unread))

    def lengthen_unread(self, unread: UnreadRange) -> None:
        """Add `unread`, or lengthen the range of the same topic, place and reason up to its end:
        of many loads there is one range."""
        for at, (number, known) in enumerate(self.unread):
            if known[1:4] == unread[1:4] and known.reason == unread.reason:
                longer = known._replace(time_ms=unread.time_ms, last=unread.last)
                self.unread[at] = number, longer
                self.new_unread.append((number, longer))
                self._not_counted[unread.tier, unread.topic] = longer
                return
        self.add_unread(unread)

    def keep_unread(self, number: int, unread: UnreadRange) -> None:
        """Keep the `number`th range since the books began, and the newest of each kind: a lost log
        stays in the verdict however many other ranges follow."""
        self.unread_count = number
        # What a log had lost before the books began is another case: `Retained` knows until when.
        is_of_now = unread.reason == DELETED_FROM_START or (
            unread.reason == DELETED_UNREAD and unread.first > 0
        )
        if is_of_now or unread.place == TABLE_VERSIONS:
            self._not_counted[unread.tier, unread.topic] = unread
        if unread.place == TABLE:
            self._replaced[unread.tier, unread.topic] = unread
        kind = self.lost if unread.last < unread.first else self.unread
        kind.append((number, unread))
        if len(kind) > UNREAD_MAX:
            self.gone_unread.append(kind.popleft()[0])

    def newest_unread(self, count: int) -> list[UnreadRange]:
        """The newest `count` ranges of both kinds, oldest first."""
        return [unread for _, unread in sorted([*self.unread, *self.lost])[-count:]]

    def set_discovered(self, tier: str, time_ms: int) -> None:
        self._discovered_ms[tier] = time_ms

    def is_discovered(self, tier: str) -> bool:
        """Whether the reader of the tier has looked for partitions since the service started."""
        return self._discovered_ms[tier] > 0

    def set_unreachable(
        self, tier: str, source: str, reason: str, broker_id: int | None = None
    ) -> None:
        if not self._unreachable[tier]:
            now = self.of_messages(tier)
            self._answered_to_ms[tier] = 0 if now.unreachable else now.read_to_ms
        self._unreachable[tier][source] = reason
        if broker_id is not None:
            self._unreachable_brokers[tier].add(broker_id)

    def set_reachable(self, tier: str, source: str, broker_id: int | None = None) -> None:
        self._unreachable[tier].pop(source, None)
        if broker_id is not None:
            self._unreachable_brokers[tier].discard(broker_id)

    def unreachable_reasons(self) -> list[str]:
        """One line for each source of any tier that does not answer."""
        return [reason for found in self._unreachable.values() for reason in found.values()]

    def troubles(self) -> list[str]:
        """One line for each partition and table that cannot be read."""
        return [
            f"{key.tier} {key.topic} {key.place}: {position.trouble}"
            for key, position in self.positions.items()
            if position.trouble
        ] + [f"{tier} {topic}: {why}" for (tier, topic), why in self.damaged_tables.items()]

    def ends(self) -> dict[PartitionKey, int]:
        """How far each partition of messages is read."""
        return {k: p.next_offset for k, p in self.positions.items() if k.topic != AUDIT}

    def doubts(self) -> dict[tuple[str, str], list[Doubt]]:
        """By tier and topic: what was not counted there and may be there all the same, so that what
        lacks is not known to be missing; and tables that are not those that were counted. Of topic
        `audit`: reports that were not counted, so that what is too much may have been reported."""
        found: dict[tuple[str, str], list[Doubt]] = {}
        for name, reason in self.absent_tables.items():
            found.setdefault(name, []).append(Doubt(_ALL_MS, reason, is_any=True))
        for name, reason in self.damaged_tables.items():
            found.setdefault(name, []).append(Doubt(_ALL_MS, reason))
        for name, unread in self._replaced.items():
            until_ms = unread.time_ms + SLACK_MS
            found.setdefault(name, []).append(Doubt(until_ms, unread.reason, is_any=True))
        for name, unread in self._not_counted.items():
            of_reports = unread.topic == AUDIT
            reason = f"not all {'reports were' if of_reports else 'was'} read: {unread.reason}"
            doubt = Doubt(unread.time_ms + SLACK_MS, reason, of_reports=of_reports)
            found.setdefault(name, []).append(doubt)
        return found

    def lost_logs(self) -> list[UnreadRange]:
        """Logs that began anew: what stood beyond the last offset read is not known. So are tables
        that were replaced, or are not there at present."""
        absent = [
            UnreadRange(0, tier, topic, TABLE, 0, -1, reason)
            for (tier, topic), reason in self.absent_tables.items()
        ]
        return [unread for _, unread in self.lost] + absent

    def of_messages(self, tier: str) -> TierProgress:
        """How far a tier's own messages are read."""
        return self._of(tier, [k for k in self.positions if k.tier == tier and k.topic != AUDIT])

    def lags_bytes(self) -> dict[str, dict[str, int]]:
        """topic -> tier -> bytes not read yet, where there are any."""
        found: dict[str, dict[str, int]] = {}
        for key, position in self.positions.items():
            if position.lag_bytes:
                of_topic = found.setdefault(key.topic, {})
                of_topic[key.tier] = of_topic.get(key.tier, 0) + position.lag_bytes
        return found

    def of_reports(self, tier: str) -> TierProgress:
        """How far the monitoring events at a tier are read."""
        return self._of(tier, [k for k in self.positions if k.tier == tier and k.topic == AUDIT])

    def of_all_reports(self) -> TierProgress:
        """How far the monitoring events at all tiers are read."""
        found = [self.of_reports(tier) for tier in self._tiers if tier != WAREHOUSE]
        if not found:
            return TierProgress(0, "no brokers with monitoring events are configured")
        return TierProgress(
            min(each.read_to_ms for each in found),
            "; ".join(each.unreachable for each in found if each.unreachable),
            lag_bytes=total_lag(each.lag_bytes for each in found),
            partitions=sum(each.partitions for each in found),
            is_caught_up=all(each.is_caught_up for each in found),
            whole_to_ms=min(each.whole_to_ms for each in found),
        )

    def _of(self, tier: str, keys: Collection[PartitionKey]) -> TierProgress:
        unreachable = self._unreachable[tier]
        absent = self._unreachable_brokers[tier]
        reading = [self.positions[key] for key in keys if key.broker_id not in absent]
        stuck = [position for position in reading if position.trouble]
        reasons = list(unreachable.values())
        if stuck:
            reasons.append(f"{tier}: {len(stuck)} partitions cannot be read: {stuck[0].trouble}")
        times = [position.read_to_ms for position in reading if not position.trouble]
        if ZOOKEEPER not in unreachable:
            times.append(self._discovered_ms[tier])
        read_to_ms = min(times, default=self._discovered_ms[tier])
        answered_to_ms = self._answered_to_ms[tier] if unreachable else 0
        if not reasons:
            answered_to_ms = read_to_ms
        lags = [position.lag_bytes for position in reading]
        if reasons or not self._discovered_ms[tier]:
            lags.append(None)  # of what is away, or was not found yet
        return TierProgress(
            read_to_ms,
            "; ".join(reasons),
            lag_bytes=total_lag(lags),
            partitions=len(keys),
            is_caught_up=read_to_ms > 0 and not any(position.lag_bytes for position in reading),
            loss=self.elections[tier].reason if tier in self.elections else "",
            whole_to_ms=min(
                [self._discovered_ms[tier], *(self.positions[key].read_to_ms for key in keys)]
            ),
            answered_to_ms=answered_to_ms,
        )
