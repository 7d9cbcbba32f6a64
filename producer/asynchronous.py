"""The asynchronous producer's engine: one bounded queue and one sender thread per broker.

`put` only appends; the thread takes what has collected, when there is a batch of it or the oldest
has waited for `queue.time`, and sends it as MultiProduce requests. Nothing is swallowed: a message
that found no room is counted and raised to its sender, one that could not be sent is counted,
logged, and named by the next `flush`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from producer.batching import BatchTrigger, SetPart, encode_set, group, request_frame
from producer.callbacks import Event, EventHandler, ProducerCallbacks
from producer.config import ProducerConfig
from producer.connection import BrokerConnection
from producer.errors import (
    BrokerUnavailable,
    BrokerUnreachable,
    ProducerClosed,
    QueueFull,
    Unconfirmed,
)
from protocol.compression import Codec
from protocol.errors import MessageSizeTooLarge
from runtime.logs import get_logger

# Several requests go to the kernel in one call: a thread that waits for the interpreter lock after
# every small write gets it back only some milliseconds later.
WRITE_BYTES_MAX = 1024 * 1024
IDLE_WAIT_S = 1.0  # with queue.time=0 each message wakes the sender
RETRY_PAUSE_S = 0.1  # 0.7's pause between the retries of a batch

log = get_logger(__name__)


@dataclass(slots=True)
class QueueStats:
    """Counters of one queue, in messages but for `batches`; each is written under one lock."""

    queued: int = 0  # accepted by `put`
    dropped: int = 0  # found no room in the queue
    failed: int = 0  # taken from the queue and not sent, after all retries
    sent: int = 0  # handed to the connection
    batches: int = 0


class Codecs:
    """Which codec a topic's batches are sent with (`compressed.topics`)."""

    def __init__(self, config: ProducerConfig) -> None:
        self._codec = config.compression_codec
        self._topics = frozenset(config.compressed_topics)

    def of(self, topic: str) -> Codec:
        return self._codec if not self._topics or topic in self._topics else Codec.NONE


class BrokerQueue:
    """The queue and the sender of one broker; owns its connection.

    `on_unreachable` is called when the broker cannot be connected to (the directory may be old).
    """

    def __init__(
        self,
        connection: BrokerConnection,
        config: ProducerConfig,
        *,
        callbacks: ProducerCallbacks | None = None,
        event_handler: EventHandler | None = None,
        on_unreachable: Callable[[], object] = lambda: None,
    ) -> None:
        self._connection = connection
        self._config = config
        self.stats = QueueStats()
        self._callbacks = callbacks
        self._handler = event_handler
        self._on_unreachable = on_unreachable
        self._codecs = Codecs(config)
        self._size = config.queue_size
        # A queue that cannot hold a batch is sent when it is full.
        self._batch_size = min(config.batch_size, config.queue_size)
        self._wake_size = self._batch_size if config.queue_time_ms else 1
        self._queue: list[tuple[str, int, bytes]] = []
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting = 0  # senders of messages that wait for room
        self._is_closing = False
        self._wake = threading.Event()
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

    def put_one(self, topic: str, partition: int, payload: bytes) -> None:
        """`put` of one payload, as quick as it can be."""
        queue = self._queue
        with self._lock:
            length = len(queue) + 1
            is_plain = length <= self._size and self._callbacks is None and not self._is_closing
            if is_plain:
                queue.append((topic, partition, payload))
                self.stats.queued += 1
        if not is_plain:
            self.put(topic, partition, [payload])
        elif length == self._wake_size:
            self._wake.set()

    def put(self, topic: str, partition: int, payloads: Sequence[bytes]) -> None:
        """Queue the payloads in order.

        Raises QueueFull (that payload and those behind it were dropped, and counted) or
        ProducerClosed.
        """
        queue = self._queue
        for index, payload in enumerate(payloads):
            event = Event(topic, partition, payload)
            if self._callbacks is not None:
                event = self._callbacks.before_enqueue(event)
            try:
                with self._lock:
                    if len(queue) >= self._size or self._is_closing:
                        self._await_room()
                    queue.append(event)
                    self.stats.queued += 1
                    is_batch = len(queue) >= self._wake_size
            except QueueFull:
                with self._lock:
                    self.stats.dropped += len(payloads) - index
                if self._callbacks is not None:
                    self._callbacks.after_enqueue(event, False)
                raise
            if self._callbacks is not None:
                self._callbacks.after_enqueue(event, True)
            if is_batch and not self._wake.is_set():
                self._wake.set()

    def _await_room(self) -> None:
        """Wait as `queue.enqueueTimeout.ms` says; the lock is held."""
        timeout_ms = self._config.enqueue_timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        self._waiting += 1
        try:
            while len(self._queue) >= self._size and not self._is_closing:
                self._wake.set()
                left = None if timeout_ms < 0 else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise QueueFull(
                        f"queue.size={self._size} messages wait for {self._connection.name}"
                    )
                self._room.wait(left)
        finally:
            self._waiting -= 1
        if self._is_closing:
            raise ProducerClosed("the producer was closed")

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
        for topic, _, payload in tuple(self._queue):
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

    def _send_queued(self) -> None:
        """Send what is queued now, in batches, many to a write."""
        with self._lock:
            events: Sequence[tuple[str, int, bytes]] = self._queue.copy()
            self._queue.clear()
            if self._waiting:
                self._room.notify_all()
        if self._callbacks is not None and events:
            events = self._hooked(self._callbacks.after_dequeuing, events)
        frames: list[bytes] = []
        parts: list[SetPart] = []
        message_count = 0
        size = 0
        for start in range(0, len(events), self._batch_size):
            batch = events[start : start + self._batch_size]
            made = self._parts_of(batch)
            if not made:
                continue
            frames.append(request_frame(made, always_multi=True))
            parts += made
            message_count += len(batch)
            size += len(frames[-1])
            self.stats.batches += 1
            if size >= WRITE_BYTES_MAX:
                self._write(frames, parts, message_count)
                frames, parts, message_count, size = [], [], 0, 0
        if frames:
            self._write(frames, parts, message_count)

    def _parts_of(self, batch: Sequence[tuple[str, int, bytes]]) -> Sequence[SetPart]:
        """The request's parts; a batch that cannot be encoded is lost, and said to be."""
        if self._callbacks is not None:
            batch = self._hooked(self._callbacks.before_sending, batch)
        try:
            if self._handler is not None:
                return self._handler([Event(*event) for event in batch])
            return self._grouped(batch)
        except Exception as error:  # a user's event handler may raise anything
            self.stats.failed += len(batch)
            self._note_lost(
                [SetPart(*key, b"".join(payloads)) for key, payloads in group(batch).items()],
                f"not encoded: {error!r}",
            )
            return ()

    def _grouped(self, batch: Sequence[tuple[str, int, bytes]]) -> Sequence[SetPart]:
        parts: list[SetPart] = []
        for (topic, partition), payloads in group(batch).items():
            self._add_part(parts, topic, partition, payloads)
        return parts

    def _add_part(
        self, parts: list[SetPart], topic: str, partition: int, payloads: list[bytes]
    ) -> None:
        limit = self._config.max_message_bytes
        try:
            encoded = encode_set(payloads, self._codecs.of(topic), limit)
        except MessageSizeTooLarge:
            if len(payloads) == 1:
                encoded = encode_set(payloads, Codec.NONE, limit)  # `send` checked it plain
            else:  # too much for one compressed message
                middle = len(payloads) // 2
                self._add_part(parts, topic, partition, payloads[:middle])
                self._add_part(parts, topic, partition, payloads[middle:])
                return
        parts.append(SetPart(topic, partition, encoded))

    def _write(self, frames: list[bytes], parts: list[SetPart], message_count: int) -> None:
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        sizes = [(part.topic, len(part.message_set)) for part in parts]
        for attempt in range(self._config.num_retries + 1):
            if attempt:
                time.sleep(RETRY_PAUSE_S)
            try:
                self._connection.send(data, *sizes[0], sizes[1:])
            except BrokerUnavailable as error:
                self._on_unreachable()
                reason = str(error)
                # What this write left unknown is sent again now, or said below.
                is_noted = not isinstance(error, BrokerUnreachable)
                self._keep_lost(self._connection.take_lost(), sizes if is_noted else ())
                continue
            self.stats.sent += message_count
            if self._connection.is_reconnect_due():
                self._connection.barrier(self._config.socket_timeout_ms)
                self._connection.disconnect()
            return
        self.stats.failed += message_count
        self._note_lost(parts, reason)

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

    def _note_lost(self, parts: Sequence[SetPart], reason: str) -> None:
        log.error("batch_lost", broker=self._connection.name, parts=len(parts), reason=reason)
        with self._flushed:
            self._lost += [
                Unconfirmed(self._connection.name, part.topic, 1, len(part.message_set))
                for part in parts
            ]
            self._lost_reason = reason

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
            self._queue.extend(last)
            if last:
                self._send_queued()
        deadline_ns = time.monotonic_ns() + self._config.socket_timeout_ms * 1_000_000
        self._barrier(deadline_ns, self._flush_asked)
        self._connection.disconnect()

    def _hooked(
        self,
        hook: Callable[[Sequence[Event]], Sequence[Event]],
        events: Sequence[tuple[str, int, bytes]],
    ) -> Sequence[tuple[str, int, bytes]]:
        try:
            return list(hook([Event(*event) for event in events]))
        except Exception as error:  # a user's hook must not end the sender
            log.error("callback_failed", hook=getattr(hook, "__name__", "?"), reason=repr(error))
            return events
