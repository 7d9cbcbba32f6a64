"""One broker's bounded queue and sender thread.

`put` only appends. The thread takes the queue's messages when they make a batch or the oldest has
waited for `queue.time`, and sends them as MultiProduce requests. No message is dropped silently:
one that found no room is counted and raises QueueFull in its `send`; one that could not be sent is
counted, logged, and named by the next `flush`. If the thread ends by an unexpected exception, all
messages that it had taken and all that are queued are named in the same way, and each further `put`
raises SenderFailed.

A failed batch is retried `num.retries` times. `Unlike 0.7:` a retry reads the list of brokers again
and places each message as if it were new (`rerouting`), so that the death of a broker loses
nothing; the original retries the same broker.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from kafka2011.producer.asynchronous.batch_encoder import BatchEncoder
from kafka2011.producer.asynchronous.batch_trigger import BatchTrigger
from kafka2011.producer.asynchronous.callbacks import Event, ProducerCallbacks
from kafka2011.producer.asynchronous.intake import Intake, QueuedEvent, group
from kafka2011.producer.asynchronous.rerouting import Rerouter
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.errors import (
    IN_FLIGHT,
    BrokerUnavailable,
    BrokerUnreachable,
    Link,
    ProducerClosed,
    QueueFull,
    SenderFailed,
    Unconfirmed,
)
from kafka2011.producer.requests import SetPart, frame_pieces
from kafka2011.protocol.message_set import payload_bytes
from kafka2011.protocol.requests import Buffer
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

# Several requests go to the kernel in one call: after every small write the thread waits some
# milliseconds to get the interpreter lock back.
WRITE_BYTES_MAX = 256 * 1024
IDLE_WAIT_S = 1.0  # with queue.time=0 each message wakes the sender
RETRY_PAUSE_S = 0.1  # 0.7's pause between the retries of a batch

log = get_logger(__name__)


@dataclass(slots=True)
class QueueStats:
    """Counters of one queue, in messages but for `batches`, `sends` (produce parts written to a
    connection) and `set_bytes` (theirs). Each is written by the sender thread or under one lock."""

    taken: int = 0  # accepted by `put` and taken from the queue
    dropped: int = 0  # found no room in the queue
    failed: int = 0  # taken from the queue and not sent, after all retries
    sent: int = 0  # written to the connection
    batches: int = 0
    rerouted: int = 0  # sent to a broker other than the queue's
    sends: int = 0
    set_bytes: int = 0


def total(stats: Sequence[QueueStats]) -> QueueStats:
    """The sum of several queues' counters."""
    return QueueStats(*map(sum, zip(*map(astuple, stats), strict=True)))


class BrokerQueue:
    """The queue and the sender thread of one broker; owns its connection."""

    def __init__(
        self,
        connection: BrokerConnection,
        config: ProducerConfig,
        *,
        encoder: BatchEncoder,
        rerouter: Rerouter,
        callbacks: ProducerCallbacks | None = None,
        on_sent: Callable[[Link, Sequence[QueuedEvent]], None] | None = None,
        on_barrier: Callable[[str], None] | None = None,
    ) -> None:
        """`on_sent` gets each batch that was written to a connection, and the connection; number 0
        of the broker's: a barrier has confirmed it already. `on_barrier` gets the broker's name
        before each barrier of a flush."""
        self._on_sent = on_sent
        self._on_barrier = on_barrier
        self._connection = connection
        self.broker = connection.name  # host:port
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
        self._waiting = 0  # calls of `put` that wait for room
        self._is_closing = False
        self._wake = threading.Event()
        self._queue = Intake(config.queue_size, self._wake_size, self._wake.set, self._put_slowly)
        # One message goes straight into the queue, unless callbacks come first.
        self.put_one: Callable[[str, int, bytes, Any], object] = (
            self._queue.put_one if callbacks is None else self._put_slowly
        )
        self._flushed = threading.Condition()
        self._flush_requested = 0
        self._flush_done = 0
        self._flush_until_ns = 0  # the deadline of the last flush requested
        self._lost: list[Unconfirmed] = []
        self._lost_reason = ""
        self._in_hand: Sequence[QueuedEvent] = ()  # taken, and neither sent nor given up
        self._failure: BaseException | None = None  # that ended the thread
        self._worker = Worker(
            self._run, f"send-{connection.name}", restarts=False, on_failure=self._broken
        )
        self._worker.start()

    # --- any thread --------------------------------------------------------------------------

    def _put_slowly(self, topic: str, partition: int, payload: bytes, key: Any = None) -> None:
        self.put(topic, partition, [payload], key)

    def put(self, topic: str, partition: int, payloads: Sequence[bytes], key: Any = None) -> None:
        """Queue the payloads in order.

        Raises QueueFull (that payload and those behind it were dropped, and counted),
        ProducerClosed or SenderFailed.
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
        """Queue the event, waiting for room as `queue.enqueueTimeout.ms` allows."""
        timeout_ms = self._config.enqueue_timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        with self._room:
            self._waiting += 1
            try:
                while not self._queue.offer(event):
                    if self._failure is not None:
                        raise SenderFailed(
                            f"nothing more is sent to {self._connection.name}: its thread was "
                            f"ended by {self._failure!r}"
                        ) from self._failure
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

    @property
    def is_waited_for(self) -> bool:
        """Whether a call of `put` waits for room."""
        return bool(self._waiting)

    @property
    def has_ended(self) -> bool:
        """Whether its thread has ended."""
        return not self._worker.is_alive()

    def request_flush(self, deadline_ns: int) -> int:
        """Let the thread send everything and make a barrier; returns a ticket for `await_flush`."""
        with self._flushed:
            self._flush_until_ns = deadline_ns
            self._flush_requested += 1
            ticket = self._flush_requested
        self._wake.set()
        return ticket

    def await_flush(self, ticket: int, deadline_ns: int) -> tuple[list[Unconfirmed], str, bool]:
        """Wait for the flush; return the sends that it found lost, each once, the reason, and
        whether it was done by the deadline: if not, `unsettled` has the others."""
        with self._flushed:
            is_done = self._flushed.wait_for(
                lambda: self._flush_done >= ticket,
                max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9),
            )
            lost, self._lost = self._lost, []
            return lost, self._lost_reason, is_done

    def request_close(self) -> None:
        """Refuse further `put`; the thread sends what is queued and ends."""
        with self._room:
            self._queue.close()  # before the thread sees `_is_closing` and takes the last messages
            self._is_closing = True
            self._room.notify_all()
        self._wake.set()

    def join(self, deadline_ns: int) -> tuple[list[Unconfirmed], str, bool]:
        """Wait for the thread's end; returns as `await_flush`."""
        self._worker.join(max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
        with self._flushed:
            lost, self._lost = self._lost, []
            return lost, self._lost_reason, not self._worker.is_alive()

    def unsettled(self) -> list[Unconfirmed]:
        """What the queue holds, by topic, and one that stands for all that the thread has taken."""
        by_topic: dict[str, list[int]] = {}
        for topic, _, payload, _ in self._queue.waiting():
            counts = by_topic.setdefault(topic, [0, 0])
            counts[0] += 1
            counts[1] += len(payload)
        name = self._connection.name
        named = [Unconfirmed(name, topic, *counts) for topic, counts in by_topic.items()]
        # What the thread has taken, or has sent without a confirmation, it alone knows.
        return [*named, Unconfirmed(name, IN_FLIGHT, 0, 0)]

    # --- the sender's thread -----------------------------------------------------------------

    def _run(self) -> None:
        trigger = BatchTrigger(
            self._batch_size, self._config.queue_time_ms / 1000, time.monotonic()
        )
        while True:
            # Read before the queue: what was put before a flush is sent before the flush is done.
            requested = self._flush_requested
            is_flush = requested > self._flush_done
            is_closing = self._is_closing
            if is_flush or is_closing or trigger.is_due(len(self._queue), time.monotonic()):
                self._send_queued()
                trigger.dispatched(time.monotonic())
            if is_closing and not self._queue:
                self._end()
                return
            if is_flush:
                self._barrier(self._flush_until_ns, requested)
                continue
            self._sleep(trigger)

    def _sleep(self, trigger: BatchTrigger) -> None:
        """Wait for a batch, for `queue.time`, or for a requested flush or close."""
        now = time.monotonic()
        if not self._queue:
            trigger.dispatched(now)  # an empty queue does not age
        wait_s = trigger.wait(now)
        if not wait_s:
            if self._queue:
                return  # it has come due since `_run` looked
            wait_s = IDLE_WAIT_S
        self._wake.clear()
        # Checked after `clear`: other threads change this state first, and then set the event.
        if (
            len(self._queue) < self._wake_size
            and self._flush_requested == self._flush_done
            and not self._is_closing
        ):
            self._wake.wait(wait_s)

    def _send_queued(self, behind: Sequence[QueuedEvent] = ()) -> None:
        """Send the queue's messages and then `behind`, in batches, several batches in a write."""
        with self._lock:
            events: Sequence[QueuedEvent] = [*self._queue.take(), *behind]
            self._in_hand = events
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
                self._in_hand = events[start + self._batch_size :]
                pieces, parts, sending, size = [], [], [], 0
        if pieces:
            self._write(pieces, parts, sending)
        self._in_hand = ()

    def _framed(self, batch: Sequence[QueuedEvent]) -> tuple[list[Buffer], Sequence[SetPart]]:
        """The frames' pieces and the parts; a batch that cannot be encoded is counted as lost."""
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
        reason = self._send_frames(b"".join(pieces), parts)
        for _ in range(self._config.num_retries):
            if not reason:
                break
            time.sleep(RETRY_PAUSE_S)
            events, reason = self._retry(events, reason)
        if reason:
            self._failed(events, reason)
        else:
            self._note_sent(self._connection.link, events)

    def _note_sent(self, link: Link, events: Sequence[QueuedEvent]) -> None:
        self.stats.sent += len(events)
        if self._on_sent is not None:
            self._on_sent(link, events)

    def _send_frames(self, data: bytes, parts: Sequence[SetPart]) -> str:
        """Send frames to the queue's own broker; return the reason of a failure, or ""."""
        sizes = [(part.topic, len(part.message_set)) for part in parts]
        try:
            self._connection.send(data, *sizes[0], sizes[1:])
        except BrokerUnavailable as error:
            # The caller retries this write or reports it lost, so it is not reported here.
            is_noted = not isinstance(error, BrokerUnreachable)
            self._keep_lost(self._connection.take_lost(), sizes if is_noted else ())
            self._rerouter.refresh()
            return str(error)
        self._count(sizes)
        if self._connection.is_reconnect_due():
            self._connection.barrier(self._config.socket_timeout_ms)
            self._connection.disconnect()
        return ""

    def _count(self, sizes: Sequence[tuple[str, int]]) -> None:
        """Count parts that were written, by their topics and sizes."""
        self.stats.sends += len(sizes)
        self.stats.set_bytes += sum(size for _, size in sizes)

    def _retry(
        self, events: Sequence[QueuedEvent], reason: str
    ) -> tuple[Sequence[QueuedEvent], str]:
        """Send each event to its current broker; return those that failed, and the reason or ""."""
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
                    failed = self._send_frames(frames, made)
                    link = self._connection.link
                else:
                    failed = self._rerouter.send(address, frames, made)
                    link = Link(f"{address[0]}:{address[1]}", 0)
                    if not failed:
                        self._count([(part.topic, len(part.message_set)) for part in made])
                if failed:
                    last_reason = failed
                    left += some[start:]
                    break
                self._note_sent(link, batch)
                self.stats.rerouted += 0 if is_own else len(batch)
        return left, last_reason if left else ""

    def _failed(self, events: Sequence[QueuedEvent], reason: str) -> None:
        """Count and log lost events; the next flush names them."""
        if not events:
            return
        self.stats.failed += len(events)
        name = self._connection.name
        log.error("batch_lost", broker=name, messages=len(events), reason=reason)
        try:
            lost = [
                Unconfirmed(name, topic, 1, sum(map(len, payloads)))
                for (topic, _), payloads in group(events).items()
            ]
        except Exception:  # a hook returned something that is not an event
            lost = [Unconfirmed(name, "(unknown)", 1, 0)]
        with self._flushed:
            self._lost += lost
            self._lost_reason = reason

    def _keep_lost(self, lost: list[Unconfirmed], minus: Sequence[tuple[str, int]] = ()) -> None:
        """Let the next flush name these, except the parts `minus`, which are sent again."""
        changes = [(part.topic, part.connection, part.sends, part.set_bytes) for part in lost]
        last = self._connection.connect_count
        changes += [(topic, last, -1, -size) for topic, size in minus]
        found: dict[tuple[str, int], list[int]] = {}
        for topic, connection, sends, set_bytes in changes:
            counts = found.setdefault((topic, connection), [0, 0])
            counts[0] += sends
            counts[1] += set_bytes
        with self._flushed:
            self._lost += [
                Unconfirmed(self._connection.name, topic, sends, set_bytes, connection)
                for (topic, connection), (sends, set_bytes) in found.items()
                if sends > 0
            ]
            self._lost_reason = self._connection.lost_reason or self._lost_reason

    def _barrier(self, deadline_ns: int, requested: int) -> None:
        if self._on_barrier is not None:
            self._on_barrier(self._connection.name)
        self._connection.request_barrier(deadline_ns)
        self._connection.await_barrier(deadline_ns)
        self._keep_lost(self._connection.take_lost())
        with self._flushed:
            self._flush_done = requested
            self._flushed.notify_all()

    def _end(self) -> None:
        callbacks = self._callbacks
        if callbacks is not None:
            last = self._hooked(lambda _none: callbacks.last_batch_before_close(), ())
            if last:
                self._send_queued(last)
        deadline_ns = time.monotonic_ns() + self._config.socket_timeout_ms * 1_000_000
        self._barrier(deadline_ns, self._flush_requested)
        self._connection.disconnect()

    def _broken(self, error: BaseException) -> None:
        """The thread's last act: name all that is not confirmed, and let no caller wait."""
        self._failure = error
        reason = f"the sender thread was ended by {error!r}"
        self._queue.close()
        with self._room:
            waiting = self._queue.take()
            self.stats.taken += len(waiting)
            self._room.notify_all()
        try:
            self._connection.disconnect()
        finally:
            self._keep_lost(self._connection.take_lost())
            self._failed([*self._in_hand, *waiting], reason)
            with self._flushed:
                self._lost_reason = reason
                self._flush_done = sys.maxsize  # only now that everything is named
                self._flushed.notify_all()

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
