"""What producers and other senders have said in topic `audit`: reports, heartbeats, goodbyes.

Each payload is decoded and checked; the reports are counted in the ledger, the heartbeats kept.
From both it is known which reports are lost, which servers are silent, and which were restarted.
"""

import threading
from collections.abc import Callable, Container, Iterable
from itertools import chain
from typing import NamedTuple

from kafka2011.consumer.log_tail import Tail
from kafka2011.events.errors import EventError
from kafka2011.events.monitoring import Heartbeat, MonitoringEvent, decode_report
from kafka2011.events.retention import FIRST_READ
from kafka2011.events.sequences import GAP_WAIT_MS, Gap
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.clock import Clock
from kafka2011.services.audit.books.heartbeats import Beat, Heartbeats, Sender
from kafka2011.services.audit.books.ledger import Instance, Ledger
from kafka2011.services.audit.books.progress import PartitionKey, ReadProgress, TierProgress
from kafka2011.services.audit.restarts import Restart

GAPS_MAX = 1_000  # of each kind; each judged cell is compared with them


class ReportGaps(NamedTuple):
    """Gaps in the monitoring events, GAPS_MAX of each kind, and behind these the spans of all
    others. `unknown`: all readers have passed them, or had GAP_WAIT_MS to; `awaited`: a broker that
    does not answer may fill them."""

    unknown: list[tuple[Instance, Gap]]
    awaited: list[tuple[Instance, Gap]]


class _GapList:
    """The first GAPS_MAX gaps one by one; of the others what they span, by server. Above GAPS_MAX
    spans each grows, so that windows between its gaps are unknown, too; no gap is dropped."""

    def __init__(self) -> None:
        self._single: list[tuple[Instance, Gap]] = []
        self._spans: dict[str, list[tuple[Instance, Gap]]] = {}
        self._span_count = 0

    def add(self, instance: Instance, gap: Gap) -> None:
        if len(self._single) < GAPS_MAX:
            self._single.append((instance, gap))
            return
        spans = self._spans.setdefault(instance.server, [])
        if spans and (spans[-1][1].meets(gap) or self._span_count >= GAPS_MAX):
            spans[-1] = instance, spans[-1][1].joined(gap)
        else:
            spans.append((instance, gap))
            self._span_count += 1

    def all(self) -> list[tuple[Instance, Gap]]:
        return [*self._single, *chain.from_iterable(self._spans.values())]


class Reports:
    """The reports of one set of books: they go into its `ledger`, and its `progress` says how far
    they are read. Every method may be called from any thread; `lock` is that of the books.

    `now` is the books' present, `note` takes a line for the operator. Topics in `ignored` are not
    counted.
    """

    def __init__(
        self,
        ledger: Ledger,
        progress: ReadProgress,
        lock: threading.RLock,
        *,
        clock: Clock,
        now: Callable[[], int],
        note: Callable[[str], None],
        ignored: Container[str],
    ) -> None:
        self._ledger = ledger
        self._progress = progress
        self._lock = lock
        self._clock = clock
        self._now = now
        self._note = note
        self._ignored = ignored
        self.heartbeats = Heartbeats()
        self.rejected = 0

    def add(
        self,
        key: PartitionKey,
        payloads: Iterable[bytes],
        next_offset: int,
        tail: Tail | None = None,
    ) -> None:
        """Add payloads of the topic `audit`, read up to `next_offset`, where `tail` stands."""
        events: list[MonitoringEvent] = []
        beats: list[Heartbeat] = []
        times_ms: list[int] = []
        for payload in payloads:
            try:
                report = decode_report(payload)
                times_ms.append(report.header.time_ms)
                if isinstance(report, Heartbeat):
                    beats.append(report)
                else:
                    events.append(report)
            except EventError as error:
                self._reject(key, error)
        now_ms = self._now()
        with self._lock:
            self._ledger.retained.begins(key, times_ms[:FIRST_READ])
            for beat in beats:
                self._beat(key, beat, now_ms)
            for event in events:
                self._count(key, event, now_ms)
            self._progress.advance(key, next_offset, tail)

    def _beat(self, key: PartitionKey, report: Heartbeat, now_ms: int) -> None:
        time_ms = report.header.time_ms
        beat = Beat(time_ms, report.interval_ms, report.is_last, report.instance)
        self.heartbeats.add(Sender(key.tier, report.header.server), beat, now_ms)
        if report.last_sequence >= 0:
            self._ledger.add_goodbye(key.tier, report, now_ms)

    def _count(self, key: PartitionKey, event: MonitoringEvent, now_ms: int) -> None:
        window_ms, server = self._ledger.window_ms, event.header.server
        fits = not window_ms % event.window_ms
        if not fits:
            self._note(
                f"{server} counts in windows of {event.window_ms} ms, "
                f"which do not fit into this audit's of {window_ms} ms"
            )
        if not self._ledger.has_room(event.counts):
            self._reject(key, "more than can be counted was reported already")
        elif event.counts and not fits:
            self._ledger.leave_out(key.tier, event, now_ms)
        else:
            self._ledger.add_report(
                key.tier,
                server=server,
                instance=event.instance,
                sequence=event.sequence,
                counts=[count for count in event.counts if count.topic not in self._ignored],
                now_ms=now_ms,
                time_ms=event.header.time_ms,
            )

    def _reject(self, key: PartitionKey, reason: object) -> None:
        with self._lock:
            self.rejected += 1
            self._note(f"{key.tier}: a message in {AUDIT} is not a monitoring event: {reason}")

    # --- views -------------------------------------------------------------------------------

    def progress(self) -> TierProgress:
        """How far the monitoring events at all tiers are read."""
        with self._lock:
            return self._progress.of_all_reports()

    def gaps(self) -> ReportGaps:
        """Monitoring events that must have been written and were not read where brokers answer."""
        with self._lock:
            reports = self.progress()
            judged_ms = max(reports.whole_to_ms, self._clock() - GAP_WAIT_MS)
            unknown, awaited = _GapList(), _GapList()
            for instance, gap in self._ledger.report_gaps(reports.read_to_ms):
                (unknown if gap.seen_ms <= judged_ms else awaited).add(instance, gap)
            return ReportGaps(unknown.all(), awaited.all())

    def silent(self) -> list[tuple[Sender, int]]:
        """Servers whose heartbeats stopped: (sender, since when, ms), the longest first.

        A broker that does not answer may hold newer heartbeats, and keep a server from sending.
        """
        with self._lock:
            found: list[tuple[Sender, int]] = []
            for tier in {sender.tier for sender in self.heartbeats.beats}:
                reports = self._progress.of_reports(tier)
                whole_to_ms = max(reports.whole_to_ms, self._clock() - GAP_WAIT_MS)
                found += self.heartbeats.silent(tier, min(reports.read_to_ms, whole_to_ms))
            return sorted(found, key=lambda each: each[1])

    def beats(self, server: str) -> list[Beat | None]:
        """The last heartbeat of the server into each tier's cluster; None where it sends none or
        has said goodbye."""
        with self._lock:
            beats = (self.heartbeats.beats.get(Sender(t, server)) for t in self._ledger.tiers)
            return [None if beat is None or beat.is_last else beat for beat in beats]

    def restarts(self) -> list[Restart]:
        """Processes that the heartbeats show to have died or stood still, oldest first."""
        with self._lock:
            for tier in {sender.tier for sender in self.heartbeats.beats}:
                self.heartbeats.settle(tier, self._progress.of_reports(tier).read_to_ms)
            found = [Restart(sender.server, at_ms) for sender, at_ms in self.heartbeats.restarts]
            return sorted(found, key=lambda restart: restart.time_ms)
