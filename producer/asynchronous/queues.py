"""The queues of an asynchronous producer: one for each broker that messages were placed on."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kafka2011.producer.asynchronous.batch_encoder import BatchEncoder
from kafka2011.producer.asynchronous.broker_queue import BrokerQueue, QueueStats, total
from kafka2011.producer.asynchronous.callbacks import EventHandler, ProducerCallbacks
from kafka2011.producer.asynchronous.intake import QueuedEvent
from kafka2011.producer.asynchronous.rerouting import Rerouter
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.discovery import Discovery
from kafka2011.producer.errors import Link, ProducerClosed, Unconfirmed
from kafka2011.producer.requests import TopicNames
from kafka2011.producer.stats import ProducerStats
from kafka2011.protocol.errors import MessageSizeTooLarge
from kafka2011.protocol.message_set import payload_bytes
from kafka2011.runtime.shared_settings import Address

LATE = "not sent and confirmed before the deadline"


class Queues:
    """Places messages by `discovery`, each in the queue of its broker.

    `connect` makes a connection to a published address; `lock` is the producer's, and guards the
    making of queues and their end.
    """

    def __init__(
        self,
        config: ProducerConfig,
        discovery: Discovery,
        connect: Callable[[Address], BrokerConnection],
        lock: "threading.RLock",
        *,
        topic_names: TopicNames,
        stats: ProducerStats,
        handler: EventHandler | None,
        callbacks: ProducerCallbacks | None,
        on_sent: Callable[[Link, Sequence[QueuedEvent]], None] | None,
        on_barrier: Callable[[str], None] | None,
    ) -> None:
        self._config = config
        self._discovery = discovery
        self._connect = connect
        self._lock = lock
        self._topic_names = topic_names
        self._stats = stats
        self._encoder = BatchEncoder(config, handler)
        self._callbacks = callbacks
        self._on_sent, self._on_barrier = on_sent, on_barrier
        self._message_bytes_max = config.payload_bytes_max
        self._is_closed = False
        self.by_address: dict[Address, BrokerQueue] = {}
        # Of addresses that no broker has any more: first out of the way, then closed, then counted.
        self._leaving: list[BrokerQueue] = []
        self._closing: list[BrokerQueue] = []
        self._ended = QueueStats()
        self._moving = threading.Lock()  # guards these, and what leaves `by_address`
        self._lost: list[Unconfirmed] = []
        self._lost_reason = ""

    def put(self, topic: str, payloads: Sequence[Any], key: Any) -> None:
        """Queue the payloads in order, all for the target of `key`. Raises as `Producer.send`."""
        self._check_open()
        self._topic_names[topic]  # checked
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
        queue = self.by_address.get(address) or self._queue(address)
        queue.put(topic, partition, payloads, key)

    def _queue(self, address: Address) -> BrokerQueue:
        with self._lock:
            self._check_open()
            if address not in self.by_address:
                self._close_unregistered()
                self.by_address[address] = BrokerQueue(
                    self._connect(address),
                    self._config,
                    encoder=self._encoder,
                    rerouter=Rerouter(
                        address, self._discovery, self._connect, self._config.socket_timeout_ms
                    ),
                    callbacks=self._callbacks,
                    on_sent=self._on_sent,
                    on_barrier=self._on_barrier,
                )
            return self.by_address[address]

    def _close_unregistered(self) -> None:
        """Close the queues of addresses that no broker has any more; they send what they hold.

        Another thread may just have chosen one of them: it is closed when the next address comes.
        """
        with self._moving:
            self._count_ended()
            closed = [queue for queue in self._leaving if not queue.is_waited_for]
            self._closing += closed
            self._leaving = [queue for queue in self._leaving if queue.is_waited_for]
            registered = set(self._discovery.addresses())
            gone = [address for address in self.by_address if address not in registered]
            self._leaving += [self.by_address.pop(address) for address in gone]
        for queue in closed:
            queue.request_close()

    def _count_ended(self) -> None:
        """Keep the counters and the losses of closed queues whose threads have ended."""
        for queue in [queue for queue in self._closing if queue.has_ended]:
            lost, reason, _ = queue.join(0)
            if lost:
                self._lost += lost
                self._lost_reason = reason
            self._ended = total([self._ended, queue.stats])
            self._closing.remove(queue)

    @property
    def stats(self) -> QueueStats:
        """The counters of all queues so far; `taken` includes what is queued."""
        with self._moving:
            queues = [*self.by_address.values(), *self._leaving, *self._closing]
            found = [replace(queue.stats, taken=queue.queued) for queue in queues]
            return total([self._ended, *found])

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosed("the producer was closed")

    def refuse(self) -> None:
        """Take nothing more; what is queued can still be flushed."""
        self._is_closed = True

    def flush(
        self, deadline_ns: int, open_brokers: set[str] | None = None
    ) -> tuple[list[Unconfirmed], str]:
        """Send everything, with a barrier; return sends not known to be durable, and the reason.

        `open_brokers` gets those whose flush went on at the deadline: what they hold is not
        returned then, and the next flush says what has become of it.
        """
        with self._moving:
            flushed, closing = [*self.by_address.values(), *self._leaving], [*self._closing]
            lost, self._lost = self._lost, []
            reasons = [self._lost_reason] if lost else []
        tickets = [(queue, queue.request_flush(deadline_ns)) for queue in flushed]
        found = [queue.await_flush(ticket, deadline_ns) for queue, ticket in tickets]
        found += [queue.join(deadline_ns) for queue in closing]
        for queue, (unknown, reason, is_done) in zip([*flushed, *closing], found, strict=True):
            is_named = not is_done and open_brokers is None
            if not is_done and open_brokers is not None:
                open_brokers.add(queue.broker)
            lost += unknown
            if is_named:
                lost += queue.unsettled()
            if unknown or is_named:
                reasons.append(LATE if is_named else reason)
        with self._moving:
            self._count_ended()
        return lost, ", ".join(reasons)

    def close(self, deadline_ns: int) -> tuple[list[Unconfirmed], str]:
        """End the threads; return sends not known to be durable, and the first reason."""
        with self._moving:
            queues = [*self.by_address.values(), *self._leaving, *self._closing]
        for queue in queues:
            queue.request_close()
        lost: list[Unconfirmed] = []
        reason = ""
        for queue in queues:
            late, late_reason, has_ended = queue.join(deadline_ns)
            if not has_ended:
                late, late_reason = [*late, *queue.unsettled()], LATE
            lost += late
            reason = reason or late_reason
        return lost, reason
