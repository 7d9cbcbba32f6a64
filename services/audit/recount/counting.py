"""Counts everything again, message by message, independent of the running service's books.

Reads messages from segment files or through the brokers (sources.py) and rows from the warehouse's
Parquet files, and compares guid by guid. The produced numbers come from the monitoring events in
the topic `audit`, as in the running service.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafka2011.events.errors import EventError
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.monitoring import WINDOW_MAX_MS, Heartbeat, MonitoringEvent, decode_report
from kafka2011.events.origin import origin_of
from kafka2011.events.retention import FIRST_READ
from kafka2011.events.topics import AUDIT, RESULT_TOPICS
from kafka2011.events.windows import WINDOW_MS_DEFAULT
from kafka2011.runtime.clock import utc_text
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.audit.books.heartbeats import Beat, Heartbeats, Sender
from kafka2011.services.audit.books.ledger import Cell, CellKey, Ledger
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.retained import Retained
from kafka2011.services.audit.recount.elections import Loss, loss_of
from kafka2011.services.audit.recount.guid_comparison import GuidTally, has_header
from kafka2011.services.audit.recount.sources import LostLog, Source
from kafka2011.services.audit.report import (
    Json,
    is_in_gap,
    judge_cells,
    report_json,
    reported_topics,
    unknown_json,
)
from kafka2011.services.audit.restarts import Restart, is_excused
from kafka2011.services.audit.server_filter import OWN_TIER, IsOurs
from kafka2011.services.audit.verdicts import (
    WINDOW_OPEN,
    GuidCounts,
    Verdict,
    judge_guids,
    settles_at_ms,
)

WAREHOUSE = "warehouse"
REPORTED_ELSEWHERE = (
    "the producers' reports are not read, which are in the live logs where messages came from "
    "there, and these were not given"
)

OnProgress = Callable[[str, int], None]  # (what is being read, messages so far)


@dataclass(frozen=True)
class RecountPlan:
    """What to count. `tiers` in the order in which messages pass them.

    `window_ms` None: as the monitoring events say. Windows that are not over, with `lateness_ms`,
    at `judged_at_ms` are pending; None judges all. `topics` None: all but `audit`. `is_ours` None:
    the messages of every server (see server_filter.py). `forms` are those of the topics' events.
    `losses` are the unclean elections of the tiers' replica sets.
    """

    tiers: Sequence[str]
    sources: Sequence[Source]
    warehouse_dir: StoragePath | None = None
    window_ms: int | None = None
    lateness_ms: int = 0
    judged_at_ms: int | None = None
    topics: Collection[str] | None = None
    restarts: Sequence[Restart] = ()
    source_name: str = "disk"
    is_ours: IsOurs | None = None
    forms: Forms = FORMS_2011
    losses: Sequence[Loss] = ()


@dataclass
class _Recount:
    plan: RecountPlan
    now_ms: int
    progress: OnProgress
    notes: list[str] = field(default_factory=list)
    message_count: int = 0
    heartbeats: list[tuple[str, Heartbeat, int]] = field(default_factory=list)  # and when, ms
    retained: Retained = field(default_factory=Retained)
    cut_partitions: int = 0
    unread: dict[tuple[int, str], str] = field(default_factory=dict)  # (tier, topic) -> reason
    unread_reports: list[Json] = field(default_factory=list)

    def note(self, text: str) -> None:
        if len(self.notes) < 1000:
            self.notes.append(text)

    def wants(self, topic: str) -> bool:
        wanted = self.plan.topics
        if wanted is None:
            return topic != AUDIT and topic not in RESULT_TOPICS
        return topic != AUDIT and topic in wanted

    def counted(self, what: str, count: int) -> None:
        self.message_count += count
        self.progress(what, self.message_count)

    def run(self) -> Json:
        plan = self.plan
        for loss in plan.losses:
            for line in loss.notes:
                self.note(line)
        # In the order of their sequences: in the order of partitions, each report of a later
        # partition would be a gap for a while, and the books keep only so many gaps.
        reports = sorted(
            self._reports(), key=lambda read: (read[1].sequence, read[1].header.time_ms)
        )
        window_ms = plan.window_ms or self._window_of(reports)
        ledger = Ledger(plan.tiers, window_ms, cells_max=2**62, is_ours=plan.is_ours)
        for tier, event in reports:
            if event.counts and window_ms % event.window_ms:
                self.note(
                    f"{event.header.server} counts in windows of {event.window_ms} ms, "
                    f"which do not fit into those of {window_ms} ms"
                )
                ledger.leave_out(tier, event, self.now_ms)
                continue
            ledger.add_report(
                tier,
                server=event.header.server,
                instance=event.instance,
                sequence=event.sequence,
                counts=[count for count in event.counts if self.wants(count.topic)],
                now_ms=self.now_ms,
                time_ms=event.header.time_ms,
            )
        for tier, beat, _ in self.heartbeats:
            if beat.last_sequence >= 0:
                ledger.add_goodbye(tier, beat, self.now_ms)
        ledger.retained = self.retained
        unknown = unknown_json(ledger.report_gaps(self.now_ms)) + self.unread_reports
        ours = [None if tier == OWN_TIER else plan.is_ours for tier in plan.tiers]
        with GuidTally(len(plan.tiers), window_ms, is_ours=ours, forms=plan.forms) as tally:
            self._read_brokers(tally)
            if WAREHOUSE in plan.tiers and plan.warehouse_dir is not None:
                self._read_tables(tally, plan.warehouse_dir)
            self.progress("comparing", self.message_count)
            found = tally.compare()
            for index, tier in enumerate(plan.tiers):
                for key, count in tally.counts(index).items():
                    ledger.add_counts(tier, key.topic, {(key.window_start_ms, key.server): count})
        return self._report(ledger, found, unknown)

    def _reports(self) -> Iterator[tuple[str, MonitoringEvent]]:
        for source in self.plan.sources:
            if AUDIT not in source.topics():
                continue
            for read in source.read(AUDIT, self.note):
                times_ms: list[int] = []
                placed_ms = 0  # by the clocks of those before it, for one whose clock is ahead
                for payload in read.payloads:
                    try:
                        report = decode_report(payload)
                        times_ms.append(report.header.time_ms)
                        if report.header.time_ms <= self.now_ms:
                            placed_ms = report.header.time_ms
                        if not isinstance(report, Heartbeat):
                            yield source.tier, report
                        else:
                            self.heartbeats.append((source.tier, report, placed_ms or self.now_ms))
                    except EventError as error:
                        self.note(
                            f"{source.tier}: a message in {AUDIT} is not a monitoring event: "
                            f"{error}"
                        )
                if read.is_behind_cut:
                    self._cut(source.tier, AUDIT, times_ms)
            if reason := source.unread(AUDIT):
                self.unread_reports.append({"what": reason, "tier": source.tier, "topic": AUDIT})

    def _cut(self, tier: str, topic: str, times_ms: Sequence[int]) -> None:
        """Note that a partition's beginning is gone; the first messages left are of these times."""
        self.cut_partitions += 1
        key = PartitionKey(tier, topic, 0, self.cut_partitions)
        self.retained.cut(key, self.now_ms)
        self.retained.begins(key, times_ms[:FIRST_READ])

    def _restarts(self) -> list[Restart]:
        """The restarts of the plan and those that heartbeats show, as in the running service."""
        seen = Heartbeats()
        for tier, beat, time_ms in sorted(self.heartbeats, key=lambda found: found[2]):
            at = Beat(time_ms, beat.interval_ms, beat.is_last, beat.instance)
            seen.add(Sender(tier, beat.header.server), at, self.now_ms)
        for tier in self.plan.tiers:
            seen.settle(tier, self.now_ms)
        shown = [Restart(sender.server, at_ms) for sender, at_ms in seen.restarts]
        return sorted([*self.plan.restarts, *shown], key=lambda restart: restart.time_ms)

    def _window_of(self, reports: Sequence[tuple[str, MonitoringEvent]]) -> int:
        """The narrowest windows into which those of the producers fit; the ones that few reports
        have are left out where that would be wider than any producer's can be."""
        widths = Counter(event.window_ms for _, event in reports)
        window_ms, fitting = 1, set[int]()
        for width_ms in sorted(widths, key=lambda each: (-widths[each], each)):
            if math.lcm(window_ms, width_ms) <= WINDOW_MAX_MS:
                window_ms = math.lcm(window_ms, width_ms)
                fitting.add(width_ms)
        if len(fitting) > 1:
            self.note(
                f"producers count in windows of {', '.join(map(str, sorted(fitting)))} ms; "
                f"shown in windows of {window_ms} ms"
            )
        return window_ms if fitting else WINDOW_MS_DEFAULT

    def _read_brokers(self, tally: GuidTally) -> None:
        plan = self.plan
        for source in plan.sources:
            tier = plan.tiers.index(source.tier)
            for topic in filter(self.wants, source.topics()):
                for read in source.read(topic, self.note):
                    if read.is_behind_cut or read.lost:
                        first = origin_of(plan.forms, topic).first_times_ms(
                            read.payloads, FIRST_READ
                        )
                        if read.is_behind_cut:
                            self._cut(source.tier, topic, first)
                        if read.lost:
                            next_tier = plan.tiers[tier + 1]
                            self.note(lost_note(read.lost, next_tier, first, plan.source_name))
                    count = tally.add_payloads(tier, topic, read.payloads, next_tier=read.next_tier)
                    self.counted(f"{source.tier} {topic}", count)
                if reason := source.unread(topic):
                    self.unread[tier, topic] = reason

    def _read_tables(self, tally: GuidTally, warehouse_dir: StoragePath) -> None:
        from kafka2011.services.audit.readers.warehouse_reader import cure_of
        from kafka2011.services.audit.recount import warehouse_rows
        from kafka2011.services.warehouse.table_paths import quarantine_view

        tier = list(self.plan.tiers).index(WAREHOUSE)
        tables = warehouse_rows.topic_tables(warehouse_dir)
        shared = warehouse_rows.shared_files(tables)
        for topic, path in tables:
            if not self.wants(topic):
                continue
            self.retained.dropped(WAREHOUSE, topic, warehouse_rows.whole_from_ms(path))
            files = self._files_of(tier, topic, path, shared)
            unread = partial(self._note_unread, tier, topic)
            for rows in warehouse_rows.rows_of(path, files, unread):
                count = tally.add_rows(tier, topic, rows.guids, rows.times_ms, rows.servers)
                self.counted(f"{WAREHOUSE} {topic}", count)
        aside: Counter[str] = Counter()
        with_events: set[str] = set()  # topics with events in quarantine
        rows_of = dict(tables)
        tables = warehouse_rows.quarantine_tables(warehouse_dir)
        shared = warehouse_rows.shared_files(tables)
        for topic, path in tables:
            if self.wants(topic):
                files = self._files_of(tier, topic, path, shared)
                unread = partial(self._note_unread, tier, topic)
                for payloads in warehouse_rows.quarantined_of(path, files, unread):
                    aside[topic] += tally.add_payloads(tier, topic, payloads)
                    if any(has_header(self.plan.forms, topic, payload) for payload in payloads):
                        with_events.add(topic)
        for topic, count in aside.items():
            cure = ""
            if topic in rows_of and topic not in with_events:
                cure = cure_of(self.plan.forms, topic, rows_of[topic])
            view = quarantine_view(warehouse_dir, topic) or "quarantine"
            self.note(f"{WAREHOUSE} {topic}: {count:,} of its messages in {view}, not rows{cure}")

    def _note_unread(self, tier: int, topic: str, reason: str) -> None:
        self.unread[tier, topic] = reason
        self.note(f"{self.plan.tiers[tier]} {topic}: {reason}")

    def _files_of(
        self,
        tier: int,
        topic: str,
        path: StoragePath,
        shared: Mapping[StoragePath, Mapping[str, str]],
    ) -> set[str] | None:
        """The topic's files of a table of several topics; None: all files are the topic's."""
        from kafka2011.services.audit.recount import warehouse_rows

        if path not in shared:
            return None
        topics = shared[path]
        mixed = [file for file in warehouse_rows.present_files(path) if file not in topics]
        if mixed:
            reason = f"table {path.name} has rows of several topics, mixed by compaction"
            self._note_unread(tier, topic, reason)
        return {file for file, owner in topics.items() if owner == topic}

    def _unread(self, tier: int, topic: str) -> str:
        """Why messages of the topic may be at the tier that were not read."""
        sources = [each for each in self.plan.sources if each.tier == self.plan.tiers[tier]]
        reasons = (self.unread.get((tier, topic), ""), *(each.unread(topic) for each in sources))
        return next(filter(None, reasons), "")

    def _may_come(self, tier: int, topic: str) -> bool:
        """Whether messages that are nowhere may still come to the tier: out of the next tier's
        memory, of a log that was lost."""
        before = self.plan.tiers[:tier]
        return any(each.tier in before and each.is_lost(topic) for each in self.plan.sources)

    def _report(
        self, ledger: Ledger, found: dict[tuple[CellKey, int], GuidCounts], unknown: list[Json]
    ) -> Json:
        plan, restarts = self.plan, self._restarts()
        reported = reported_topics(ledger.cells)
        hidden = self._reported_elsewhere(ledger, reported)
        if hidden:
            what = f"{REPORTED_ELSEWHERE}: {', '.join(sorted(hidden))}"
            unknown = [*unknown, {"what": what, "tier": "live", "topic": AUDIT}]

        def judge(key: CellKey, cell: Cell) -> list[tuple[Verdict, GuidCounts | None]]:
            counts = [found.get((key, tier), GuidCounts()) for tier in range(len(plan.tiers))]
            assert [guids.counted for guids in counts] == list(cell.counted)
            settles_ms = settles_at_ms(key.window_start_ms, ledger.window_ms, plan.lateness_ms)
            if plan.judged_at_ms is not None and settles_ms > plan.judged_at_ms:
                verdicts = [Verdict("pending", reason=WINDOW_OPEN)] * len(counts)
            else:
                # What is not read may have counted anything.
                has_gap = bool(self.unread_reports) or key.topic in hidden
                has_gap = has_gap or is_in_gap(key, ledger.window_ms, unknown)
                excused = is_excused(key.window_start_ms, restarts)
                verdicts = self._verdicts(key, cell, counts, is_excused=excused, has_gap=has_gap)
            return list(zip(verdicts, counts, strict=True))

        if self.unread_reports:
            reported = {key.topic for key in ledger.cells}
        reported |= hidden
        lines = judge_cells(
            ledger.cells,
            plan.tiers,
            judge,
            reported,
            retained=self.retained,
            is_report_lost=lambda key: is_in_gap(key, ledger.window_ms, unknown),
        )
        return report_json(
            lines,
            plan.tiers,
            source=plan.source_name,
            window_ms=ledger.window_ms,
            now_ms=self.now_ms,
            notes=self.notes + self.retained.notes(),
            restarts=[{"name": r.name, "time_ms": r.time_ms} for r in restarts],
            unknown=unknown,
            retained=self.retained,
            forms=plan.forms,
        )

    def _verdicts(
        self,
        key: CellKey,
        cell: Cell,
        counts: Sequence[GuidCounts],
        *,
        is_excused: bool,
        has_gap: bool,
    ) -> list[Verdict]:
        """The verdict on a settled cell at each tier; `counts`: its guids at each."""
        plan, by_tier = self.plan, cell.expected
        verdicts = []
        entered = entered_copies = 0
        for tier, (expected, guids) in enumerate(zip(by_tier, counts, strict=True)):
            if expected > entered:
                entered_copies += guids.counted - guids.distinct
            entered = expected
            # `seen` of the last tier are those of all tiers.
            seen_later = counts[-1].seen - guids.seen - (by_tier[-1] - expected)
            verdict = judge_guids(
                expected,
                guids,
                is_excused=is_excused,
                has_gap=has_gap,
                unread=self._unread(tier, key.topic),
                may_come=self._may_come(tier, key.topic),
                loss=loss_of(plan.losses, plan.tiers, tier, key.window_start_ms),
                entered_copies=entered_copies,
                seen_later=max(0, seen_later),
            )
            verdicts.append(verdict)
        return verdicts

    def _reported_elsewhere(self, ledger: Ledger, reported: Collection[str]) -> set[str]:
        """The topics of which the reports may be in logs that were not given: those of live."""
        if self.plan.source_name != "disk" or "live" in self.plan.tiers:
            return set()
        return {key.topic for key in ledger.cells} - set(reported)


def lost_note(lost: LostLog, next_tier: str, times_ms: Sequence[int], source_name: str) -> str:
    """What is known of a log that was lost. `times_ms`: of the first messages of the one in its
    place."""
    begins = f"begins with a message of {utc_text(times_ms[0])} and " if times_ms else ""
    cure = "start the deployment" if source_name == "disk" else f"wait for {next_tier}"
    return (
        f"{lost.place}: its log, or the end of it, is lost: {next_tier} had taken it up to offset "
        f"{lost.taken}, and what is there now {begins}ends at offset {lost.end}. What only the "
        f"lost part had is missing; how much {next_tier} has of what is there now is not known "
        f"before it has taken more of it: {cure}, and count again"
    )


def recount(plan: RecountPlan, *, now_ms: int, progress: OnProgress = lambda *_: None) -> Json:
    """The report on everything in the plan. Raises OSError when a file cannot be opened."""
    return _Recount(plan, now_ms, progress).run()
