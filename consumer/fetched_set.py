"""What a fetch returns of one partition, and its messages."""

from collections.abc import Iterator
from typing import NamedTuple, Self

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, KafkaError, MessageLargerThanFetchSize


class FetchedSet(NamedTuple):
    """One part of a fetch: either `error`, or `data` from `offset` on with a possibly cut tail."""

    topic: str
    partition: int
    offset: int
    data: memoryview
    error: KafkaError | None = None

    def check(self) -> Self:
        """Return itself. Raises the broker's error for this part, such as OffsetOutOfRange."""
        if self.error is not None:
            raise self.error
        return self

    def valid_bytes(self) -> int:
        """Length of the complete entries; 0 when the set is empty.

        Raises MessageLargerThanFetchSize or InvalidMessage, see `message_set.split`.
        """
        if not self.data and not self.error:
            return 0
        try:
            return message_set.split(self.check().data)
        except InvalidMessage as error:
            fault = str(error).removesuffix(" of entry at 0")  # which is where the bytes begin
            text = f"{fault} of the entry at {self.offset}"
            raise InvalidMessage(text, error.position) from None

    def messages(self) -> list[tuple[bytes, int]]:
        """(payload, next offset) of each message, wrappers opened; see `message_set.messages`.

        All are in memory at once; `pieces` has them a few MiB at a time.
        """
        return message_set.messages(self.check().data, self.offset)

    def payloads(self) -> list[bytes]:
        """The payloads of `messages`, at a third of the cost; the same errors."""
        return message_set.payloads(self.check().data)

    def pieces(self) -> Iterator[list[tuple[bytes, int]]]:
        """The same in lists of bounded memory, however much the wrappers unpack to; for sets from
        unknown senders. The same errors, after the lists before the damage."""
        rest = self.data[: self.valid_bytes()]
        offset = self.offset
        while rest:
            found, end = message_set.take_messages(rest, offset)
            yield found
            found = []  # so that two lists are never held at once
            rest = rest[end:]
            offset += end


def larger_size(size: int, error: MessageLargerThanFetchSize, size_max: int) -> int:
    """The size to fetch for an entry above `size` bytes; 0 if none up to `size_max` is left."""
    if error.size_needed > size_max or size >= size_max:
        return 0
    return min(size_max, max(2 * size, error.size_needed))
