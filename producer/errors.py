"""What a producer raises, beside `protocol.errors.MessageSizeTooLarge` and IllegalTopicName."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """What was handed to one broker for one topic and is not known to be on its disk.

    It may be there or not. `sends` counts requests' parts, `set_bytes` their message sets.
    """

    broker: str  # host:port
    topic: str
    sends: int
    set_bytes: int


class NotDurable(KafkaError):
    """Some sends since the last successful flush are not known to be durable.

    They may be stored or lost. Send them again if they matter (their readers then may see some
    twice). `unconfirmed` says which; everything else that was sent is durable. The producer is
    usable: it connects anew, and the next flush speaks of later sends only.
    """

    retriable = True

    def __init__(self, unconfirmed: Sequence[Unconfirmed], reason: str) -> None:
        self.unconfirmed = tuple(unconfirmed)
        self.reason = reason
        parts = "; ".join(
            f"{u.sends} sends of {u.set_bytes} bytes to {u.topic} on {u.broker}"
            for u in self.unconfirmed[:5]
        )
        more = f" and {len(self.unconfirmed) - 5} more" if len(self.unconfirmed) > 5 else ""
        super().__init__(f"not known to be durable: {parts}{more} ({reason})")


class BrokerUnavailable(KafkaError):
    """No broker could be reached, or the connection broke while the request was handed over.

    In the second case the request may have arrived. Try again later.
    """

    retriable = True


class BrokerUnreachable(BrokerUnavailable):
    """No connection could be made in `connect.timeout.ms`, or the broker did not answer before the
    send (`flush.method=offsets`): nothing was sent."""


class InvalidPartition(KafkaError):
    """The partitioner's answer is not one of the topic's partitions; nothing was sent."""


class QueueFull(KafkaError):
    """The asynchronous producer's queue had no room in time: the message was dropped, counted."""

    retriable = True


class ProducerClosed(KafkaError):
    """The producer was closed; nothing was sent."""
