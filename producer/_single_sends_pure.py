"""Single messages of a synchronous producer, plain Python; `_single_sends_compiled` is the twin."""

import threading
from collections.abc import Callable
from typing import Any

from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.errors import ProducerClosed
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import ANY_PARTITION, produce_head


class SingleSends:
    """See `single_sends`."""

    def __init__(
        self,
        connection: BrokerConnection,
        lock: "threading.RLock",
        name: bytes,
        reconnect: Callable[[BrokerConnection], None],
    ) -> None:
        self.is_closed = False
        self.sends = 0
        self.set_bytes = 0
        self._connection = connection
        self._lock = lock
        self._name = name
        self._reconnect = reconnect
        # Those of the last frame, which nearly always fit the next one.
        self._size = -1
        self._head = b""

    def put_one(self, topic: str, _partition: int, payload: bytes, _key: Any = None) -> None:
        message_set = encode((payload,))
        size = len(message_set)
        with self._lock:
            if self.is_closed:
                raise ProducerClosed("the producer was closed")
            if size != self._size:
                self._head = produce_head(self._name, ANY_PARTITION, size)
                self._size = size
            connection = self._connection
            connection.send(self._head, topic, size, (), message_set)
            self.sends += 1
            self.set_bytes += size
            if connection.is_reconnect_due():
                self._reconnect(connection)
