"""What a consumer can tell its application besides the broker's own answers (protocol.errors)."""

from typing import ClassVar

from kafka2011.protocol.errors import KafkaError


class BrokerUnavailable(KafkaError):
    """The broker could not be reached, or hung up twice on the same request.

    Nothing was consumed. A broker also hangs up on an offsets request for a topic or partition
    that it can never have, so retrying for ever is not for requests made by hand.
    """

    retriable: ClassVar[bool] = True


class ConsumerClosed(KafkaError):
    """The consumer was closed by another thread while this call was on its way."""


class ConsumerTimeout(KafkaError):
    """No message came within `consumer.timeout.ms`. The stream is whole: iterate it again."""

    retriable: ClassVar[bool] = True


class ConsumerStateError(KafkaError):
    """The call does not fit what was done before, such as creating streams twice."""


class PartitionStuck(KafkaError):
    """One partition cannot be read on: `offset` is where, `cause` why (also `__cause__`).

    A damaged or too large entry, an offset out of range with `autooffset.reset` neither smallest
    nor largest, or a broker's refusal. The stream goes on with its other partitions when it is
    iterated again; this one is retried every now and then without a further error. To leave the
    place: `connector.seek(...)` or `connector.skip_entry(...)`.
    """

    def __init__(self, topic: str, broker_id: int, partition: int, offset: int, cause: str) -> None:
        super().__init__(f"{topic}/{broker_id}-{partition} at offset {offset}: {cause}")
        self.topic = topic
        self.broker_id = broker_id
        self.partition = partition
        self.offset = offset
        self.cause = cause
