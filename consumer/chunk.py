"""A piece of one partition as it was fetched, and the messages in it.

The bytes are the broker's, wrappers unopened, so that a mirror can send them on as they are. CRCs
are checked when messages are made of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from kafka2011.protocol import message, message_set
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import InvalidMessage
from kafka2011.protocol.hot import ConsumedMessage

__all__ = ["Chunk", "ConsumedMessage", "ShallowMessage", "TopicPartition"]


class TopicPartition(NamedTuple):
    """Identity of a partition: its topic, its broker, its number there."""

    topic: str
    broker_id: int
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_id}-{self.partition}"


@dataclass(slots=True, unsafe_hash=True)
class ShallowMessage(message.ConsumedMessage):
    """A top-level entry as it is in the log: `payload` is packed unless `codec` is NONE.

    A packed payload is a whole message set; `next_offset` is the end of the entry.
    """

    codec: Codec = Codec.NONE


class Chunk(NamedTuple):
    """Complete entries of one partition from `offset` up to `next_offset` (bytes of the log)."""

    topic: str
    broker_id: int
    partition: int
    offset: int
    data: bytes | memoryview
    next_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.broker_id, self.partition)

    def messages(self) -> list[ConsumedMessage]:
        """All messages, wrappers opened; `pieces` has them without holding them all.

        Raises:
          InvalidMessage: damaged on the way or on the broker's disk; fetch again from `offset`, or
            skip. `error.position` is the place in `data`.
        """
        return message_set.consumed(
            self.data, self.offset, self.topic, self.broker_id, self.partition
        )

    def pieces(self) -> Iterator[list[ConsumedMessage]]:
        """The messages in lists of bounded memory, however much the wrappers unpack to.

        The same errors, after the lists before the damage; `error.position` counts from the start
        of the list that could not be made.
        """
        rest = self
        while rest.data:
            found, rest = rest.take_messages()
            yield found
            found = []  # so that two lists are never held at once

    def take_messages(self) -> tuple[list[ConsumedMessage], Self]:
        """The first messages (see `message_set.take_messages`) and the rest of the chunk, which is
        empty at the end; the same errors."""
        found, end = message_set.take_consumed(
            self.data, self.offset, self.topic, self.broker_id, self.partition
        )
        return found, self.behind(end)

    def take_iterator(self) -> tuple[Iterator[ConsumedMessage], Self]:
        """`take_messages` as an iterator that makes each message on request, which is cheaper; the
        bytes are checked first, so that iterating raises nothing."""
        found, end = message_set.take_iterator(
            self.data, self.offset, self.topic, self.broker_id, self.partition
        )
        return found, self.behind(end)

    def take_payloads(self) -> tuple[list[bytes], Self]:
        """The payloads of `take_messages`, which is cheaper, and the same rest and errors."""
        found, end = message_set.take_payloads(self.data)
        return found, self.behind(end)

    def behind(self, size: int) -> Self:
        """The rest behind its first `size` bytes, an entry boundary; nothing is copied."""
        return self._replace(offset=self.offset + size, data=memoryview(self.data)[size:])

    def entries(self) -> list[ShallowMessage]:
        """The top-level entries, wrappers unopened: the items with `shallowiterator.enable`.

        The same errors as `messages`; the inside of a wrapper is not examined.
        """
        found = []
        for entry in message_set.entries(self.data, self.offset):
            if not entry.is_valid:
                position = entry.offset - self.offset
                raise InvalidMessage(f"wrong CRC of the entry at {entry.offset}", position)
            found.append(
                ShallowMessage(
                    entry.payload,
                    self.topic,
                    self.broker_id,
                    self.partition,
                    entry.next_offset,
                    message_set.codec_of(entry),
                )
            )
        return found

    def payloads(self) -> list[bytes]:
        """The payloads of `messages`, which is cheaper; the same errors."""
        return message_set.payloads(self.data)
