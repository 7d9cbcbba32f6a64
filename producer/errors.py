"""What a producer raises, beside `protocol.errors.MessageSizeTooLarge` and IllegalTopicName."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafka2011.protocol.errors import BrokerUnavailable, KafkaError

__all__ = [
    "BrokerUnavailable",
    "BrokerUnreachable",
    "InvalidPartition",
    "NotDurable",
    "ProducerClosed",
    "QueueFull",
    "Unconfirmed",
]


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

    They may be stored or lost. `unconfirmed` says which; everything else that was sent is durable.
    The producer is usable: it connects anew, and the next flush speaks of later sends only.

    Send them again if they matter (their readers then may see some twice), some times, with
    pauses, and not for ever. Most causes pass: a broker that died or is away, a broken connection,
    a disk that is full, no answer in time. But a refusal looks the same, since a broker can only
    close the connection, and it comes again:

    - a topic or partition that the broker does not take: `topics.max`, `partitions.max`, a name
      that its rule refuses, a partition beyond its number
    - a message or request above the broker's limits, where those are below the producer's
      (`max.message.size`, `request.bytes.max`, ...), or where the caller answers for the sizes:
      `send_set`, `send_sets`, an event handler
    - an invalid set of `send_set` or `send_sets`
    - `reason` says "not encoded": a hook raised, or returned what makes no request

    The broker's log and its metric `connections_closed_total` name which. Mend that, send the
    messages one by one to find the one that is refused, or put them aside.
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
