"""The asynchronous producer's engine: one bounded queue and one sender thread per broker.

`put` only appends; the thread takes what has collected, when there is a batch of it or the oldest
has waited for `queue.time`, and sends it as MultiProduce requests. Nothing is swallowed: a message
that found no room is counted and raised to its sender, one that could not be sent is counted,
logged, and named by the next `flush`.

What could not be sent is tried again `num.retries` times. `Unlike 0.7:` that reads the list of
brokers anew and places each message as if it came now (`producer.rerouting`), so that a broker's
death costs nothing; the original tries the same broker.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka2011.producer.batching import BatchTrigger, SetPart, frame_pieces, payload_bytes
from kafka2011.producer.callbacks import Event, ProducerCallbacks
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.encoding import BatchEncoder
from kafka2011.producer.errors import (
    BrokerUnavailable,
    BrokerUnreachable,
    ProducerClosed,
    QueueFull,
    Unconfirmed,
)
from kafka2011.producer.intake import Intake, QueuedEvent, group
from kafka2011.producer.rerouting import Rerouter
from kafka2011.protocol.requests import Buffer
from kafka2011.runtime.logs import get_logger

# Several requests go to the kernel in one call: a thread that waits for the interpreter lock after
# every small write gets it back only some milliseconds later.
WRITE_BYTES_MAX = 256 * 1024
IDLE_WAIT_S = 1.0  # with queue.time=0 each message wakes the sender
RETRY_PAUSE_S = 0.1  # 0.7's pause between the retries of a batch

log = get_logger(__name__)


@dataclass(slots=True)
class QueueStats:
    """Counters of one queue, in messages but for `batches`; each is written under one lock."""

    taken: int = 0  # accepted by `put`, and out of the queue again
    dropped: int = 0  # found no room in the queue
    failed: int = 0  # taken from the queue and not sent, after all retries
    sent: int = 0  # handed to the connection
    batches: int = 0
    rerouted: int = 0  # sent to another broker than they were queued for


class BrokerQueue:
    """The queue and the sender of one broker; owns its connection."""

    def __init__(
        self,
        connection: BrokerConnection,
        config: ProducerConfig,
        *,
        encoder: BatchEncoder,
        rerouter: Rerouter,
        callbacks: ProducerCallbacks | None = None,
    ) -> None:
        self._connection = connection
        self._config = config
        self.stats = QueueStats()
        self._callbacks = callbacks
        self._encoder = encoder
        self._rerouter = rerouter
        # A queue that cannot hold a batch is sent when it is full.
        self._batch_size = min(config.batch_size, config.queue_size)
        self._wake_size = self._batch_size if config.queue_time_ms else 1
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting = 0  # senders of messages that wait for room
        self._is_closing = False
        self._wake = threading.Event()
        self._queue = Intake(config.queue_size, self._wake_size, self._wake.set, self._put_slowly)
        # One message: straight into the queue, unless a hook wants to see it first.
        self.put_one: Callable[[str, int, bytes, Any], object] = (
            self._queue.put_one if callbacks is None else self._put_slowly
        )
        self._flushed = threading.Condition()
        self._flush_asked = 0
        self._flush_done = 0
        self._flush_until_ns = 0  # the deadline of the last one that was asked for
        self._lost: list[Unconfirmed] = []
        self._lost_reason = ""
        self._thread = threading.Thread(
            target=self._run, name=f"send-{connection.name}", daemon=True
        )
        self._thread.start()

    # --- any thread --------------------------------------------------------------------------

    def _put_slowly(self, topic: str, partition: int, payload: bytes, key: Any = None) -> None:
        self.put(topic, partition, [payload], key)

    def put(self, topic: str, partition: int, payloads: Sequence[bytes], key: Any = None) -> None:
        """Queue the payloads in order.

        Raises QueueFull (that payload and those behind it were dropped, and counted) or
        ProducerClosed.
        """
        queue = self._queue
        for index, payload in enumerate(payloads):
            event = Event(topic, partition, payload, key)
            if self._callbacks is not None:
                event = self._callbacks.before_enqueue(event)
                if type(event.payload) is not bytes:
                    event = event._replace(payload=payload_bytes(event.payload))
            try:
                if not queue.offer(event):
                    self._wait_for_room(event)
            except QueueFull:
                with self._lock:
                    self.stats.dropped += len(payloads) - index
                if self._callbacks is not None:
                    self._callbacks.after_enqueue(event, False)
                raise
            if self._callbacks is not None:
                self._callbacks.after_enqueue(event, True)
            if len(queue) >= self._wake_size and not self._wake.is_set():
                self._wake.set()

    def _wait_for_room(self, event: QueuedEvent) -> None:
        """Queue it as soon as there is room; wait for that as `queue.enqueueTimeout.ms` says."""
        timeout_ms = self._config.enqueue_timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        with self._room:
            self._waiting += 1
            try:
                while not self._queue.offer(event):
                    if self._is_closing:
                        raise ProducerClosed("the producer was closed")
                    self._wake.set()
                    left = None if timeout_ms < 0 else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise QueueFull(
                            f"queue.size={self._config.queue_size} messages wait for "
                            f"{self._connection.name}"
                        )
                    self._room.wait(left)
            finally:
                self._waiting -= 1

    @property
    def queued(self) -> int:
        """Messages accepted so far."""
        with self._lock:
            return self.stats.taken + len(self._queue)

    def ask_flush(self, deadline_ns: int) -> int:
        """Have the thread send everything and make a barrier; a ticket for `await_flush`."""
        with self._flushed:
            self._flush_until_ns = deadline_ns
            self._flush_asked += 1
            ticket = self._flush_asked
        self._wake.set()
        return ticket

    def await_flush(self, ticket: int, deadline_ns: int) -> tuple[list[Unconfirmed], str]:
        """What is not known to be durable, and why; told once."""
        with self._flushed:
            is_done = self._flushed.wait_for(
                lambda: self._flush_done >= ticket,
                max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9),
            )
            lost, self._lost = self._lost, []
            reason = self._lost_reason
        if not is_done:
            # Copied under the sender's feet: what it has taken is not in the queue, and not known.
            lost += self._queued()
            reason = "not sent and answered in time"
        return lost, reason

    def ask_close(self) -> None:
        """No more `put`; the thread sends what is queued and ends."""
        with self._room:
            self._queue.close()  # before the sender sees the end and looks for the last time
            self._is_closing = True
            self._room.notify_all()
        self._wake.set()

    def join(self, deadline_ns: int) -> tuple[list[Unconfirmed], str]:
        """Wait for the thread's end; what it could not make durable, and why."""
        self._thread.join(max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
        with self._flushed:
            lost, self._lost = self._lost, []
            reason = self._lost_reason
        if self._thread.is_alive():
            lost += self._queued()
            reason = "not sent and answered in time"
        return lost, reason

    def _queued(self) -> list[Unconfirmed]:
        by_topic: dict[str, list[int]] = {}
        for topic, _, payload, _ in self._queue.waiting():
            counts = by_topic.setdefault(topic, [0, 0])
            counts[0] += 1
            counts[1] += len(payload)
        name = self._connection.name
        if not by_topic:
            return [Unconfirmed(name, "(in flight)", 0, 0)]
        return [Unconfirmed(name, topic, *counts) for topic, counts in by_topic.items()]

    # --- the sender's thread -----------------------------------------------------------------

    def _run(self) -> None:
        trigger = BatchTrigger(
            self._batch_size, self._config.queue_time_ms / 1000, time.monotonic()
        )
        while True:
            # Looked up before the queue: what was put before a flush is sent before it is done.
            asked = self._flush_asked
            is_flush = asked > self._flush_done
            is_closing = self._is_closing
            if is_flush or is_closing or trigger.is_due(len(self._queue), time.monotonic()):
                self._send_queued()
                trigger.dispatched(time.monotonic())
            if is_closing and not self._queue:
                self._end()
                return
            if is_flush:
                self._barrier(self._flush_until_ns, asked)
                continue
            self._sleep(trigger)

    def _sleep(self, trigger: BatchTrigger) -> None:
        """Until there is a batch, something is old enough, or a flush or the end is asked for."""
        now = time.monotonic()
        if not self._queue:
            trigger.dispatched(now)  # an empty queue has nothing that grows old
        self._wake.clear()
        # Whoever sets the event does so after the change that these look at.
        if (
            len(self._queue) < self._wake_size
            and self._flush_asked == self._flush_done
            and not self._is_closing
        ):
            self._wake.wait(trigger.wait(now) or IDLE_WAIT_S)

    def _send_queued(self, behind: Sequence[QueuedEvent] = ()) -> None:
        """Send what is queued now and `behind`, in batches, many to a write."""
        with self._lock:
            events: Sequence[QueuedEvent] = [*self._queue.take(), *behind]
            self.stats.taken += len(events)
            if self._waiting:
                self._room.notify_all()
        if self._callbacks is not None and events:
            events = self._hooked(self._callbacks.after_dequeuing, events)
        pieces: list[Buffer] = []
        parts: list[SetPart] = []
        sending: list[QueuedEvent] = []
        size = 0
        for start in range(0, len(events), self._batch_size):
            batch = events[start : start + self._batch_size]
            if self._callbacks is not None:
                batch = self._hooked(self._callbacks.before_sending, batch)
            framed, made = self._framed(batch)
            if not made:
                continue
            pieces += framed
            parts += made
            sending += batch
            size += sum(len(part.message_set) for part in made)
            self.stats.batches += 1
            if size >= WRITE_BYTES_MAX:
                self._write(pieces, parts, sending)
                pieces, parts, sending, size = [], [], [], 0
        if pieces:
            self._write(pieces, parts, sending)

    def _framed(self, batch: Sequence[QueuedEvent]) -> tuple[list[Buffer], Sequence[SetPart]]:
        """The requests' pieces and parts; a batch that cannot be encoded is lost and said to be."""
        pieces: list[Buffer] = []
        parts: list[SetPart] = []
        try:
            requests = self._encoder.requests(batch)
            if len(requests) == 1:  # mostly
                return frame_pieces(requests[0], always_multi=True), requests[0]
            for made in requests:
                pieces += frame_pieces(made, always_multi=True)
                parts += made
        except Exception as error:  # a user's event handler may raise anything, and return it
            self._failed(batch, f"not encoded: {error!r}")
            return [], []
        return pieces, parts

    def _write(
        self, pieces: list[Buffer], parts: list[SetPart], events: Sequence[QueuedEvent]
    ) -> None:
        reason = self._handed_over(b"".join(pieces), parts)
        for _ in range(self._config.num_retries):
            if not reason:
                break
            time.sleep(RETRY_PAUSE_S)
            events, reason = self._retry(events, reason)
        if reason:
            self._failed(events, reason)
        else:
            self.stats.sent += len(events)

    def _handed_over(self, data: bytes, parts: Sequence[SetPart]) -> str:
        """Give frames to our own connection; why that failed, or ""."""
        sizes = [(part.topic, len(part.message_set)) for part in parts]
        try:
            self._connection.send(data, *sizes[0], sizes[1:])
        except BrokerUnavailable as error:
            # What this write left unknown is sent again, or said by the caller.
            is_noted = not isinstance(error, BrokerUnreachable)
            self._keep_lost(self._connection.take_lost(), sizes if is_noted else ())
            self._rerouter.refresh()
            return str(error)
        if self._connection.is_reconnect_due():
            self._connection.barrier(self._config.socket_timeout_ms)
            self._connection.disconnect()
        return ""

    def _retry(
        self, events: Sequence[QueuedEvent], reason: str
    ) -> tuple[Sequence[QueuedEvent], str]:
        """Send each to where it would go now; those that failed again, and why ("": none)."""
        left: list[QueuedEvent] = []
        placed, not_placed = self._rerouter.placed(events)
        last_reason = not_placed or reason
        for address, some in placed.items():
            is_own = self._rerouter.is_own(address)
            for start in range(0, len(some), self._batch_size):
                batch = some[start : start + self._batch_size]
                pieces, made = self._framed(batch)
                if not made:
                    continue
                frames = b"".join(pieces)
                if is_own:
                    failed = self._handed_over(frames, made)
                else:
                    failed = self._rerouter.send(address, frames, made)
                if failed:
                    last_reason = failed
                    left += some[start:]
                    break
                self.stats.sent += len(batch)
                self.stats.rerouted += 0 if is_own else len(batch)
        return left, last_reason if left else ""

    def _failed(self, events: Sequence[QueuedEvent], reason: str) -> None:
        """These are lost: counted, logged, and named by the next flush."""
        self.stats.failed += len(events)
        name = self._connection.name
        log.error("batch_lost", broker=name, messages=len(events), reason=reason)
        try:
            lost = [
                Unconfirmed(name, topic, 1, sum(map(len, payloads)))
                for (topic, _), payloads in group(events).items()
            ]
        except Exception:  # a hook returned what is no event
            lost = [Unconfirmed(name, "(unknown)", 1, 0)]
        with self._flushed:
            self._lost += lost
            self._lost_reason = reason

    def _keep_lost(self, lost: list[Unconfirmed], minus: Sequence[tuple[str, int]] = ()) -> None:
        by_topic = {part.topic: [part.sends, part.set_bytes] for part in lost}
        for topic, size in minus:
            if topic in by_topic:
                by_topic[topic][0] -= 1
                by_topic[topic][1] -= size
        with self._flushed:
            self._lost += [
                Unconfirmed(self._connection.name, topic, *counts)
                for topic, counts in by_topic.items()
                if counts[0] > 0
            ]
            self._lost_reason = self._connection.lost_reason or self._lost_reason

    def _barrier(self, deadline_ns: int, asked: int) -> None:
        self._connection.ask_barrier()
        self._connection.await_barrier(deadline_ns)
        self._keep_lost(self._connection.take_lost())
        with self._flushed:
            self._flush_done = asked
            self._flushed.notify_all()

    def _end(self) -> None:
        callbacks = self._callbacks
        if callbacks is not None:
            last = self._hooked(lambda _none: callbacks.last_batch_before_close(), ())
            if last:
                self._send_queued(last)
        deadline_ns = time.monotonic_ns() + self._config.socket_timeout_ms * 1_000_000
        self._barrier(deadline_ns, self._flush_asked)
        self._connection.disconnect()

    def _hooked(
        self,
        hook: Callable[[Sequence[Event]], Sequence[Event]],
        events: Sequence[QueuedEvent],
    ) -> Sequence[QueuedEvent]:
        try:
            return list(hook([Event(*event) for event in events]))
        except Exception as error:  # a user's hook must not end the sender
            log.error("callback_failed", hook=getattr(hook, "__name__", "?"), reason=repr(error))
            return events
