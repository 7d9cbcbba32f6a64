"""At-least-once delivery: events are confirmed only when the brokers have them on disk.

Everything sent since the last successful barrier is kept as encoded message sets, and the same
bytes are sent again when the barrier fails. After a success the batch is counted by topic and
window and journalled with the source's position. About once a second the counts are sent as a
monitoring event on the same connections, and at intervals a heartbeat, which says when messages
were last sent again. The buffer is bounded: `send` blocks while it is full, so the source waits for
the brokers.

Events with a key go to the key's partition. If a broker has failed, they are placed anew, by the
partitions that exist then, before they are sent again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kafka2011.events.topics import AUDIT
from kafka2011.events.windows import WindowCounts
from kafka2011.producer import BrokerUnavailable, NotDurable, Producer
from kafka2011.producer.counting.journal import Journal, JournalledEvent, Position
from kafka2011.producer.counting.reports import heartbeat_payload, monitoring_payload
from kafka2011.producer.discovery import Target
from kafka2011.producer.requests import encode_set
from kafka2011.protocol.errors import KafkaError, MessageSizeTooLarge
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

Event = tuple[str, int, bytes]  # topic, header.time, payload
Keyed = tuple[str, int | str, bytes]  # topic, key, payload

# Payloads of one message set; well below what brokers and consumers accept by default (1 MB).
SET_BYTES_MAX = 256 * 1024
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 2.0
SECOND_BARRIER_MS = 1_000  # a broker that works answers in much less
# Share of the time for a stop that is left at least, if the stop came during a barrier that failed.
LAST_ATTEMPT_SHARE = 0.25

log = get_logger(__name__)


class NotDelivered(KafkaError):
    """The process was stopping, and the brokers did not confirm everything before the deadline.

    Nothing is lost: the journal's position is before the first unconfirmed event.
    """

    retriable = True


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """When to deliver: `flush_interval_ms` between barriers; a full buffer brings one forward."""

    flush_interval_ms: int = 150
    publish_interval_ms: int = 1000
    heartbeat_interval_ms: int = 0  # none
    messages_max: int = 20_000
    bytes_max: int = 16 * 1024 * 1024
    set_messages_max: int = 200
    barrier_timeout_ms: int = 10_000
    stop_timeout_ms: int = 10_000  # for delivery while the process is stopping


@dataclass(slots=True)
class DeliveryStats:
    messages: dict[str, int] = field(default_factory=dict)  # confirmed, by topic
    keyed_bytes: dict[int, int] = field(default_factory=dict)  # confirmed, with a key, by broker
    resent_sets: int = 0
    refused_too_large: int = 0
    monitoring_events: int = 0  # published
    barriers: int = 0
    failed_barriers: int = 0


@dataclass(slots=True)
class _Set:
    topic: str
    encoded: bytes
    message_count: int
    sequence: int = -1  # of the last monitoring event in it
    was_sent: bool = False
    target: Target | None = None  # of events with keys
    keyed: Sequence[Keyed] = ()


class Delivery:
    """Sends one frontend's events to its brokers; for one thread.

    `stopping` is set when the process is to stop: waits end early then, and NotDelivered is raised
    after `stop_timeout_ms`. `with_new_files` is called with positions while the brokers are away,
    and returns them with inputs that came meanwhile (`FollowedLogSource.with_new_files`). `keyed`:
    the producer for events with a key, which finds the brokers through ZooKeeper; it may be
    `producer`. Without it keys have no effect.
    """

    def __init__(
        self,
        producer: Producer,
        journal: Journal,
        *,
        keyed: Producer | None = None,
        service: str,
        clock: Clock,
        policy: DeliveryPolicy | None = None,
        stopping: threading.Event | None = None,
        with_new_files: Callable[[Position], Position] = lambda position: position,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._producer = producer
        self._keyed = keyed
        self._journal = journal
        self._service = service
        self._clock = clock
        self._policy = policy or DeliveryPolicy()
        self._stopping = stopping or threading.Event()
        self._with_new_files = with_new_files
        self._monotonic = monotonic
        self._sleep = sleep
        self.stats = DeliveryStats()
        self._sets: list[_Set] = []  # since the last barrier
        self._sent_count = 0  # how many of them were sent on the current connections
        self._unplaced: list[Keyed] = []  # in no set until a broker is known for them
        self._message_count = 0
        self._byte_count = 0
        self._counts = WindowCounts(journal.state.window_ms)
        self._position: Position = None
        self._has_position = False
        self._unflushed_since: float | None = None
        self._last_publish = monotonic()
        self._last_heartbeat = float("-inf")
        state = journal.state
        has_died = bool(state.run) and not (state.is_stopped or state.is_finished)
        self._repeated_ms = clock() if has_died else 0  # when messages were sent again; 0: never
        self._resent_before = 0
        self._stop_deadline: float | None = None
        for event in journal.state.events:  # of earlier runs, perhaps not published
            self._add_monitoring(event)

    @property
    def unconfirmed_messages(self) -> int:
        return self._message_count

    def send(
        self, events: Sequence[Event], position: Position, keys: Sequence[int | str | None] = ()
    ) -> None:
        """Send events; `position` is where the source resumes after the last of them. `keys` are
        their keys, or empty.

        Does not wait for the brokers unless the buffer is full. Raises NotDelivered, OSError (the
        journal could not be written: stop).
        """
        by_topic: dict[str, list[bytes]] = {}
        add = self._counts.add
        key_of = iter(keys) if self._keyed is not None else iter(())
        for topic, time_ms, payload in events:
            key = next(key_of, None)
            if len(payload) > self._producer.config.max_message_bytes:
                self._refuse(topic, len(payload))
                continue
            add(topic, time_ms, 1, len(payload))
            self._message_count += 1
            if key is not None:
                self._unplaced.append((topic, key, payload))
                self._byte_count += len(payload)
                continue
            payloads = by_topic.get(topic)
            if payloads is None:
                by_topic[topic] = [payload]
            else:
                payloads.append(payload)
        for topic, payloads in by_topic.items():
            self._add_sets(topic, payloads)
        self._position = position
        self._has_position = True
        if self._unflushed_since is None:
            self._unflushed_since = self._monotonic()
        self._send_unsent()
        if (
            self._message_count >= self._policy.messages_max
            or self._byte_count >= self._policy.bytes_max
        ):
            self.flush()

    def tick(self) -> float:
        """Do what is due; returns the seconds until something else is. Raises as `send` does."""
        now = self._monotonic()
        if now >= self._last_publish + self._policy.publish_interval_ms / 1000:
            self._last_publish = now
            self._publish()
        interval_s = self._policy.heartbeat_interval_ms / 1000
        if interval_s and now >= self._last_heartbeat + interval_s:
            self._last_heartbeat = now
            self._send_heartbeat(is_last=False)
        due = self._flush_due()
        if due is not None and now >= due:
            self.flush()
            due = None
        waits = [self._last_publish + self._policy.publish_interval_ms / 1000]
        if interval_s:
            waits.append(self._last_heartbeat + interval_s)
        if due is not None:
            waits.append(due)
        return max(0.0, min(waits) - self._monotonic())

    def flush(self) -> None:
        """Return when everything is durable, counted and journalled. Raises as `send` does."""
        backoff_s = BACKOFF_FIRST_S
        while (self._sets or self._unplaced) and not self._deliver_once():
            self._note_new_files()
            self._pause(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
        self._confirmed()

    def finish(self, is_source_finished: bool) -> None:
        """Flush, publish the last counts, and flush these. Raises as `send` does."""
        self.flush()
        if is_source_finished and not self._journal.state.is_finished:
            self._journal.finished()
        self._publish()
        if self._policy.heartbeat_interval_ms:
            self._send_heartbeat(is_last=True)
        self.flush()
        if not self._journal.state.is_finished:
            self._journal.stopped()

    # --- sets --------------------------------------------------------------------------------

    def _add_sets(self, topic: str, payloads: list[bytes]) -> None:
        for chunk in _chunks(payloads, self._policy.set_messages_max):
            self._add_set(topic, chunk)

    def _add_set(self, topic: str, payloads: list[bytes], sequence: int = -1) -> None:
        config = self._producer.config
        try:
            encoded = encode_set(payloads, config.compression_codec, config.max_message_bytes)
        except MessageSizeTooLarge:  # only a compressed set: each payload alone fits plain
            half = len(payloads) // 2
            if not half:
                encoded = encode_set(payloads, config.compression_codec.NONE, len(payloads[0]))
            else:
                self._add_set(topic, payloads[:half])
                self._add_set(topic, payloads[half:], sequence)
                return
        self._sets.append(_Set(topic, encoded, len(payloads), sequence))
        self._byte_count += len(encoded)

    def _place(self) -> None:
        """Make sets of the events with keys, by partition. Raises BrokerUnavailable when no broker
        is known."""
        if not self._unplaced:
            return
        assert self._keyed is not None
        found: dict[tuple[str, Target], list[Keyed]] = {}
        for event in self._unplaced:
            target = self._keyed.target_of(event[0], event[1])
            found.setdefault((event[0], target), []).append(event)
        self._unplaced = []
        for (topic, target), events in found.items():
            first = len(self._sets)
            bytes_before = self._byte_count
            self._add_sets(topic, [payload for _, _, payload in events])
            self._byte_count = bytes_before  # they were counted in `send`
            behind = 0
            for each in self._sets[first:]:
                each.target = target
                each.keyed = events[behind : behind + each.message_count]
                behind += each.message_count

    def _unplace(self, first: int) -> None:
        """Take the events with keys out of the sets from `first` on, to be placed anew."""
        kept = self._sets[:first]
        taken: list[Keyed] = []
        for each in self._sets[first:]:
            if each.target is None:
                kept.append(each)
            else:
                taken += each.keyed
                self.stats.resent_sets += each.was_sent
        self._sets = kept
        self._unplaced = taken + self._unplaced  # what was in no set yet came later

    def _refuse(self, topic: str, size: int) -> None:
        self.stats.refused_too_large += 1
        log.error(
            "event_too_large",
            topic=topic,
            bytes=size,
            max_message_size=self._producer.config.max_message_bytes,
        )

    # --- delivery ----------------------------------------------------------------------------

    def _send_unsent(self) -> bool:
        """Send what is unsent; False when a broker is unavailable (the next flush retries)."""
        try:
            self._place()
            while self._sent_count < len(self._sets):
                each = self._sets[self._sent_count]
                self.stats.resent_sets += each.was_sent
                each.was_sent = True
                self._send_set(each)
                self._sent_count += 1
        except BrokerUnavailable as error:
            self._unplace(self._sent_count)
            log.warning("send_failed", reason=str(error))
            return False
        return True

    def _send_set(self, each: _Set) -> None:
        if each.target is None:
            self._producer.send_set(each.topic, each.encoded)
            return
        assert self._keyed is not None
        broker_id, _, partition = each.target
        self._keyed.send_set(each.topic, each.encoded, broker_id=broker_id, partition=partition)

    def _flush_producers(self) -> None:
        """Make a barrier on all connections. Raises NotDurable.

        A broker that hangs may hold up both producers: the second does not get the full time again.
        """
        timeout_ms = self._barrier_timeout_ms()
        if self._keyed is None or self._keyed is self._producer:
            self._producer.flush(timeout_ms)
            return
        began_s = self._monotonic()
        try:
            self._keyed.flush(timeout_ms)
        except NotDurable:
            left_ms = timeout_ms - int((self._monotonic() - began_s) * 1000)
            with suppress(NotDurable):  # everything is sent again anyway
                self._producer.flush(max(min(SECOND_BARRIER_MS, timeout_ms), left_ms))
            raise
        self._producer.flush(self._barrier_timeout_ms())

    def _deliver_once(self) -> bool:
        """Send everything and make a barrier, once; True when all is durable."""
        began_s = self._monotonic()
        is_sent = self._send_unsent()
        self.stats.barriers += 1
        try:
            self._flush_producers()
        except NotDurable as error:
            self._note_stop(began_s)
            self.stats.failed_barriers += 1
            self._sent_count = 0
            self._unplace(0)
            log.warning("not_durable", reason=error.reason, sets=len(self._sets))
            return False
        return is_sent

    def _barrier_timeout_ms(self) -> int:
        """The policy's timeout; while stopping, no more than what is left."""
        now_s = self._monotonic()
        self._note_stop(now_s)
        if self._stop_deadline is None:
            return self._policy.barrier_timeout_ms
        left_ms = int((self._stop_deadline - now_s) * 1000)
        return max(1, min(self._policy.barrier_timeout_ms, left_ms))

    def _note_stop(self, since_s: float) -> None:
        """Set the deadline, if the process is stopping: counted from `since_s`, when it was not
        stopping yet, but late enough for a last attempt."""
        if self._stopping.is_set() and self._stop_deadline is None:
            stop_s = self._policy.stop_timeout_ms / 1000
            self._stop_deadline = max(
                since_s + stop_s, self._monotonic() + stop_s * LAST_ATTEMPT_SHARE
            )

    def _pause(self, seconds: float) -> None:
        if not self._stopping.is_set():
            self._stopping.wait(seconds)
            return
        now = self._monotonic()
        self._note_stop(now)
        assert self._stop_deadline is not None
        if now >= self._stop_deadline:
            raise NotDelivered(
                f"{self._message_count} messages were not delivered in "
                f"{self._policy.stop_timeout_ms} ms; the next start sends them"
            )
        self._sleep(min(seconds, self._stop_deadline - now))

    def _note_new_files(self) -> None:
        """Journal inputs that have come: they may be gone from their place when the brokers are
        back, and this process may not live that long."""
        stored = self._journal.state.position
        position = self._with_new_files(stored)
        if position != stored:
            self._journal.sent(position, [])
        if self._has_position:
            self._position = self._with_new_files(self._position)

    def _confirmed(self) -> None:
        """Count and journal what the brokers have confirmed, and drop it."""
        sequence = max((each.sequence for each in self._sets), default=-1)
        if self._has_position:
            counts = self._counts.as_list()
            self._journal.sent(self._position, counts)
            for cell in counts:
                self.stats.messages[cell.topic] = (
                    self.stats.messages.get(cell.topic, 0) + cell.count
                )
        for each in self._sets:
            if each.target is not None:
                broker_id = each.target[0]
                self.stats.keyed_bytes[broker_id] = self.stats.keyed_bytes.get(broker_id, 0) + len(
                    each.encoded
                )
        if sequence >= 0:
            self._journal.published(sequence)
            self.stats.monitoring_events += sum(each.sequence >= 0 for each in self._sets)
        if self.stats.resent_sets > self._resent_before:
            self._resent_before = self.stats.resent_sets
            self._repeated_ms = self._clock()
            self._last_heartbeat = float("-inf")  # to report it before the window is judged
        self._sets = []
        self._sent_count = 0
        self._message_count = 0
        self._byte_count = 0
        self._counts = WindowCounts(self._journal.state.window_ms)
        self._has_position = False
        self._unflushed_since = None

    def _flush_due(self) -> float | None:
        if self._unflushed_since is None:
            return None
        return self._unflushed_since + self._policy.flush_interval_ms / 1000

    # --- monitoring events -------------------------------------------------------------------

    def _publish(self) -> None:
        """Make monitoring events of the confirmed counts; the next barrier confirms them."""
        if not self._journal.state.pending:
            return
        bytes_max = self._producer.config.payload_bytes_max
        for event in self._journal.make_events(self._clock(), bytes_max):
            self._add_monitoring(event)
        self._send_unsent()

    def _send_heartbeat(self, *, is_last: bool) -> None:
        """Send a heartbeat; the next barrier confirms it."""
        payload = heartbeat_payload(
            self._journal.state,
            self._service,
            time_ms=self._clock(),
            interval_ms=self._policy.heartbeat_interval_ms,
            is_last=is_last,
            repeated_ms=self._repeated_ms,
        )
        self._add_set(AUDIT, [payload])
        if self._unflushed_since is None:
            self._unflushed_since = self._monotonic()
        self._send_unsent()

    def _add_monitoring(self, event: JournalledEvent) -> None:
        payload = monitoring_payload(self._journal.state, event, self._service)
        self._add_set(AUDIT, [payload], event.sequence)
        if self._unflushed_since is None:
            self._unflushed_since = self._monotonic()


def _chunks(payloads: list[bytes], messages_max: int) -> list[list[bytes]]:
    """Cut by count and by SET_BYTES_MAX; a larger payload is a chunk of its own."""
    found = []
    for start in range(0, len(payloads), messages_max):
        chunk = payloads[start : start + messages_max]
        if sum(map(len, chunk)) <= SET_BYTES_MAX:
            found.append(chunk)
            continue
        part: list[bytes] = []
        size = 0
        for payload in chunk:
            if part and size + len(payload) > SET_BYTES_MAX:
                found.append(part)
                part, size = [], 0
            part.append(payload)
            size += len(payload)
        found.append(part)
    return found
