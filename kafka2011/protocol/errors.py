"""The protocol errors of the whole project, named by the side at fault.

`LocalProtocolError` means that our caller asked for something that cannot be put on the wire;
`RemoteProtocolError` means that the other side sent something that cannot be understood: close the
connection. `BrokerError` and its kinds are the answers of a broker to one part of a fetch.
`retriable` says whether the same call may succeed later without a change by the caller.
"""

from typing import ClassVar


class KafkaError(Exception):
    """Base of the errors of the protocol and of what sends and reads by it.

    `code` is the wire's error code (i16) where there is one for the class, else None.
    """

    retriable: ClassVar[bool] = False
    code: ClassVar[int | None] = None


class ProtocolError(KafkaError):
    """The protocol was broken; its two kinds say by which side."""


class LocalProtocolError(ProtocolError):
    """Our side asked for something that the protocol cannot express; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that cannot be understood. Close the connection: it is out of step."""


class FrameTooLarge(RemoteProtocolError):
    """A frame announces more bytes than this side accepts; none of its body was kept."""


class IllegalTopicName(LocalProtocolError, ValueError):
    """The name cannot be a topic: it would become a directory and a znode."""


class IllegalGroupName(LocalProtocolError, ValueError):
    """The name cannot be a consumer group: it would become a znode."""


class IllegalTopicFilter(LocalProtocolError, ValueError):
    """The topic filter cannot be read, or is longer than allowed."""


class MessageSizeTooLarge(KafkaError):
    """A payload is above `max.message.size`.

    A producer raises it before sending. A broker drops that set and keeps the connection (0.7.2).
    """


class InvalidMessage(RemoteProtocolError):
    """An entry of a message set is damaged or cannot be decoded (code 2, never on the wire).

    `position` is where the top-level entry starts, in bytes from the start of the buffer that was
    given; everything before it is good. -1 when no buffer is involved.
    """

    code = 2

    def __init__(self, reason: str, position: int = -1) -> None:
        super().__init__(reason)
        self.position = position


class DecompressedSizeTooLarge(InvalidMessage):
    """A compressed set would unpack to more bytes than allowed; it was not unpacked further."""


class BrokerUnavailable(KafkaError):
    """No broker is registered or can be reached, or the connection ended before the answer.

    In the last case a produce request may have arrived; a fetch or offsets request was repeated
    once. Try again later, but not for ever: a broker also hangs up on a request that it refuses,
    such as one for a topic or partition that it can never have.
    """

    retriable = True


class BrokerError(KafkaError):
    """A broker answered one part of a fetch with an error code."""


class UnknownBrokerError(BrokerError):
    """Code -1: an illegal topic name, a corrupt partition or any unexpected failure."""

    code = -1


class OffsetOutOfRange(BrokerError):
    """Code 1: below the first segment or past the high watermark. Reset, or ask for the range."""

    code = 1


class WrongPartition(BrokerError):
    """Code 3: the broker has no such partition of the topic."""

    code = 3


class InvalidFetchSize(BrokerError):
    """Code 4: the fetch size cannot be served (never sent by a broker)."""

    code = 4


class MessageLargerThanFetchSize(InvalidFetchSize):
    """The first entry of a fetched set is cut: fetch again with a larger size.

    `size_needed` is the whole entry in bytes, or 0 where not even its length arrived. A wild value
    means a damaged log instead, or an offset that is not the start of an entry.
    """

    def __init__(self, reason: str, size_needed: int = 0) -> None:
        super().__init__(reason)
        self.size_needed = size_needed


_BY_CODE: dict[int, type[KafkaError]] = {
    1: OffsetOutOfRange,
    2: InvalidMessage,
    3: WrongPartition,
    4: InvalidFetchSize,
}


def error_for_code(code: int, context: str) -> KafkaError:
    """The error for a non-zero code of a response; `context` says what was asked for.

    Any code without a class of its own is an `UnknownBrokerError`, as in the JVM clients.
    """
    kind = _BY_CODE.get(code, UnknownBrokerError)
    return kind(f"{context}: the broker answered with error {code}")
