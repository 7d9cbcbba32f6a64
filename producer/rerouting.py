"""Sends what one broker did not take to wherever its messages would go now.

A sender's thread does this itself, over connections that it makes for it and closes behind a
barrier: putting the messages into another broker's queue could have two full queues wait for each
other.
"""

from collections.abc import Callable, Sequence

from kafka2011.producer.batching import SetPart
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.discovery import Discovery
from kafka2011.producer.errors import BrokerUnavailable
from kafka2011.producer.intake import QueuedEvent
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.shared_settings import Address


class Rerouter:
    """For the queue of the broker `own`. `connect` makes a connection to a published address."""

    def __init__(
        self,
        own: Address,
        discovery: Discovery,
        connect: Callable[[Address], BrokerConnection],
        barrier_timeout_ms: int,
    ) -> None:
        self._own = own
        self._discovery = discovery
        self._connect = connect
        self._barrier_timeout_ms = barrier_timeout_ms

    def refresh(self) -> None:
        """Read the brokers anew before the next placing."""
        self._discovery.refresh()

    def placed(self, events: Sequence[QueuedEvent]) -> tuple[dict[Address, list[QueuedEvent]], str]:
        """The events by the broker that each would go to now, in order; with none known, by the
        broker that they were for, and why."""
        found: dict[Address, list[QueuedEvent]] = {}
        reason = ""
        for topic, partition, payload, key in events:
            address, place = self._own, partition
            try:
                _, address, place = self._discovery.choose(topic, key, self._own)
            except KafkaError as error:
                reason = str(error)
            found.setdefault(address, []).append((topic, place, payload, key))
        return found, reason

    def is_own(self, address: Address) -> bool:
        return address == self._own

    def send(self, address: Address, frames: bytes, parts: Sequence[SetPart]) -> str:
        """Send these requests to another broker and make sure; why that failed, or "".

        A failure may have stored some of it, as any retry may.
        """
        connection = self._connect(address)
        sizes = [(part.topic, len(part.message_set)) for part in parts]
        try:
            connection.send(frames, *sizes[0], sizes[1:])
            if connection.barrier(self._barrier_timeout_ms):
                return ""
            return f"{connection.name}: {connection.lost_reason}"
        except BrokerUnavailable as error:
            return str(error)
        finally:
            connection.disconnect()
