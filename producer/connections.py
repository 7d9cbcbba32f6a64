"""The connections of one producer: made when a broker is first sent to, and confirmed together.

`Connections` holds those of a synchronous producer; the queues of an asynchronous one take theirs
from `new`. Not thread-safe: the producer's lock is held for everything but `new`.
"""

import random
import time
from collections.abc import Callable

from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.errors import Unconfirmed
from kafka2011.producer.offset_polling import connection_kind
from kafka2011.producer.stats import ProducerStats
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address

log = get_logger(__name__)


class Connections:
    """The connections by published address; reconnects are counted in `stats`."""

    def __init__(
        self,
        config: ProducerConfig,
        stats: ProducerStats,
        *,
        sleep: Callable[[float], object],
        rng: random.Random,
    ) -> None:
        self._config = config
        self._stats = stats
        self._sleep = sleep
        self._rng = rng
        self._kind = connection_kind(config.flush_method)
        self._made: dict[Address, BrokerConnection] = {}

    def new(self, published: Address) -> BrokerConnection:
        """A connection to a published address, dialled by `address.map`, for the caller alone."""
        config = self._config
        dialled = config.address_map.get(published, published)
        interval_ms = config.reconnect_time_interval_ms
        return self._kind(
            dialled,
            connect_timeout_ms=config.connect_timeout_ms,
            socket_timeout_ms=config.socket_timeout_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            reconnect_sends=config.reconnect_interval,
            reconnect_ms=interval_ms if interval_ms >= 0 else None,
            required_acks=config.required_acks,
            sleep=self._sleep,
            rng=self._rng,
        )

    def of(self, published: Address) -> BrokerConnection:
        """The connection to a published address, made now if there is none."""
        connection = self._made.get(published)
        if connection is None:
            connection = self._made[published] = self.new(published)
        return connection

    def reconnect(self, connection: BrokerConnection) -> None:
        """Make the planned reconnect: a barrier first, since a close may lose bytes in flight.

        Unlike 0.7: the original closes at once. Sends of a failed barrier go to the connection's
        `lost`, and the next flush names them.
        """
        if not connection.barrier(self._config.socket_timeout_ms):
            log.warning("barrier_failed", broker=connection.name, reason=connection.lost_reason)
        connection.disconnect()
        self._stats.reconnects += 1

    def flush(self, deadline_ns: int) -> tuple[list[Unconfirmed], str]:
        """Make a barrier on each; return sends not known to be durable, and the reason."""
        for connection in self._made.values():
            # First, so that all brokers flush at the same time.
            connection.request_barrier(deadline_ns)
        lost: list[Unconfirmed] = []
        reasons = []
        for connection in self._made.values():
            connection.await_barrier(deadline_ns)
        for connection in self._made.values():  # when no wait can be interrupted any more
            if connection.lost:
                lost += connection.take_lost()
                reasons.append(f"{connection.name}: {connection.lost_reason}")
            # Nothing is pending now, so a reconnect costs no barrier.
            if connection.is_reconnect_due(time.monotonic_ns()):
                connection.disconnect()
                self._stats.reconnects += 1
        return lost, ", ".join(reasons)

    def close(self) -> None:
        """Close them all, without a barrier."""
        for connection in self._made.values():
            connection.disconnect()
        self._made.clear()
