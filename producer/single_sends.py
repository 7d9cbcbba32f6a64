"""A synchronous producer's single messages: one request each, to its one broker.

The same as `Producer.send` of a list of one plain payload, without the steps whose outcome is
always the same.
"""

import threading
from collections.abc import Callable
from typing import Any

from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.errors import ProducerClosed
from kafka2011.producer.stats import ProducerStats
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import ANY_PARTITION, produce_head


class SingleSends:
    """Messages of one topic, whose `name` is legal, through one connection.

    `lock` is the producer's, and so are `stats` and `reconnect`, which makes a planned reconnect.
    """

    __slots__ = (
        "_connection",
        "_head",
        "_lock",
        "_name",
        "_reconnect",
        "_set_bytes",
        "_stats",
        "is_closed",
    )

    def __init__(
        self,
        connection: BrokerConnection,
        lock: "threading.RLock",
        name: bytes,
        stats: ProducerStats,
        reconnect: Callable[[BrokerConnection], None],
    ) -> None:
        self.is_closed = False
        self._connection = connection
        self._lock = lock
        self._name = name
        self._stats = stats
        self._reconnect = reconnect
        # The last frame's, which is nearly always the next one's.
        self._set_bytes = -1
        self._head = b""

    def put_one(self, topic: str, _partition: int, payload: bytes, _key: Any = None) -> None:
        """Send one payload that is not too large. Raises as `Producer.send`."""
        message_set = encode((payload,))
        set_bytes = len(message_set)
        with self._lock:
            if self.is_closed:
                raise ProducerClosed("the producer was closed")
            if set_bytes != self._set_bytes:
                self._head = produce_head(self._name, ANY_PARTITION, set_bytes)
                self._set_bytes = set_bytes
            connection = self._connection
            connection.send(self._head, topic, set_bytes, (), message_set)
            stats = self._stats
            stats.sends += 1
            stats.messages += 1
            stats.set_bytes += set_bytes
            if connection.is_reconnect_due():
                self._reconnect(connection)
