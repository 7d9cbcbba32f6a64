"""A producer's errors, beside `protocol.errors.MessageSizeTooLarge` and IllegalTopicName."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka2011.protocol.errors import BrokerUnavailable, KafkaError

__all__ = [
    "BrokerUnavailable",
    "BrokerUnreachable",
    "InvalidPartition",
    "NotDurable",
    "ProducerClosed",
    "QueueFull",
    "SenderFailed",
    "Unconfirmed",
]


IN_FLIGHT = "(in flight)"


class Link(NamedTuple):
    """One of the connections to a broker, by its number from 1 on; 0: none of them."""

    broker: str  # host:port
    number: int


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Sends to one broker for one topic that are not known to be on its disk.

    They may be there or not. `sends` counts requests' parts, `set_bytes` their message sets. Where
    a deadline passed first, `topic` is IN_FLIGHT with 0 sends: it stands for anything sent since
    the last successful flush. `connection` is the number in the `Link` over which they went, 0
    where they went over none or it is not known.
    """

    broker: str  # host:port
    topic: str
    sends: int
    set_bytes: int
    connection: int = field(default=0, compare=False, repr=False)


class NotDurable(KafkaError):
    """Some sends since the last successful flush are not known to be durable.

    They may be stored or lost. `unconfirmed` names them; everything else that was sent is durable.
    The producer stays usable: it connects again, and the next flush covers later sends only.

    Send them again if they matter (consumers may then see some twice), a limited number of times,
    with pauses. Most causes are transient: a broker that died or is unavailable, a broken
    connection, a full disk, no response before the deadline. But a rejected request looks the same,
    since a broker can only close the connection, and is rejected again:

    - a topic or partition that the broker does not accept: `topics.max`, `partitions.max`, an
      illegal name, a partition number out of range
    - a message or request above the broker's limits, where those are below the producer's
      (`max.message.size`, `request.bytes.max`, ...), or where the producer does not check sizes:
      `send_set`, `send_sets`, an event handler
    - an invalid set passed to `send_set` or `send_sets`
    - a `reason` of "not encoded": a hook raised, or its result makes no request

    The broker's log and its metric `connections_closed_total` name the cause. Remove it, send the
    messages one by one to find the rejected one, or park them.
    """

    retriable = True

    def __init__(self, unconfirmed: Sequence[Unconfirmed], reason: str) -> None:
        self.unconfirmed = tuple(unconfirmed)
        self.reason = reason
        parts = "; ".join(
            f"what is in flight to {u.broker}"
            if u.topic == IN_FLIGHT
            else f"{u.sends} send{'s' if u.sends != 1 else ''} of {u.set_bytes} bytes to {u.topic} "
            f"on {u.broker}"
            for u in self.unconfirmed[:5]
        )
        more = f" and {len(self.unconfirmed) - 5} more" if len(self.unconfirmed) > 5 else ""
        super().__init__(f"not known to be durable: {parts}{more} ({reason})")


class BrokerUnreachable(BrokerUnavailable):
    """No connection could be made in `connect.timeout.ms`, or the broker did not answer before the
    send (`flush.method=offsets`): nothing was sent."""


class InvalidPartition(KafkaError):
    """The partitioner returned an index out of range; nothing was sent."""


class QueueFull(KafkaError):
    """The asynchronous producer's queue stayed full: the message was dropped and counted."""

    retriable = True


class SenderFailed(KafkaError):
    """The asynchronous producer's thread ended by an unexpected exception (`__cause__`): nothing
    was sent, and nothing more will be to that broker. `flush` names what was accepted before. Close
    the producer, which still works, and make another one."""


class ProducerClosed(KafkaError):
    """The producer was closed; nothing was sent."""
