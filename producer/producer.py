"""The producer: `send` writes messages to a broker or queues them, `flush` waits for durability.

One call may carry several parts, grouped by broker: one part for a broker makes a Produce request,
several make one MultiProduce, as in 0.7. Once bytes were sent, the synchronous producer does not
retry: that could store messages twice, and only the application can judge whether that matters.
NotDurable names what is not known to be stored.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, Unpack, overload

from kafka2011.coordination.registry import Registry
from kafka2011.producer.asynchronous.callbacks import (
    EventHandler,
    ProducerCallbacks,
    new_callbacks,
    new_handler,
)
from kafka2011.producer.asynchronous.intake import QueuedEvent
from kafka2011.producer.asynchronous.queues import Queues
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connections import Connections
from kafka2011.producer.discovery import Target, new_discovery
from kafka2011.producer.errors import (
    IN_FLIGHT,
    BrokerUnreachable,
    Link,
    NotDurable,
    ProducerClosed,
    Unconfirmed,
)
from kafka2011.producer.keywords import AnyBytes, BytesLike, Message, ProducerSettings
from kafka2011.producer.losses import HeldLosses, summed
from kafka2011.producer.requests import SetPart, TopicNames
from kafka2011.producer.set_sends import SetSends
from kafka2011.producer.single_sends import SingleSends
from kafka2011.producer.stats import ProducerStats
from kafka2011.protocol.errors import LocalProtocolError
from kafka2011.protocol.message_set import payloads as payloads_of
from kafka2011.protocol.requests import ANY_PARTITION
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.keywords import with_keywords
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.shared_settings import INT_MAX, Address

if TYPE_CHECKING:
    from kafka2011.producer.counting.sent_counts import SentCounts

log = get_logger(__name__)

FLUSH_TIMEOUT_MS = 30_000


class Part(NamedTuple, Generic[Message]):
    """Payloads of one topic for one partition, which `key` chooses."""

    topic: str
    payloads: Sequence[Message]
    key: Any = None


class Producer(Generic[Message]):
    """Sends to the brokers of `broker_list=`, `zk_connect=`, or of a started `registry`.

    It takes `config`, or keyword arguments named as the fields of ProducerConfig, with values as in
    a properties file or parsed. Thread-safe; synchronous sends wait for one another. A signal
    handler or a finaliser that interrupts one of them must not send or flush: RuntimeError.
    `producer_type="async"` makes it asynchronous.

    `serializer` tells a type checker what may be sent; if a `config` or a text names it, declare
    the type: `producer: Producer[Click] = Producer(config)`.

    Raises TypeError for a keyword that is no setting, and ConfigError for a value that does not
    fit.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        registry: Registry | None = None,
        callbacks: ProducerCallbacks | None = None,
        event_handler: EventHandler | str | None = None,
        serializer: Callable[[Message], bytes] | str | None = None,
        rng: random.Random | None = None,
        sleep: Callable[[float], object] = time.sleep,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        values: dict[str, Any] = {**settings}
        if serializer is not None:
            values["serializer"] = serializer
        if isinstance(event_handler, str):  # the setting `event.handler`
            values["event_handler"] = event_handler
            event_handler = None
        own = ("registry", "callbacks", "event_handler", "rng", "sleep")
        self.config = config = with_keywords("Producer", config or ProducerConfig(), values, own)
        rng = rng or random.Random()
        self._lock = threading.RLock()
        self._is_closed = False
        self._is_async = config.producer_type == "async"
        try:
            self._callbacks = callbacks or new_callbacks(
                config.callback_handler, config.callback_handler_props
            )
            handler = event_handler or new_handler(config.event_handler, config.event_handler_props)
        except TypeError as error:
            raise ConfigError(str(error)) from None
        if not self._is_async and (self._callbacks or handler):
            log.warning("hooks_ignored", reason="callbacks and handlers need producer.type=async")
        self._stats = ProducerStats()
        self._connections = Connections(config, self._stats, sleep=sleep, rng=rng)
        self._discovery, self._own_registry = new_discovery(config, registry, rng)
        self._topic_names = TopicNames()
        self._sets = SetSends(config, self._connections, self._topic_names, self._stats)
        self._queues = Queues(
            config,
            self._discovery,
            self._connections.new,
            self._lock,
            topic_names=self._topic_names,
            stats=self._stats,
            handler=handler,
            callbacks=self._callbacks,
            on_sent=self._count_events if config.audit_enable else None,
            on_barrier=self._count_barrier if config.audit_enable else None,
        )
        # Read at every send.
        self._message_bytes_max = config.payload_bytes_max
        self._serialize = config.serializer
        self._queue_of = self._queues.by_address.get
        self._is_one_broker = len(config.broker_list) == 1
        # With a single broker: topic -> the `put_one`, of its queue or of a `SingleSends`, that
        # takes a single message.
        self._straight: dict[str, Callable[[str, int, bytes, Any], object]] = {}
        self._single_sends: dict[str, SingleSends] = {}
        self._takes_single_straight = (
            self._is_one_broker
            and self._serialize is None
            and not config.compression_codec
            and not config.audit_enable
        )
        self._held = HeldLosses()
        self._counts = self._counting(registry) if config.audit_enable else None

    def _counting(self, registry: Registry | None) -> "SentCounts":
        """The counts of what is sent; they are reported on connections of their own."""
        from kafka2011.producer.counting.journal import JournalCorrupt, JournalInUse
        from kafka2011.producer.counting.sent_counts import SentCounts

        shared = registry or self._own_registry
        try:
            return SentCounts(
                self.config,
                confirm=self._confirm,
                connect=lambda plain: Producer(plain, registry=shared),
                has_registry=shared is not None,
            )
        except (JournalInUse, JournalCorrupt, ValueError, OSError) as error:
            self._release()
            raise ConfigError(f"audit.dir: {reason_of(error)}") from None

    # --- sending -----------------------------------------------------------------------------

    @overload
    def send(
        self: "Producer[BytesLike]",
        topic: str,
        payload: BytesLike | list[AnyBytes],
        key: Any = None,
    ) -> None: ...

    @overload
    def send(self, topic: str, payload: Message | list[Message], key: Any = None) -> None: ...

    def send(self, topic: str, payload: Any, key: Any = None) -> None:
        """Send one payload, or a list of payloads as one message set, to a broker.

        On return the kernel has the bytes, or they are queued if the producer is asynchronous;
        `flush` waits until they are durable. With `zk_connect` the key chooses the partition; the
        default is a random one. With `broker_list` the broker picks the partition and a key has no
        effect. A list above `request.bytes.max` goes in several requests, in order.

        Raises:
          MessageSizeTooLarge: a payload is above max.message.size; nothing was sent.
          IllegalTopicName, InvalidPartition: nothing was sent.
          BrokerUnavailable: no broker could be reached, or the connection broke during the send.
          TypeError: a payload is not bytes or like bytes; nothing was sent.
          QueueFull: asynchronous only; the payload and those behind it were dropped.
          SenderFailed: asynchronous only, after a bug; the payload and those behind it were not
            queued.
        """
        # The fast path of a single message: up to a million calls a second.
        if type(payload) is bytes and len(payload) <= self._message_bytes_max:
            put_one = self._straight.get(topic)
            if put_one is not None:
                put_one(topic, ANY_PARTITION, payload, key)
                return
            if self._is_async and self._serialize is None and topic in self._topic_names:
                target = self._discovery.choose(topic, key)
                queue = self._queue_of(target.address)
                if queue is not None:
                    if self._is_one_broker:
                        self._straight[topic] = queue.put_one
                    queue.put_one(topic, target.partition, payload, key)
                    return
        payloads: Sequence[Any] = payload if isinstance(payload, list) else [payload]
        if self._serialize is not None:
            payloads = self._serialized(payloads)
        if self._is_async:
            self._queues.put(topic, payloads, key)
            return
        with self._lock:
            self._check_open()
            target = self._send_list(topic, payloads, key)
            self._stats.messages += len(payloads)
            if self._takes_single_straight and topic not in self._single_sends:
                single = self._single_sends[topic] = SingleSends(
                    self._connections.of(target.address),
                    self._lock,
                    self._topic_names[topic],
                    self._connections.reconnect,
                )
                self._straight[topic] = single.put_one

    def _send_list(self, topic: str, payloads: Sequence[bytes], key: Any) -> Target:
        """Write a list; each set is counted when it is written. Returns the target."""
        sets = self._sets.encoded(topic, payloads)
        sent_count = 0
        retries = self.config.zk_read_num_retries
        avoid: Address | None = None
        while True:
            target = self._discovery.choose(topic, key, avoid)
            try:
                while sent_count < len(sets):
                    message_set = sets[sent_count][0]
                    link = self._sets.send(target, topic, message_set)
                    sent_count += 1
                    if self._counts is not None:
                        if len(sets) == 1:
                            self._counts.add(link, topic, payloads)
                        else:
                            self._count_sets(link, [SetPart(topic, 0, message_set)])
                return target
            except BrokerUnreachable:  # choose again, as 0.7 does
                if not self._discovery.refresh(target.address) or retries <= 0:
                    raise
                retries -= 1
                avoid = target.address

    def send_parts(self, parts: Sequence[Part[Message]]) -> None:
        """Send parts of several topics or keys in one call; raises as `send` does.

        Where one broker's connection breaks, the parts for the other brokers are still sent, and
        then the first error is raised.
        """
        if self._is_async:
            for topic, payloads, key in parts:
                self._queues.put(topic, self._serialized(payloads), key)
            return
        with self._lock:
            self._check_open()
            by_broker: dict[Address, list[tuple[SetPart, int]]] = {}
            for topic, payloads, key in parts:
                plain = self._serialized(payloads)
                sets = self._sets.encoded(topic, plain)
                target = self._discovery.choose(topic, key)
                by_broker.setdefault(target.address, []).extend(
                    (SetPart(topic, target.partition, message_set), unpacked_bytes)
                    for message_set, unpacked_bytes in sets
                )
                self._stats.messages += len(plain)
            self._send_grouped(by_broker)

    def target_of(self, topic: str, key: Any) -> Target:
        """The broker and partition to which a message with this key would go now. Raises
        BrokerUnavailable, InvalidPartition."""
        return self._discovery.choose(topic, key)

    def send_set(
        self,
        topic: str,
        message_set: bytes,
        *,
        broker_id: int | None = None,
        partition: int = ANY_PARTITION,
    ) -> None:
        """Send an encoded message set unchanged, to `broker_id` and `partition` if given.

        Sizes within the set are not checked. Without `broker_id` a broker is chosen as for a
        message without key, and `partition` replaces the choice unless it is -1. Raises as `send`.
        """
        self._check_sync("send_set")
        with self._lock:
            self._check_open()
            if broker_id is None:
                target = self._discovery.choose(topic, None)
                if partition != ANY_PARTITION:
                    target = target._replace(partition=partition)
            else:
                target = Target(broker_id, self._discovery.address_of(broker_id), partition)
            link = self._sets.send(target, topic, message_set)
            self._count_sets(link, [SetPart(topic, partition, message_set)])

    def send_sets(self, parts: Sequence[SetPart], *, broker_id: int) -> None:
        """Send several encoded sets to one broker, in one request or, above the limits, in several.

        The size of each is not checked. Raises as `send` does.
        """
        self._check_sync("send_sets")
        with self._lock:
            self._check_open()
            address = self._discovery.address_of(broker_id)
            self._send_grouped({address: [(part, 0) for part in parts]})

    def _send_grouped(self, by_broker: Mapping[Address, Sequence[tuple[SetPart, int]]]) -> None:
        """Write each broker's parts; those of each request are counted when it is written."""
        self._sets.send_grouped(by_broker, self._discovery.refresh, self._count_sets)

    def _count_sets(self, link: Link, parts: Iterable[SetPart]) -> None:
        if self._counts is not None:
            for part in parts:
                self._counts.add(link, part.topic, payloads_of(part.message_set, INT_MAX))

    def _serialized(self, payloads: Sequence[Any]) -> Sequence[Any]:
        serialize = self._serialize
        # No `map`, which a StopIteration of the user's would end in silence.
        return payloads if serialize is None else [serialize(one) for one in payloads]

    def _count_events(self, link: Link, events: Sequence[QueuedEvent]) -> None:
        assert self._counts is not None
        self._counts.add_events(link, events)

    def _count_barrier(self, broker: str) -> None:
        assert self._counts is not None
        self._counts.begin(broker)

    # --- durability -------------------------------------------------------------------------

    def flush(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """Return when everything sent before is durable on its broker: the barrier.

        Raises NotDurable, at the latest after `timeout_ms`, when some of it may not be; its
        docstring says what to do then. For brokers of the original set `flush.method=offsets`,
        since they answer the barrier before they flush: that polls, for explicit partitions only.
        """
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        # A send of another thread to a broker that hangs holds the lock for the socket's timeout.
        if not self._lock.acquire(timeout=min(max(timeout_ms, 0) / 1000, threading.TIMEOUT_MAX)):
            unknown = Unconfirmed("each broker", IN_FLIGHT, 0, 0)
            raise NotDurable([unknown], "a send of another thread went on until the deadline")
        try:
            lost, reason = self._flush(deadline_ns)
            lost, reason = self._held.taken_with(lost, reason)
        finally:
            self._lock.release()
        if lost:
            raise NotDurable(lost, reason)

    def _confirm(self, timeout_ms: int) -> None:
        """Flush for the counts; the application's next flush names what this one finds lost."""
        with self._lock:
            if not self._is_closed:
                deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
                self._held.hold(*self._flush(deadline_ns, is_own=True))

    def _flush(self, deadline_ns: int, *, is_own: bool = False) -> tuple[list[Unconfirmed], str]:
        """`is_own`: not asked for by the application, which hears of losses alone: where an
        asynchronous send goes on at the deadline, the next flush finds out."""
        open_brokers: set[str] = set()
        if self._counts is not None:
            self._counts.begin()
        if self._is_async:
            lost, reason = self._queues.flush(deadline_ns, open_brokers if is_own else None)
        else:
            lost, reason = self._connections.flush(deadline_ns)
            if lost:
                self._discovery.refresh()
        self._stats.lost_sends += sum(part.sends for part in lost)
        if self._counts is not None:
            self._counts.settle(lost, is_own=is_own, open_brokers=open_brokers)
        return summed(lost), reason

    def close(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """Flush, then close every connection. Idempotent.

        Raises NotDurable as `flush` does; the producer is closed all the same.
        """
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        if self._counts is not None:
            self._counts.stop(timeout_ms)  # before the lock, which a flush of its thread may need
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._queues.refuse()
            lost, reason = self._flush(deadline_ns)
            late, late_reason = self._queues.close(deadline_ns)
            lost, reason = [*lost, *late], reason or late_reason
            if self._counts is not None:
                self._counts.begin()  # what the queues sent last
                self._counts.settle(lost)
                self._counts.finish((deadline_ns - time.monotonic_ns()) // 1_000_000)
            self._release()
            lost, reason = self._held.taken_with(lost, reason)
        if self.stats.dropped:
            log.warning(
                "messages_dropped", count=self.stats.dropped, queue_size=self.config.queue_size
            )
        if lost:
            raise NotDurable(lost, reason)

    def _release(self) -> None:
        for single in self._single_sends.values():
            single.is_closed = True
        self._connections.close()
        if self._callbacks is not None:
            self._callbacks.close()
        self._discovery.close()
        if self._own_registry is not None:
            self._own_registry.close()

    @property
    def stats(self) -> ProducerStats:
        """A copy of the counters so far."""
        queues = self._queues.stats
        singles = list(self._single_sends.values())
        single = sum(one.sends for one in singles)
        return replace(
            self._stats,
            sends=self._stats.sends + single + queues.sends,
            messages=self._stats.messages + single + queues.taken,
            set_bytes=self._stats.set_bytes
            + sum(one.set_bytes for one in singles)
            + queues.set_bytes,
            dropped=queues.dropped,
            failed=queues.failed,
            rerouted=queues.rerouted,
        )

    def _check_sync(self, method: str) -> None:
        if self._is_async:
            raise LocalProtocolError(f"{method} is for a synchronous producer")

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosed("the producer was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an error of the block is not hidden by a failed flush."""
        try:
            self.close()
        except NotDurable as not_durable:
            if error is None:
                raise
            error.add_note(str(not_durable))
