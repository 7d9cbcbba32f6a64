"""Counts what one `Producer` sends, and reports it: the work behind `audit.enable`.

What was sent waits in memory; the flush that makes it durable puts its counts into the journal, and
a thread makes monitoring events of them about once a second, with a flush of its own where the
application makes none. So what is counted is stored. Where such a flush of its own fails, all is
counted but what went over the connection that broke. Where one of the application does, nothing is
counted of the topics that it names: which of its messages are meant the application cannot know,
and sends all of them again; what a flush of its own had counted is counted twice then, as it is
stored twice. After that, and after a crash, later reports have a new instance, so that the audit
takes the surplus for messages that were sent again.

Only events that name this producer's server (events.origin) are counted: others count elsewhere.
"""

import threading
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import fields

from kafka2011.coordination.errors import CoordinationError
from kafka2011.events.errors import HeaderUnreadable
from kafka2011.events.forms import Forms
from kafka2011.events.header import UNREADABLE
from kafka2011.events.origin import origin_of
from kafka2011.events.topics import AUDIT
from kafka2011.events.windows import WindowCount, WindowCounts
from kafka2011.producer.asynchronous.intake import QueuedEvent
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.counting.journal import Journal
from kafka2011.producer.counting.reports import heartbeat_payload, monitoring_payload
from kafka2011.producer.counting.settings import CountingSettings
from kafka2011.producer.errors import Link, Unconfirmed
from kafka2011.producer.sender import Sender, disconnect
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.workers import Worker

PUBLISH_INTERVAL_S = 1.0
FLUSH_TIMEOUT_MS = 10_000
STOP_MIN_MS = 500  # a thread that waits for no broker ends at once

log = get_logger(__name__)


class SentCounts:
    """The counts of one producer; any thread.

    `confirm` makes the producer flush, which calls `begin` and `settle`; `connect` makes a sender
    of reports, which with `has_registry` needs no zk.connect. Raises JournalInUse, JournalCorrupt
    and OSError for the directory, and ValueError when that holds unreported counts of another
    server or window width.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        confirm: Callable[[int], object],
        connect: Callable[[ProducerConfig], Sender],
        has_registry: bool = False,
        clock: Clock = now_ms,
    ) -> None:
        assert config.audit_dir is not None
        self._forms: Forms = config.forms
        self._server = config.counted_server
        self._service = config.audit_service
        self._heartbeat_ms = config.heartbeat_interval_ms
        self._window_ms = config.window_ms
        self._confirm = confirm
        self._connect = connect
        self._sender_config = _of_reports(config, has_registry)
        self._report_bytes_max = self._sender_config.payload_bytes_max
        self._clock = clock
        self._lock = threading.Lock()  # of the counts
        self._pending: dict[Link, WindowCounts] = {}  # sent, behind no flush yet
        self._asked: list[tuple[Link, WindowCounts]] = []  # sent before the flush under way
        self._has_flushed = False  # the application, since the thread last looked
        self._has_met_other = False  # an event of another server, which is not counted
        self._journal_lock = threading.RLock()
        self._journal, self._must_begin_anew = _opened(config)
        self._is_broken = False  # the journal is closed, or cannot be written
        self._sender: Sender | None = None
        self._is_failing = False
        self._next_heartbeat_s = 0.0
        self._stop = threading.Event()
        self._worker = Worker(self._run, "audit-counts", restarts=True)
        self._worker.start()

    # --- what was sent -----------------------------------------------------------------------

    def add(self, link: Link, topic: str, payloads: Sequence[bytes]) -> None:
        """Add messages that were written to a connection."""
        if topic == AUDIT or not payloads:
            return
        origin = origin_of(self._forms, topic)
        found: dict[tuple[int, str], int] = {}
        origin.count(payloads, self._window_ms, found)
        with self._lock:
            if len(found) == 1:  # mostly: one server, one window
                ((start_ms, server), count) = next(iter(found.items()))
                size = sum(map(len, payloads))
                self._add(link, server, WindowCount(topic, start_ms, count, size))
                return
            for payload in payloads:
                try:
                    header = origin.header(payload)
                except HeaderUnreadable:
                    continue
                start_ms = header.time_ms - header.time_ms % self._window_ms
                self._add(link, header.server, WindowCount(topic, start_ms, 1, len(payload)))

    def add_events(self, link: Link, events: Sequence[QueuedEvent]) -> None:
        """Add a batch of a queue that was written to a connection."""
        by_topic: dict[str, list[bytes]] = {}
        for topic, _, payload, _ in events:
            by_topic.setdefault(topic, []).append(payload)
        for topic, payloads in by_topic.items():
            self.add(link, topic, payloads)

    def _add(self, link: Link, server: str, found: WindowCount) -> None:
        if server == self._server:
            self._pending.setdefault(link, WindowCounts(self._window_ms)).merge([found])
        elif (found.window_start, server) != UNREADABLE and not self._has_met_other:
            self._has_met_other = True
            log.warning("other_server_not_counted", server=server, counted=self._server)

    def begin(self, broker: str = "") -> None:
        """Note that a flush begins, or its barrier on one broker: what was added so far, for that
        broker, is durable if it succeeds."""
        with self._lock:
            for link in [link for link in self._pending if broker in ("", link.broker)]:
                self._asked.append((link, self._pending.pop(link)))

    def settle(
        self,
        lost: Sequence[Unconfirmed],
        *,
        is_own: bool = False,
        open_brokers: Container[str] = (),
    ) -> None:
        """Count what the flush made durable, and not to be sent again where the application hears
        of what is `lost` (not `is_own`). Of `open_brokers` the next flush says it."""
        with self._lock:
            self._has_flushed |= not is_own
            asked, self._asked = self._asked, []
            if lost:
                self._must_begin_anew = True
                for link, counts in (*asked, *self._pending.items()):
                    _drop(counts, lost, link if is_own else None)
            for link, counts in asked:
                if link.broker in open_brokers:
                    waiting = self._pending.setdefault(link, WindowCounts(self._window_ms))
                    waiting.merge(counts.take())
        durable = WindowCounts(self._window_ms)
        for _, counts in asked:
            durable.merge(counts.take())
        if durable:
            self._write(lambda journal: journal.sent(None, durable.take()))

    def _write(self, change: Callable[[Journal], object]) -> None:
        try:
            with self._journal_lock:
                if not self._is_broken:
                    change(self._journal)
        except OSError as error:
            # No goodbye will be sent, so the audit shows this server as silent.
            self._is_broken = True
            log.error("counts_not_journalled", detail=reason_of(error), hint="restart the producer")

    # --- reports -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(PUBLISH_INTERVAL_S):
            self._look()

    def _look(self) -> None:
        """Confirm what the application does not, then report."""
        with self._lock:
            is_due = any(self._pending.values()) and not self._has_flushed
            self._has_flushed = False
        if is_due:
            self._confirm(FLUSH_TIMEOUT_MS)
        self._publish(FLUSH_TIMEOUT_MS)
        if self._is_broken:  # also when the producer was closed without this thread
            self._disconnect()

    def _publish(self, timeout_ms: int, *, is_last: bool = False) -> bool:
        """Report what is journalled; False when that failed: it is tried again later."""
        if self._is_broken:
            return False
        self._write(lambda journal: journal.make_events(self._clock(), self._report_bytes_max))
        with self._journal_lock:
            state = self._journal.state
            events = list(state.events)
            payloads = [monitoring_payload(state, event, self._service) for event in events]
            if self._is_heartbeat_due() or (is_last and self._heartbeat_ms):
                now = self._clock()
                payloads.append(
                    heartbeat_payload(
                        state,
                        self._service,
                        time_ms=now,
                        interval_ms=self._heartbeat_ms,
                        is_last=is_last,
                        # Another instance behind a goodbye is no restart to the audit.
                        repeated_ms=now if is_last and self._must_begin_anew else 0,
                    )
                )
        try:
            if payloads:
                if self._sender is None:
                    self._sender = self._connect(self._sender_config)
                self._sender.send(AUDIT, payloads)
                self._sender.flush(timeout_ms)
        except (KafkaError, CoordinationError, OSError) as error:
            if not self._is_failing:
                log.warning("counts_not_reported", detail=reason_of(error))
            self._is_failing = True
            self._disconnect()
            return False
        self._is_failing = False
        if events:
            self._write(lambda journal: journal.published(events[-1].sequence))
        if self._must_begin_anew and not is_last:
            self._begin_anew()
        return True

    def _is_heartbeat_due(self) -> bool:
        now_s = time.monotonic()
        if not self._heartbeat_ms or now_s < self._next_heartbeat_s:
            return False
        self._next_heartbeat_s = now_s + self._heartbeat_ms / 1000
        return True

    def _begin_anew(self) -> None:
        """Go on as another instance, once everything of this one is reported."""

        def adopt(journal: Journal) -> None:
            if not journal.state.pending and not journal.state.events:
                journal.adopt(self._server, self._window_ms)
                journal.sent(None, [])  # it runs: a death from here on is known
                self._must_begin_anew = False

        self._write(adopt)

    # --- the end -----------------------------------------------------------------------------

    def stop(self, timeout_ms: int) -> None:
        """End the thread, so that it makes no more flushes, unless it waits for a broker beyond
        `timeout_ms` (at least STOP_MIN_MS)."""
        self._stop.set()
        self._worker.join(max(timeout_ms, STOP_MIN_MS) / 1000)

    def finish(self, timeout_ms: int) -> None:
        """Report the last counts and say goodbye; the next start reports what could not be.

        Call it with everything settled. With 0 ms, or while the thread runs, nothing is reported.
        """
        has_ended = not self._worker.is_alive()
        if has_ended and timeout_ms > 0 and self._must_begin_anew:
            self._publish(timeout_ms)  # so that the goodbye is of the new instance
        is_reported = has_ended and timeout_ms > 0 and self._publish(timeout_ms, is_last=True)
        if is_reported and not self._must_begin_anew:  # else the next start is another instance
            self._write(lambda journal: journal.stopped())
        if has_ended:
            self._disconnect()
        with self._journal_lock:
            self._is_broken = True
            self._journal.close()

    def _disconnect(self) -> None:
        sender, self._sender = self._sender, None
        disconnect(sender)


def _drop(counts: WindowCounts, lost: Sequence[Unconfirmed], link: Link | None) -> None:
    """Remove the topics that were lost: if `link` is given, what was of messages that went over
    that connection."""
    here = [part for part in lost if link is None or (part.broker == link.broker and link.number)]
    # Not even the topic is known of messages in flight at a deadline.
    if any(part.topic.startswith("(") for part in here):
        counts.take()
    topics = {part.topic for part in here if link is None or part.connection == link.number}
    if topics:
        counts.merge([one for one in counts.take() if one.topic not in topics])


def _of_reports(config: ProducerConfig, has_registry: bool) -> ProducerConfig:
    """The settings of the sender of reports: a plain ProducerConfig, even for a subclass of it."""
    kept = {each.name: getattr(config, each.name) for each in fields(ProducerConfig)}
    changed = {
        "audit_enable": False,
        "zk_connect": "" if has_registry else config.zk_connect,
        "producer_type": "sync",
        "serializer": None,
        "partitioner": None,
        "callback_handler": None,
        "event_handler": None,
    }
    return ProducerConfig(**{**kept, **changed})


def _opened(config: CountingSettings) -> tuple[Journal, bool]:
    """The journal, and whether to begin a new instance because its last producer died."""
    assert config.audit_dir is not None
    server, window_ms = config.counted_server, config.window_ms
    was_there = Journal.is_in(config.audit_dir)
    journal = Journal(config.audit_dir, server, window_ms)
    state = journal.state
    died = was_there and not state.is_stopped
    try:
        if (state.server, state.window_ms) != (server, window_ms):
            if state.pending or state.events:
                raise ValueError(
                    f"{config.audit_dir} has counts of {state.server} that are not reported yet: "
                    f"start once with audit.server={state.server} and "
                    f"audit.window.ms={state.window_ms}"
                )
            journal.adopt(server, window_ms)
            died = False
        journal.sent(None, [])  # it runs: a death from here on is known
    except BaseException:
        journal.close()
        raise
    return journal, died
