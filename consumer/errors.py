"""What a consumer can tell its application besides the broker's own answers (protocol.errors)."""

from typing import ClassVar

from protocol.errors import KafkaError


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
