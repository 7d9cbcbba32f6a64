"""Sends messages that one broker did not accept to the brokers they would go to now.

The sender thread does this itself, over connections that it opens for the purpose and closes after
a barrier: if it used another broker's queue, two full queues could wait for each other.
"""

from collections.abc import Callable, Sequence

from kafka2011.producer.asynchronous.intake import QueuedEvent
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.discovery import Discovery
from kafka2011.producer.errors import BrokerUnavailable
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.shared_settings import Address


class Rerouter:
    """Places and sends for the queue of the broker `own`; `connect` takes a published address."""

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
        """Read the brokers again before the next `placed`, since its own failed."""
        self._discovery.refresh(self._own)

    def placed(self, events: Sequence[QueuedEvent]) -> tuple[dict[Address, list[QueuedEvent]], str]:
        """The events by their current broker, in order, and why some have none ("" if all have):
        those stay with the queue's own broker."""
        found: dict[Address, list[QueuedEvent]] = {}
        reason = ""
        for topic, partition, payload, key in events:
            address, place = self._own, partition
            try:
                _, address, place = self._discovery.choose(topic, key, self._own)
            except KafkaError as error:
                reason = str(error)
            except Exception as error:  # a user's partitioner may raise anything
                reason = f"no partition: {error!r}"
            found.setdefault(address, []).append((topic, place, payload, key))
        return found, reason

    def is_own(self, address: Address) -> bool:
        return address == self._own

    def send(self, address: Address, frames: bytes, parts: Sequence[SetPart]) -> str:
        """Send requests to another broker with a barrier; return the reason of a failure, or "".

        After a failure some of it may be stored, as with any retry.
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
