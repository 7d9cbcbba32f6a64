"""What producers reported on topic `audit`: how many messages of each topic, window and server.

Pure. Each monitoring event counts once, identified by (server, instance, sequence). Sequences have
no gaps, so a gap that stays shows that a monitoring event is lost and `expected` is too small.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from kafka2011.events.errors import EventError
from kafka2011.events.monitoring import BEATS_MISSED, Heartbeat, MonitoringEvent, decode_report
from kafka2011.events.retention import FIRST_READ, may_be_deleted, whole_from_ms
from kafka2011.events.sequences import GAP_WAIT_MS, USED_AGAIN, EventTimes, Gap, SequenceRanges
from kafka2011.events.windows import window_start

WINDOWS_MAX = 5_000  # (topic, window) pairs kept; above that the oldest windows are dropped
RANGES_MAX = 100  # of one instance; of the gaps below these only the span is known
INSTANCES_MAX = 2_000  # above that the longest silent are dropped

Window = tuple[str, int]  # topic, start in ms
Instance = tuple[str, str]  # server, instance


@dataclass
class Reported:
    """Reports in windows of `window_ms`, a multiple of the producers'.

    `kept_from_ms`: windows before that were dropped, or their reports were deleted before the first
    look. `touched`: windows with a report since `end_look`.
    """

    window_ms: int
    expected: dict[Window, dict[str, int]] = field(default_factory=dict)
    touched: set[Window] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    kept_from_ms: int = 0
    rejected: int = 0  # messages that were not reports, or whose windows do not fit
    _whole_from_ms: int = 0
    _sequences: dict[Instance, SequenceRanges] = field(default_factory=dict)
    _times: EventTimes = field(default_factory=EventTimes)
    _first_ms: dict[Instance, int] = field(default_factory=dict)
    _repeated_ms: dict[str, int] = field(default_factory=dict)  # the last time, by server
    # By server: the time of the newest heartbeat, and until when the next ones are due, ms.
    _heard: dict[str, tuple[int, float]] = field(default_factory=dict)
    is_whole: bool = True  # the last look was at all brokers that may have reports
    _gaps_before: dict[tuple[Instance, int], int] = field(default_factory=dict)  # since when, ms
    _lost_before: set[tuple[Instance, int]] = field(default_factory=set)
    _closed: dict[Instance, Gap] = field(default_factory=dict)
    _lost: list[Gap] = field(default_factory=list)
    _awaited: list[Gap] = field(default_factory=list)

    def add(self, payloads: Iterable[bytes]) -> None:
        """Add messages of topic `audit`."""
        for payload in payloads:
            try:
                report = decode_report(payload)
            except EventError:
                self.rejected += 1
                continue
            if isinstance(report, Heartbeat):
                self._beat(report)
            elif self.window_ms % report.window_ms:
                self.rejected += 1
            else:
                self._count(report)

    def begins(self, payloads: Iterable[bytes], now_ms: int) -> None:
        """Note the first messages read of a partition of topic `audit` whose beginning retention
        has deleted; none if it has deleted everything."""
        times_ms: list[int] = []
        for payload in payloads:
            if len(times_ms) == FIRST_READ:
                break
            with contextlib.suppress(EventError):
                times_ms.append(decode_report(payload).header.time_ms)
        self._whole_from_ms = max(self._whole_from_ms, whole_from_ms(times_ms, now_ms))
        self.kept_from_ms = max(self.kept_from_ms, self._whole_from_ms)

    def _seen(self, instance: Instance, time_ms: int) -> SequenceRanges:
        # Ordered by when they were last heard of, so that the oldest are dropped first.
        found = self._sequences.pop(instance, None)
        if found is None:
            found = SequenceRanges()
        self._sequences[instance] = found
        while len(self._sequences) > INSTANCES_MAX:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest], self._first_ms[oldest]
            self._closed.pop(oldest, None)
        self._first_ms[instance] = min(time_ms, self._first_ms.get(instance, time_ms))
        return found

    def _beat(self, heartbeat: Heartbeat) -> None:
        header = heartbeat.header
        if heartbeat.repeated_ms:
            self._note_repeat(header.server, heartbeat.repeated_ms)
        self._hear(header.server, header.time_ms, heartbeat)
        seen = self._seen((header.server, heartbeat.counting_instance), header.time_ms)
        if heartbeat.is_last and heartbeat.last_sequence > seen.final:
            seen.final, seen.final_ms = heartbeat.last_sequence, header.time_ms

    def _hear(self, server: str, time_ms: int, heartbeat: Heartbeat) -> None:
        # Ordered as the instances are.
        newest = self._heard.pop(server, (0, 0.0))
        due_ms = inf if heartbeat.is_last else time_ms + BEATS_MISSED * heartbeat.interval_ms
        self._heard[server] = max(newest, (time_ms, due_ms))
        if len(self._heard) > INSTANCES_MAX:
            del self._heard[next(iter(self._heard))]

    def _note_repeat(self, server: str, time_ms: int) -> None:
        self._repeated_ms[server] = max(time_ms, self._repeated_ms.get(server, 0))
        if len(self._repeated_ms) > INSTANCES_MAX:
            del self._repeated_ms[next(iter(self._repeated_ms))]

    def _count(self, event: MonitoringEvent) -> None:
        header = event.header
        instance, time_ms = (header.server, event.instance), header.time_ms
        seen = self._seen(instance, time_ms)
        if not seen.add(event.sequence, time_ms):
            after_ms = self._times.not_counted_after(instance, event.sequence, time_ms, seen)
            if after_ms is not None:
                again = self._seen((header.server, event.instance + USED_AGAIN), time_ms)
                again.use_again(event.sequence, after_ms=after_ms, time_ms=time_ms)
            return
        self._times.add(instance, event.sequence, time_ms)
        for count in event.counts:
            self.topics.add(count.topic)
            start = window_start(count.window_start, self.window_ms)
            if start < self.kept_from_ms:
                continue  # other reports of that window are dropped already
            window = count.topic, start
            servers = self.expected.setdefault(window, {})
            servers[header.server] = servers.get(header.server, 0) + count.count
            self.touched.add(window)
        if len(self.expected) > WINDOWS_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        starts = sorted({start for _, start in self.expected})
        self.kept_from_ms = max(self.kept_from_ms, starts[len(starts) // 4] + 1)
        kept = {window for window in self.expected if window[1] >= self.kept_from_ms}
        self.expected = {window: self.expected[window] for window in kept}
        self.touched &= kept

    def end_look(self, now_ms: int, *, is_whole: bool = True) -> None:
        """End a look: everything visible was added, except what brokers that are away have.

        A gap that was there at the previous look as well is a loss, since a producer's reports
        become visible in order; but while a broker is away (not `is_whole`) that may have the
        missing report, only after GAP_WAIT_MS.
        """
        self.is_whole = is_whole
        if is_whole:  # else reports that another partition has would be taken as seen
            self._keep_bounded()
        gaps = {
            (instance, gap.first): gap
            for instance, seen in self._sequences.items()
            for gap in seen.gaps()
            if instance[1].endswith(USED_AGAIN) or not may_be_deleted(gap, self._whole_from_ms)
        }
        since = {key: self._gaps_before.get(key, now_ms) for key in gaps}
        lost = {
            key
            for key in gaps
            if key in (self._gaps_before if is_whole else self._lost_before)
            or now_ms - since[key] >= GAP_WAIT_MS
        }
        self._lost = [*self._closed.values(), *(gap for key, gap in gaps.items() if key in lost)]
        self._awaited = [gap for key, gap in gaps.items() if key not in lost]
        self._gaps_before, self._lost_before = since, lost
        self.touched = set()

    def _keep_bounded(self) -> None:
        """Close the lowest gaps of each instance that has too many. What they lack stays lost."""
        for instance, seen in self._sequences.items():
            if len(seen) <= RANGES_MAX:
                continue
            gaps = seen.gaps()
            seen.keep_at_most(RANGES_MAX)
            for gap in set(gaps).difference(seen.gaps()):
                if not may_be_deleted(gap, self._whole_from_ms):
                    known = self._closed.get(instance)
                    self._closed[instance] = gap if known is None else known.joined(gap)

    def is_lost(self, start_ms: int, lateness_ms: int) -> bool:
        """Whether a lost report may have counted messages of this window."""
        return any(self._holds(gap, start_ms, lateness_ms) for gap in self._lost)

    def is_awaited(self, start_ms: int, lateness_ms: int) -> bool:
        """Whether a report on its way may count messages of this window."""
        return any(self._holds(gap, start_ms, lateness_ms) for gap in self._awaited)

    def _holds(self, gap: Gap, start_ms: int, lateness_ms: int) -> bool:
        end_ms = start_ms + self.window_ms
        # The clock of a producer that was set back in between has them in the other order.
        first_ms, last_ms = sorted((gap.after_ms, gap.before_ms))
        return start_ms <= last_ms and end_ms + lateness_ms > first_ms

    def is_silent(self, server: str, read_to_ms: int) -> bool:
        """Whether a server that sends heartbeats has missed several without a goodbye; all reports
        up to `read_to_ms` are read."""
        return self._heard.get(server, (0, inf))[1] < read_to_ms

    def heard_ms(self, server: str) -> float:
        """The time (ms) of the newest heartbeat of a server that is to send more; inf for one that
        said goodbye, or sends none."""
        heard_ms, due_ms = self._heard.get(server, (0, inf))
        return heard_ms if due_ms < inf else inf

    def restarted_ms(self, server: str) -> list[int]:
        """When the server may have sent messages again: the times at which its later instances were
        first seen, and the last time that it reported doing so; ms."""
        later = sorted(at for (name, _), at in self._first_ms.items() if name == server)[1:]
        return [*later, *filter(None, [self._repeated_ms.get(server)])]
