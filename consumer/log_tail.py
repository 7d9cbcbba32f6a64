"""The tail of what was read of a log: the last bytes before an offset, as a digest.

A log that was lost begins again at offset 0. Once it has grown beyond an offset of the old one,
that offset by itself does not show that it is of another log; the bytes before it do. Every broker
can be asked for them, since a fetch may begin at any byte.
"""

import hashlib
from typing import NamedTuple, Protocol

from kafka2011.consumer.fetched_set import FetchedSet
from kafka2011.protocol.errors import OffsetOutOfRange

TAIL_BYTES = 256


class Tail(NamedTuple):
    """The last bytes before an offset, as a digest: another log has others there."""

    size: int
    digest: bytes


class TailAt(NamedTuple):
    """A tail and the offset at which it ends."""

    offset: int
    tail: Tail


class FetchesOne(Protocol):
    """The part of a SimpleConsumer that is used here."""

    def fetch(self, topic: str, partition: int, offset: int, size_max: int, /) -> FetchedSet: ...


def tail_of(data: bytes | memoryview) -> Tail:
    """The tail of bytes that end at the offset."""
    last = data[-TAIL_BYTES:]
    return Tail(len(last), hashlib.blake2b(last, digest_size=8).digest())


def bytes_before(client: FetchesOne, topic: str, partition: int, offset: int, size: int) -> bytes:
    """The `size` bytes before `offset`; fewer where the broker does not have, or not show, all.

    Raises the broker's errors other than OffsetOutOfRange.
    """
    found = b""
    try:
        while len(found) < size:  # a fetch ends with the segment
            at = offset - size + len(found)
            piece = client.fetch(topic, partition, at, offset - at).data
            if not piece:
                break
            found += bytes(piece)
    except OffsetOutOfRange:
        pass
    return found


def is_another_log(client: FetchesOne, topic: str, partition: int, known: TailAt) -> bool:
    """Whether the log has other bytes where `known` was read. False where it does not have, or not
    show, all of them: that proves nothing.

    Raises as `bytes_before`.
    """
    found = bytes_before(client, topic, partition, known.offset, known.tail.size)
    return len(found) == known.tail.size and tail_of(found) != known.tail
