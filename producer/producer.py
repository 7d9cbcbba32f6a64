"""The producer: `send` writes messages to a broker or queues them, `flush` waits for durability.

One call may carry several parts, grouped by broker: one part for a broker makes a Produce request,
several make one MultiProduce, as in 0.7. Once bytes were sent, the synchronous producer does not
retry: that could store messages twice, and only the application can judge whether that matters.
NotDurable names what is not known to be stored.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, Unpack, overload

from kafka2011.coordination.registry import Registry
from kafka2011.producer.asynchronous.batch_encoder import BatchEncoder
from kafka2011.producer.asynchronous.broker_queue import BrokerQueue
from kafka2011.producer.asynchronous.callbacks import (
    EventHandler,
    ProducerCallbacks,
    new_callbacks,
    new_handler,
)
from kafka2011.producer.asynchronous.intake import QueuedEvent
from kafka2011.producer.asynchronous.rerouting import Rerouter
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.discovery import Discovery, StaticBrokers, Target, ZooKeeperBrokers
from kafka2011.producer.errors import (
    BrokerUnavailable,
    BrokerUnreachable,
    NotDurable,
    ProducerClosed,
    Unconfirmed,
)
from kafka2011.producer.keywords import AnyBytes, BytesLike, Message, ProducerSettings
from kafka2011.producer.offset_polling import connection_kind
from kafka2011.producer.requests import (
    EncodedSet,
    SetPart,
    encode_sets,
    pack_requests,
    payload_bytes,
    request_frame,
)
from kafka2011.producer.single_sends import SingleSends
from kafka2011.producer.stats import ProducerStats
from kafka2011.protocol.errors import LocalProtocolError, MessageSizeTooLarge
from kafka2011.protocol.message_set import encode as encode_plain
from kafka2011.protocol.message_set import payloads as payloads_of
from kafka2011.protocol.names import check_topic
from kafka2011.protocol.requests import ANY_PARTITION, produce_head
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.keywords import with_keywords
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address

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

    `config` or keyword arguments, named as the fields of ProducerConfig, with values as in a
    properties file or parsed. Thread-safe; synchronous sends wait for one another.
    `producer_type="async"` makes it asynchronous.

    To a type checker, `serializer` says what may be sent; one that a `config` or a text names is
    not seen, and is declared: `producer: Producer[Click] = Producer(config)`.

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
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._lock = threading.RLock()
        self._is_closed = False
        self._own_registry: Registry | None = None
        self._stats = ProducerStats()
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
        self._encoder = BatchEncoder(config, handler)
        self._connection_kind = connection_kind(config.flush_method)
        self._queues: dict[Address, BrokerQueue] = {}
        self._topic_bytes: dict[str, bytes] = {}
        self._connections: dict[Address, BrokerConnection] = {}
        # Read at every send.
        self._codec = config.compression_codec
        self._message_bytes_max = config.payload_bytes_max
        self._limits = config.request_limits
        self._serialize = config.serializer
        self._discovery = self._discover(registry)
        self._is_one_broker = len(config.broker_list) == 1
        # With a single broker: topic -> what takes a single message, the `put_one` of its queue or
        # of a `SingleSends`.
        self._straight: dict[str, Callable[[str, int, bytes, Any], object]] = {}
        self._single_sends: dict[str, SingleSends] = {}
        self._takes_single_straight = (
            self._is_one_broker
            and self._serialize is None
            and not self._codec
            and not config.audit_enable
        )
        # What a flush of the counting found lost, for the next flush of the application.
        self._held: list[Unconfirmed] = []
        self._held_reason = ""
        self._counts = self._counting(registry) if config.audit_enable else None

    def _counting(self, registry: Registry | None) -> "SentCounts":
        """Counts what is sent, and reports it on connections of its own."""
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
            raise ConfigError(f"audit.dir: {error}") from None

    def _discover(self, registry: Registry | None) -> Discovery:
        config = self.config
        given = bool(config.broker_list) + bool(config.zk_connect) + (registry is not None)
        if given != 1:
            raise ConfigError("a producer needs exactly one of broker.list, zk.connect, a registry")
        if config.broker_list:
            return StaticBrokers(config.broker_list, self._rng)
        if registry is None:
            from kafka2011.coordination.zookeeper import ZooKeeperRegistry

            registry = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
            try:
                registry.start(config.zk_connection_timeout_ms or config.zk_session_timeout_ms)
            except BaseException:
                registry.close()
                raise
            self._own_registry = registry
        return ZooKeeperBrokers(registry, config.partitioner, self._rng)

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
            if self._is_async and self._serialize is None and topic in self._topic_bytes:
                target = self._discovery.choose(topic, key)
                queue = self._queues.get(target.address)
                if queue is not None:
                    if self._is_one_broker:
                        self._straight[topic] = queue.put_one
                    queue.put_one(topic, target.partition, payload, key)
                    return
        payloads = payload if isinstance(payload, list) else [payload]
        if self._serialize is not None:
            payloads = list(map(self._serialize, payloads))
        if self._is_async:
            self._enqueue(topic, payloads, key)
            return
        with self._lock:
            sets = self._encoded(topic, payloads)
            sent_count = 0
            retries = self.config.zk_read_num_retries
            avoid: Address | None = None
            while True:
                target = self._discovery.choose(topic, key, avoid)
                try:
                    while sent_count < len(sets):
                        self._send_one_set(target, topic, sets[sent_count][0])
                        sent_count += 1
                    break
                except BrokerUnreachable:  # choose again, as 0.7 does
                    if not self._discovery.refresh() or retries <= 0:
                        raise
                    retries -= 1
                    avoid = target.address
            self._stats.messages += len(payloads)
            if self._counts is not None:
                self._counts.add(topic, payloads)
            if self._takes_single_straight and topic not in self._single_sends:
                single = self._single_sends[topic] = SingleSends(
                    self._connections[target.address],
                    self._lock,
                    self._topic_bytes[topic],
                    self._reconnect,
                )
                self._straight[topic] = single.put_one

    def send_parts(self, parts: Sequence[Part[Message]]) -> None:
        """Send parts of several topics or keys in one call; raises as `send` does.

        Where one broker's connection breaks, the parts for the other brokers are still sent, and
        then the first error is raised.
        """
        if self._is_async:
            for topic, payloads, key in parts:
                self._enqueue(topic, self._serialized(payloads), key)
            return
        with self._lock:
            by_broker: dict[Address, list[tuple[SetPart, int]]] = {}
            counted: list[tuple[str, Sequence[bytes]]] = []
            for topic, payloads, key in parts:
                plain = self._serialized(payloads)
                sets = self._encoded(topic, plain)
                target = self._discovery.choose(topic, key)
                by_broker.setdefault(target.address, []).extend(
                    (SetPart(topic, target.partition, message_set), unpacked_bytes)
                    for message_set, unpacked_bytes in sets
                )
                self._stats.messages += len(plain)
                counted.append((topic, plain))
            self._send_grouped(by_broker)
            if self._counts is not None:
                for topic, plain in counted:
                    self._counts.add(topic, plain)

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
            self._send_one_set(target, topic, message_set)
            if self._counts is not None:
                self._counts.add(topic, payloads_of(message_set))

    def send_sets(self, parts: Sequence[SetPart], *, broker_id: int) -> None:
        """Send several encoded sets to one broker, in one request or, above the limits, in several.

        The size of each is not checked. Raises as `send` does.
        """
        self._check_sync("send_sets")
        with self._lock:
            self._check_open()
            self._send_grouped(
                {self._discovery.address_of(broker_id): [(part, 0) for part in parts]}
            )
            if self._counts is not None:
                for part in parts:
                    self._counts.add(part.topic, payloads_of(part.message_set))

    def _serialized(self, payloads: Sequence[Any]) -> Sequence[Any]:
        return payloads if self._serialize is None else list(map(self._serialize, payloads))

    def _enqueue(self, topic: str, payloads: Sequence[Any], key: Any) -> None:
        self._check_open()
        if topic not in self._topic_bytes:
            self._topic_bytes[topic] = check_topic(topic, "0.7").encode()
        # Copied now: the caller may change a bytearray after `send` has returned.
        payloads = [one if type(one) is bytes else payload_bytes(one) for one in payloads]
        for payload in payloads:
            if len(payload) > self._message_bytes_max:
                self._stats.refused_too_large += 1
                raise MessageSizeTooLarge(
                    f"a payload of {len(payload)} bytes is above the largest, "
                    f"{self._message_bytes_max} (max.message.size, request.bytes.max)"
                )
        _, address, partition = self._discovery.choose(topic, key)
        queue = self._queues.get(address) or self._queue(address)
        queue.put(topic, partition, payloads, key)

    def _queue(self, address: Address) -> BrokerQueue:
        with self._lock:
            self._check_open()
            if address not in self._queues:
                self._queues[address] = BrokerQueue(
                    self._new_connection(address),
                    self.config,
                    encoder=self._encoder,
                    rerouter=Rerouter(
                        address,
                        self._discovery,
                        self._new_connection,
                        self.config.socket_timeout_ms,
                    ),
                    callbacks=self._callbacks,
                    on_sent=self._count_events if self._counts is not None else None,
                )
            return self._queues[address]

    def _count_events(self, events: Sequence[QueuedEvent]) -> None:
        assert self._counts is not None
        by_topic: dict[str, list[bytes]] = {}
        for topic, _, payload, _ in events:
            by_topic.setdefault(topic, []).append(payload)
        for topic, payloads in by_topic.items():
            self._counts.add(topic, payloads)

    def _encoded(self, topic: str, payloads: Sequence[bytes]) -> Sequence[EncodedSet]:
        if self._is_closed:
            raise ProducerClosed("the producer was closed")
        if topic not in self._topic_bytes:
            self._topic_bytes[topic] = check_topic(topic, "0.7").encode()
        try:
            if not self._codec:  # the usual case, and it usually fits
                encoded = encode_plain(payloads)
                size_max = self._message_bytes_max
                if len(encoded) <= size_max or (
                    len(encoded) <= self._limits.set_bytes_max
                    and max(map(len, payloads)) <= size_max
                ):
                    return ((encoded, 0),)
            return encode_sets(payloads, self._codec, self._limits)
        except MessageSizeTooLarge:
            self._stats.refused_too_large += 1
            raise

    def _send_one_set(self, target: Target, topic: str, encoded: bytes) -> None:
        name = self._topic_bytes.get(topic)
        if name is None:
            name = self._topic_bytes[topic] = check_topic(topic, "0.7").encode()
        set_bytes = len(encoded)
        connection = self._connections.get(target.address) or self._connection(target.address)
        head = produce_head(name, target.partition, set_bytes)
        connection.send(head, topic, set_bytes, tail=encoded)
        stats = self._stats
        stats.sends += 1
        stats.set_bytes += set_bytes
        if connection.is_reconnect_due():
            self._reconnect(connection)

    def _send_grouped(self, by_broker: dict[Address, list[tuple[SetPart, int]]]) -> None:
        """Send each broker its parts, given with their decompressed sizes."""
        failure: BrokerUnavailable | None = None
        for address, found in by_broker.items():
            connection = self._connections.get(address) or self._connection(address)
            sets, unpacked = [part for part, _ in found], [size for _, size in found]
            try:
                for parts in pack_requests(sets, unpacked, self._limits):
                    self._send_request(connection, parts)
            except BrokerUnavailable as error:
                self._discovery.refresh()
                failure = failure or error
        if failure is not None:
            raise failure

    def _send_request(self, connection: BrokerConnection, parts: Sequence[SetPart]) -> None:
        sizes = [(part.topic, len(part.message_set)) for part in parts]
        connection.send(request_frame(parts), *sizes[0], sizes[1:])
        self._stats.sends += len(parts)
        self._stats.set_bytes += sum(size for _, size in sizes)
        if connection.is_reconnect_due():
            self._reconnect(connection)

    # --- connections -------------------------------------------------------------------------

    def _connection(self, published: Address) -> BrokerConnection:
        connection = self._connections[published] = self._new_connection(published)
        return connection

    def _new_connection(self, published: Address) -> BrokerConnection:
        """A connection to a published address, dialled by `address.map`."""
        config = self.config
        dialled = config.address_map.get(published, published)
        interval_ms = config.reconnect_time_interval_ms
        return self._connection_kind(
            dialled,
            connect_timeout_ms=config.connect_timeout_ms,
            socket_timeout_ms=config.socket_timeout_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            reconnect_sends=config.reconnect_interval,
            reconnect_ms=interval_ms if interval_ms >= 0 else None,
            sleep=self._sleep,
            rng=self._rng,
        )

    def _reconnect(self, connection: BrokerConnection) -> None:
        """Make the planned reconnect: a barrier first, since a close may lose bytes in flight.

        Unlike 0.7: the original closes at once. Sends of a failed barrier go to the connection's
        `lost`, and the next flush names them.
        """
        if not connection.barrier(self.config.socket_timeout_ms):
            log.warning("barrier_failed", broker=connection.name, reason=connection.lost_reason)
        connection.disconnect()
        self._stats.reconnects += 1

    # --- durability -------------------------------------------------------------------------

    def flush(self, timeout_ms: int = FLUSH_TIMEOUT_MS) -> None:
        """Return when everything sent before is durable on its broker: the barrier.

        Raises NotDurable, at the latest after `timeout_ms`, when some of it may not be; its
        docstring says what to do then. For brokers of the original set `flush.method=offsets`,
        since they answer the barrier before they flush: that polls, for explicit partitions only.
        """
        with self._lock:
            lost, reason = self._flush(timeout_ms)
            lost, reason = self._with_held(lost, reason)
        if lost:
            raise NotDurable(lost, reason)

    def _confirm(self, timeout_ms: int) -> None:
        """Flush for the counts; what is lost is named by the application's next flush."""
        with self._lock:
            if not self._is_closed:
                lost, reason = self._flush(timeout_ms)
                if lost:
                    self._held, self._held_reason = self._with_held(lost, reason)

    def _with_held(self, lost: list[Unconfirmed], reason: str) -> tuple[list[Unconfirmed], str]:
        """With what the counting found lost before, one item a broker and topic."""
        if not self._held:
            return lost, reason
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for part in [*self._held, *lost]:
            sends, size = sums.get((part.broker, part.topic), (0, 0))
            sums[part.broker, part.topic] = sends + part.sends, size + part.set_bytes
        reason = reason or self._held_reason
        self._held, self._held_reason = [], ""
        return [Unconfirmed(*name, *numbers) for name, numbers in sums.items()], reason

    def _flush(self, timeout_ms: int) -> tuple[list[Unconfirmed], str]:
        if self._counts is None:
            return self._flush_all(timeout_ms)
        self._counts.begin()
        lost, reason = self._flush_all(timeout_ms)
        self._counts.settle({part.topic for part in lost})
        return lost, reason

    def _flush_all(self, timeout_ms: int) -> tuple[list[Unconfirmed], str]:
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        if self._is_async:
            return self._flush_queues(deadline_ns)
        for connection in self._connections.values():
            connection.request_barrier()  # first, so that all brokers flush at the same time
        lost: list[Unconfirmed] = []
        reasons = []
        for connection in self._connections.values():
            connection.await_barrier(deadline_ns)
            if connection.lost:
                lost += connection.take_lost()
                reasons.append(f"{connection.name}: {connection.lost_reason}")
            # Nothing is pending now, so a reconnect costs no barrier.
            if connection.is_reconnect_due(time.monotonic_ns()):
                connection.disconnect()
                self._stats.reconnects += 1
        if lost:
            self._discovery.refresh()
            self._stats.lost_sends += sum(part.sends for part in lost)
        return lost, ", ".join(reasons)

    def _flush_queues(self, deadline_ns: int) -> tuple[list[Unconfirmed], str]:
        tickets = [(queue, queue.request_flush(deadline_ns)) for queue in self._queues.values()]
        lost: list[Unconfirmed] = []
        reasons = []
        for queue, ticket in tickets:
            unknown, reason = queue.await_flush(ticket, deadline_ns)
            if unknown:
                lost += unknown
                reasons.append(reason)
        self._stats.lost_sends += sum(part.sends for part in lost)
        return lost, ", ".join(reasons)

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
            lost, reason = self._flush(timeout_ms)
            for queue in self._queues.values():
                queue.request_close()
            for queue in self._queues.values():
                late, late_reason = queue.join(deadline_ns)
                lost += late
                reason = reason or late_reason
            if self._counts is not None:
                self._counts.begin()  # what the queues sent last
                self._counts.settle({part.topic for part in lost})
                self._counts.finish((deadline_ns - time.monotonic_ns()) // 1_000_000)
            self._release()
            lost, reason = self._with_held(lost, reason)
        if self.stats.dropped:
            log.warning(
                "messages_dropped", count=self.stats.dropped, queue_size=self.config.queue_size
            )
        if lost:
            raise NotDurable(lost, reason)

    def _release(self) -> None:
        for single in self._single_sends.values():
            single.is_closed = True
        for connection in self._connections.values():
            connection.disconnect()
        self._connections.clear()
        if self._callbacks is not None:
            self._callbacks.close()
        self._discovery.close()
        if self._own_registry is not None:
            self._own_registry.close()

    @property
    def stats(self) -> ProducerStats:
        """A copy of the counters so far."""
        queues = [queue.stats for queue in self._queues.values()]
        singles = list(self._single_sends.values())
        single = sum(one.sends for one in singles)
        queued = sum(queue.queued for queue in self._queues.values())
        return replace(
            self._stats,
            sends=self._stats.sends + single,
            messages=self._stats.messages + single + queued,
            set_bytes=self._stats.set_bytes + sum(one.set_bytes for one in singles),
            dropped=sum(stats.dropped for stats in queues),
            failed=sum(stats.failed for stats in queues),
            rerouted=sum(stats.rerouted for stats in queues),
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
