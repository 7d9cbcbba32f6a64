"""The running service's books in memory: ledger, read progress, reports, delays and notes.

Readers on several threads add what they read; each call here takes one whole read, its counts
together with the offset after them, under one lock, so that a snapshot is always consistent.
persistence.py carries the changes to the store.
"""

import itertools
import math
import threading
from collections.abc import Container, Iterable, Mapping, Sequence, Set

from kafka2011.consumer.log_tail import Tail
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.runtime.clock import Clock, utc_text
from kafka2011.services.audit.books.delays import DelayMeter
from kafka2011.services.audit.books.ledger import CELLS_MAX, Cell, CellKey, FoldLimits, Ledger
from kafka2011.services.audit.books.operator_notes import NOTES_MAX, Notes
from kafka2011.services.audit.books.passage import (
    Backlog,
    Passage,
    Passages,
    TopicWindow,
    deleted_notes,
)
from kafka2011.services.audit.books.progress import (
    DELETED_FROM_START,
    DELETED_UNREAD,
    LOST,
    TABLE,
    TABLE_VERSIONS,
    WAREHOUSE,
    Election,
    PartitionKey,
    ReadProgress,
    TableMark,
    TierProgress,
    UnreadRange,
)
from kafka2011.services.audit.books.reports import Reports
from kafka2011.services.audit.server_filter import IsOurs


class AuditState:
    """The books of all tiers. Every method may be called from any thread."""

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
        self.progress = ReadProgress(tiers)
        self.passages = Passages(tiers)
        self.clock = clock
        self.reports = Reports(
            self.ledger,
            self.progress,
            self.lock,
            clock=clock,
            now=self.now,
            note=self.note,
            ignored=ignored,
        )
        self.delays = {tier: DelayMeter() for tier in tiers}
        self.remarks = Notes()
        self._deleted_notes: dict[tuple[str, str], str] = {}  # the newest, by tier and topic
        self._settled_ms = FoldLimits().settled_ms
        self._started_ms = clock()
        self.began_ms = clock()  # when the books began; `restore_beginning` sets that of older ones
        self._is_new = True
        # Of partitions of which nothing was read yet: windows that began before that time (ms
        # since the epoch) are not audited if their beginning turns out to be deleted.
        self._cut_limits_ms: dict[PartitionKey, float] = {}
        self._latest_ms = self._started_ms

    def now(self) -> int:
        """The present, ms since the epoch. Where the clock has gone back, the moments on record
        that lie ahead of it are of now: else the books would wait until it is there again."""
        with self.lock:
            now_ms = self.clock()
            if now_ms < self._latest_ms:
                self.clamp(now_ms)
            self._latest_ms = now_ms
            return now_ms

    def clamp(self, now_ms: int) -> None:
        """Take moments on record later than `now_ms` for that moment."""
        with self.lock:
            self._started_ms = min(self._started_ms, now_ms)
            self.began_ms = min(self.began_ms, now_ms)
            self._settled_ms = min(self._settled_ms, now_ms - self.ledger.window_ms)
            self.ledger.clamp(now_ms)
            self.passages.clamp(now_ms)
            self.progress.clamp(now_ms)
            self.reports.heartbeats.clamp(now_ms)

    # --- what was read -----------------------------------------------------------------------

    def position(self, key: PartitionKey) -> int | None:
        """The next offset to read, None for a partition that was never read."""
        with self.lock:
            found = self.progress.positions.get(key)
            return found.next_offset if found else None

    def tail(self, key: PartitionKey) -> Tail | None:
        """What was read before the next offset, None where that is not known."""
        with self.lock:
            found = self.progress.positions.get(key)
            return found.tail if found else None

    def expect(self, tier: str, topic: str, broker_id: int, partition: int) -> None:
        """Note a registered partition: the tier is not caught up before it is read."""
        key = PartitionKey(tier, topic, broker_id, partition)
        with self.lock:
            if key not in self.progress.positions:
                self.begin(key, 0)

    def begin(self, key: PartitionKey, offset: int) -> None:
        """Start reading at `offset` in a partition that was never read."""
        with self.lock:
            self.progress.begin(key, offset)
            self._cut_limits_ms[key] = self._cut_limit_ms(key.tier)

    def _cut_limit_ms(self, tier: str) -> float:
        """Up to when retention may have deleted what a partition found now lacks before the audit
        began, ms since the epoch; 0: not at all, and what it lacks is unread.

        What the first look at new books' tier finds was there before. Brokers that start beside
        the audit come a moment later: they excuse nothing that is newer than the books. One that
        comes later still excuses nothing: all may have been judged by then.
        """
        if self._is_new and not self.progress.is_discovered(tier):
            return math.inf
        return self.began_ms if self.clock() - self.began_ms <= GAP_WAIT_MS else 0

    def restore_beginning(self, began_ms: int) -> None:
        """Note that the books were begun by an earlier run at `began_ms` (0: not known)."""
        with self.lock:
            self._is_new = False
            self.began_ms = began_ms
            unread = [key for key, at in self.progress.positions.items() if not at.next_offset]
            self._cut_limits_ms = dict.fromkeys(unread, began_ms)

    def add_messages(
        self,
        key: PartitionKey,
        counts: Mapping[tuple[int, str], int],
        delays: Mapping[int, int],
        next_offset: int,
        tail: Tail | None = None,
    ) -> None:
        """Add messages read up to `next_offset`, where `tail` stands."""
        with self.lock:
            now_ms = self.now()
            self.ledger.add_counts(key.tier, key.topic, counts, now_ms)
            self._add_delays(key.tier, delays)
            self.passages.counted(
                key,
                {window_start_ms for window_start_ms, _ in counts},
                self.progress.positions[key].next_offset,
                next_offset,
                now_ms,
            )
            self.progress.advance(key, next_offset, tail)

    def is_without_beginning(self, key: PartitionKey) -> bool:
        """Whether the partition's oldest messages were deleted, and none was read since: then call
        `begins` with the times of the first."""
        with self.lock:
            return self.ledger.retained.is_waiting(key)

    def begins(self, key: PartitionKey, times_ms: Sequence[int]) -> None:
        """Note the times (ms since the epoch) of the first messages read in a partition without its
        beginning."""
        with self.lock:
            self.ledger.retained.begins(key, times_ms)

    def add_load(
        self,
        table: str,
        *,
        tier: str,
        topic: str,
        counts: Mapping[tuple[int, str], int],
        delays: Mapping[int, int],
        version: int,
        offsets: Mapping[BrokerPartition, int] = {},
    ) -> None:
        """Add the counts of a load's commit; `offsets` are its partitions' next offsets."""
        with self.lock:
            self.ledger.add_counts(tier, topic, counts, self.now())
            self._add_delays(tier, delays)
            self.confirm(tier, topic, offsets, 0)
            self.progress.advance_table(table, version)

    def _add_delays(self, tier: str, delays: Mapping[int, int]) -> None:
        """Add delays, except those of messages made before the service started: they include its
        pause."""
        now_ms = self.clock()
        age_ms = now_ms - self._started_ms
        self.delays[tier].add({d: n for d, n in delays.items() if d <= age_ms}, now_ms)

    def advance_table(self, table: str, version: int) -> None:
        """Note that every commit of the table up to `version` was read."""
        with self.lock:
            self.progress.advance_table(table, version)

    def skip(self, key: PartitionKey, first: int, last: int, reason: str) -> None:
        """Skip bytes from `first` up to `last` that cannot be read; reading continues at `last`."""
        with self.lock:
            limit_ms = self._cut_limits_ms.pop(key, 0)  # a log is first met once
            if reason == DELETED_UNREAD and not first and limit_ms < self.clock():
                reason = DELETED_FROM_START  # there was some of it, or all, after the books began
            self.note_unread(key, first, last, reason)
            self.progress.advance(key, last)
            if last < first:
                self.passages.replace(key, first)
            elif not first and limit_ms:
                self.ledger.retained.cut(key, int(min(self.clock(), limit_ms)))

    def note_unread(self, key: PartitionKey, first: int, last: int, reason: str) -> None:
        """Note that bytes from `first` up to `last`, within what was counted, were not readable."""
        with self.lock:
            self.progress.add_unread(
                UnreadRange(self.clock(), key.tier, key.topic, key.place, first, last, reason)
            )

    def skip_versions(
        self, tier: str, table: str, topics: Iterable[str], *, first: int, last: int, why: str
    ) -> None:
        """Skip the versions of a table of `topics` from `first` up to, not including, `last`: they
        are gone."""
        with self.lock:
            for topic in topics:
                unread = UnreadRange(self.clock(), tier, topic, TABLE_VERSIONS, first, last, why)
                self.progress.add_unread(unread)
            self.progress.advance_table(table, last - 1)

    def skip_load(self, tier: str, topic: str, version: int, why: str) -> None:
        """Note that the load of a table's version cannot be counted."""
        with self.lock:
            self.progress.lengthen_unread(
                UnreadRange(self.clock(), tier, topic, TABLE_VERSIONS, version, version + 1, why)
            )

    def mark_table(self, table: str, mark: TableMark) -> None:
        """Note by what the table is known again."""
        with self.lock:
            self.progress.mark_table(table, mark)

    def replace_table(
        self, tier: str, table: str, topics: Iterable[str], *, seen: int, newest: int
    ) -> None:
        """Note that another table stands in place of one that was read up to version `seen`;
        reading continues behind its version `newest`."""
        why = (
            f"table {table} is another than was read up to version {seen} (restored, or made "
            "anew): what it has of windows up to then is not known until the audit has fresh books "
            "(another data.dir)"
        )
        with self.lock:
            for topic in topics:
                self.progress.add_unread(
                    UnreadRange(self.clock(), tier, topic, TABLE, seen, -1, why)
                )
            self.progress.advance_table(table, newest)

    def set_absent(
        self, tier: str, tables: Mapping[str, str], damaged: Mapping[str, str] = {}
    ) -> None:
        """Set which topics' tables were read and are not there now, or are damaged, and why."""
        with self.lock:
            self.progress.absent_tables = {(tier, each): why for each, why in tables.items()}
            self.progress.damaged_tables = {(tier, each): why for each, why in damaged.items()}

    def confirm(
        self, tier: str, topic: str, offsets: Mapping[BrokerPartition, int], asked_ms: int
    ) -> None:
        """Note that `tier` has taken what stands below `offsets` in partitions of the tier before.

        It said so when asked at `asked_ms` (ms since the epoch); 0: all of that is counted.
        """
        with self.lock:
            source, now_ms = self.ledger.tier_before(tier), self.now()
            if source is not None:
                for partition, offset in offsets.items():
                    key = PartitionKey(source, topic, *partition)
                    self.passages.confirm(key, offset, min(asked_ms, now_ms), now_ms)

    def asked(self, tier: str, asked_ms: int, keys: Iterable[PartitionKey] | None = None) -> None:
        """Note that `tier` was asked at `asked_ms` (ms since the epoch) how far it has come in
        these partitions of the tier before (None: in all), and that `confirm` has each answer."""
        with self.lock:
            source, now_ms = self.ledger.tier_before(tier), self.now()
            if source is not None:
                silent = {*self.progress.absent_tables, *self.progress.damaged_tables}
                keys = self.unconfirmed(source) if keys is None else keys
                answered = [key for key in keys if (tier, key.topic) not in silent]
                self.passages.asked(answered, min(asked_ms, now_ms))

    def set_earliest(self, key: PartitionKey, offset: int) -> None:
        """Note that the partition's log begins at `offset`."""
        with self.lock:
            self.passages.set_earliest(key, offset, self.now())

    def unconfirmed(self, source_tier: str) -> list[PartitionKey]:
        """Partitions of a tier that are read further than the next tier has confirmed."""
        with self.lock:
            return self.passages.unconfirmed(source_tier, self.progress.ends())

    def add_elections(self, tier: str, broker_id: int, elections: Sequence[Election]) -> bool:
        """Enter a set's unclean elections: what was read beyond their ends is lost there, and
        reading goes on at the ends. Acts once for each; returns whether one was new."""
        with self.lock:
            for election in elections:
                self.note(f"{tier} broker {broker_id}: {election.reason}")
            new = self.progress.new_elections(tier, broker_id, elections)
            for election in new:
                # The elected copy may not have a partition at all.
                known = self.progress.read_until(tier, broker_id, election.at_ms)
                for key, end in (dict.fromkeys(known, 0) | dict(election.ends)).items():
                    position = self.progress.positions.get(key)
                    if position is not None and position.next_offset > end:
                        self.note_unread(key, end, position.next_offset, LOST + election.reason)
                        self.passages.cut(key, end, position.next_offset)
                        self.progress.advance(key, end)
                        self._cut_limits_ms.pop(key, None)
            return bool(new)

    def elections(self) -> dict[str, Election]:
        """The newest unclean election at each tier that had one."""
        with self.lock:
            return dict(self.progress.elections)

    # --- progress of the readers -------------------------------------------------------------

    def set_read_to(self, key: PartitionKey, time_ms: int, lag_bytes: int = 0) -> None:
        """Set a partition's lag at `time_ms`; 0: everything visible then is counted."""
        with self.lock:
            self.progress.set_read_to(key, time_ms, lag_bytes)

    def set_trouble(self, key: PartitionKey, reason: str) -> None:
        """Note that the partition cannot be read; the reason is shown until it can."""
        with self.lock:
            self.progress.positions[key].trouble = reason

    def set_discovered(self, tier: str, time_ms: int) -> None:
        """Note that the reader knows all topics, brokers and tables that existed at `time_ms`."""
        with self.lock:
            self.progress.set_discovered(tier, time_ms)

    def set_unreachable(
        self, tier: str, source: str, reason: str, broker_id: int | None = None
    ) -> None:
        """Note that `source` (a broker, ZooKeeper) does not answer; verdicts do without it."""
        with self.lock:
            self.progress.set_unreachable(tier, source, reason, broker_id)

    def set_reachable(self, tier: str, source: str, broker_id: int | None = None) -> None:
        """Note that `source` answers again."""
        with self.lock:
            self.progress.set_reachable(tier, source, broker_id)

    def note(self, text: str, *, is_kept: bool = False, instead_of: str = "") -> None:
        """Add a line for the operator, shown with the audit, as in `Notes.add`."""
        with self.lock:
            self.remarks.add(text, is_kept=is_kept, instead_of=instead_of)

    # --- views -------------------------------------------------------------------------------

    def progress_of(self, tier: str) -> TierProgress:
        """How far a tier's own messages are read."""
        with self.lock:
            return self.progress.of_messages(tier)

    def read_to_ms(self) -> int:
        """Up to when all on the brokers that answer is read, ms since the epoch."""
        with self.lock:
            tiers = [self.progress_of(tier) for tier in self.ledger.tiers]
            return min(each.read_to_ms for each in (*tiers, self.reports.progress()))

    def registered(self) -> frozenset[tuple[str, str]]:
        """The tiers and topics of which the audit knows a partition."""
        with self.lock:
            return frozenset((key.tier, key.topic) for key in self.progress.positions)

    def unregistered(self, cells: Mapping[CellKey, Cell]) -> set[TopicWindow]:
        """Windows of the cells that lack messages at a tier where no partition of the topic is
        known: it may be registered yet."""
        registered = self.registered()
        brokers = [tier for tier in self.ledger.tiers if tier != WAREHOUSE]
        absent = {
            topic: indices
            for topic in {key.topic for key in cells}
            if (indices := [n for n, b in enumerate(brokers) if (b, topic) not in registered])
        }
        return {
            TopicWindow(key.topic, key.window_start_ms)
            for key, cell in (cells.items() if absent else ())
            if key.topic in absent
            and any(cell.expected[n] > cell.counted[n] for n in absent[key.topic])
        }

    def unfollowed(self, tier: str) -> frozenset[str]:
        """Topics whose messages arrive at the tier from the one before, of which the tier has not
        said for GAP_WAIT_MS how far it has come."""
        with self.lock:
            source = self.ledger.tier_before(tier)
            if source is None:
                return frozenset()
            topics = self.passages.never_confirmed(source, self.clock() - GAP_WAIT_MS)
            if topics:  # those that come there at all
                topics &= {key.topic for key in self.progress.positions if key.tier == tier}
            if not topics:
                return frozenset()
            index = self.ledger.tiers.index(tier)
            return frozenset(
                key.topic
                for key, cell in self.ledger.cells.items()
                if key.topic in topics and cell.counted[index] > cell.produced[index]
            )

    def passages_of(self, window: TopicWindow) -> list[Passage]:
        """How far each tier has taken a topic's window from the tier before it."""
        with self.lock:
            found = [self.passages.of(tier, window) for tier in self.ledger.tiers[:-1]]
            return [Passage.PASSED, *found]

    def backlog(self, source_tier: str, reported: Container[str]) -> Backlog:
        """What the tier behind `source_tier` has not confirmed of what is read there, of the topics
        `reported` that must reach it: others may never come."""
        with self.lock:
            tier, exempt = self.ledger.tier_behind(source_tier), self.ledger.exempt
            ends = {
                key: end
                for key, end in self.progress.ends().items()
                if key.topic in reported and (tier, key.topic) not in exempt
            }
            return self.passages.backlog(source_tier, ends)

    def notes(self) -> list[str]:
        """Lines for the operator, those about present conditions first."""
        with self.lock:
            found = self.progress.unreachable_reasons()
            found += [
                f"{sender.server} (it writes to {sender.tier}) has been silent since "
                f"{utc_text(since_ms)}"
                for sender, since_ms in self.reports.silent()[:NOTES_MAX]
            ]
            found += self.progress.troubles()[:NOTES_MAX]
            found += self.passages.outlived()[:NOTES_MAX]
            found += self.ledger.retained.notes()[:NOTES_MAX]
            return found + self.remarks.texts()

    def cells(self, windows: Iterable[int] | None = None) -> dict[CellKey, Cell]:
        """A copy of the open cells of the windows with these starts; None: of all windows."""
        with self.lock:
            ledger = self.ledger
            windows = ledger.windows if windows is None else windows
            return {
                key: Cell(
                    cell.produced.copy(),
                    cell.counted.copy(),
                    cell.counted_ms.copy(),
                    cell.reported_ms,
                )
                for start_ms in windows
                for key in ledger.windows[start_ms].keys
                if (cell := ledger.cells[key])
            }

    # --- bounds ------------------------------------------------------------------------------

    def fold(self, before_ms: int, instances_before_ms: int) -> None:
        """Fold balanced windows; set producers aside, and drop servers, not seen since then."""
        with self.lock:
            self.ledger.fold(before_ms, itertools.chain(*self.reports.gaps()))
            self.ledger.set_aside_instances(instances_before_ms)
            self.passages.keep_windows(
                {TopicWindow(key.topic, key.window_start_ms) for key in self.ledger.cells}
            )
            self.reports.heartbeats.forget(instances_before_ms)

    def make_room(self, lateness_ms: int, excused_ms: int) -> None:
        """Fold judged cells when there are too many; see `Ledger.make_room`.

        `lateness_ms`: the longest of any tier. While anything is unreachable no more windows count
        as judged than before, since its messages may still come.
        """
        with self.lock:
            if not self.progress.unreachable_reasons() and not self.progress.troubles():
                read_to_ms = min(self.clock(), self.read_to_ms())
                self._settled_ms = read_to_ms - self.ledger.window_ms - lateness_ms
            self.settle_passages()
            windows = {TopicWindow(key.topic, key.window_start_ms) for key in self.ledger.cells}
            sources = self.ledger.tiers[:-1]
            late = {each for each in windows if any(self.passages.of(s, each) for s in sources)}
            late |= self.unregistered(self.ledger.cells)
            due_ms = self.reports.progress().read_to_ms - lateness_ms
            heard = self.reports.heartbeats.heard_ms()
            heard_ms = {server: at_ms - lateness_ms for server, at_ms in heard.items()}
            self.ledger.make_room(FoldLimits(self._settled_ms, excused_ms, late, due_ms, heard_ms))

    def settle_passages(self) -> None:
        """Let what each tier has confirmed count, as far as that tier is read."""
        with self.lock:
            for source, tier in itertools.pairwise(self.ledger.tiers):
                read_to_ms = self.progress.of_messages(tier).read_to_ms
                passed = self.passages.settle(source, read_to_ms, self.progress.positions)
                for of, line in deleted_notes(passed).items():
                    # One for each topic: a mirror at the edge of retention has a range each second.
                    self.note(line, is_kept=True, instead_of=self._deleted_notes.get(of, ""))
                    self._deleted_notes[of] = line
