"""What a consumer raises, besides the broker's own answers (`protocol.errors`)."""

from typing import ClassVar

from kafka2011.protocol.errors import BrokerUnavailable, KafkaError

__all__ = [
    "BrokerUnavailable",
    "ConsumerClosed",
    "ConsumerFailed",
    "ConsumerStateError",
    "ConsumerTimeout",
    "PartitionStuck",
]


class ConsumerClosed(KafkaError):
    """Another thread closed the consumer during the call."""


class ConsumerFailed(KafkaError):
    """A thread of the connector ended by an unexpected exception (`__cause__`): nothing more is
    delivered or committed. Shut it down, which still works, and make another one."""


class ConsumerTimeout(KafkaError):
    """No message within `consumer.timeout.ms`. Nothing is lost: iterate the stream again."""

    retriable: ClassVar[bool] = True


class ConsumerStateError(KafkaError):
    """The call is not possible in this state, such as creating streams twice."""


class PartitionStuck(KafkaError):
    """One partition cannot be read on: `offset` is where, `cause` why (also `__cause__`).

    The cause is a damaged or too large entry, an offset out of range with `autooffset.reset`
    neither smallest nor largest, or a broker's refusal. The stream goes on with its other
    partitions when it is iterated again; this one is retried, at most a minute apart, without a
    further error. To go on elsewhere: `connector.seek(...)` or `connector.skip_entry(...)`.
    """

    def __init__(self, topic: str, broker_id: int, partition: int, offset: int, cause: str) -> None:
        super().__init__(f"{topic}/{broker_id}-{partition} at offset {offset}: {cause}")
        self.topic = topic
        self.broker_id = broker_id
        self.partition = partition
        self.offset = offset
        self.cause = cause
