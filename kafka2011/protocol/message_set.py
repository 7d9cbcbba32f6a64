"""Message sets: making, validating and reading them. What the rest of the project calls.

A set is zero or more entries back to back, the same bytes on the wire and on disk (the layout is
in `protocol.message`). The loops themselves live in the two twins behind `protocol.hot`; the
functions here say what they promise.
"""

from collections.abc import Iterator, Sequence

from kafka2011.protocol import hot
from kafka2011.protocol.checksum import crc32
from kafka2011.protocol.compression import (
    DECOMPRESSED_BYTES_MAX,
    PIECE_BYTES,
    Codec,
    DecompressionBudget,
    compress,
)
from kafka2011.protocol.errors import InvalidMessage
from kafka2011.protocol.hot import ConsumedMessage
from kafka2011.protocol.message import (
    CODEC_MASK,
    CRC,
    LENGTH,
    LENGTH_BYTES,
    MAGIC0_OVERHEAD_BYTES,
    MAGIC1_HEADER,
    MAGIC1_OVERHEAD_BYTES,
    Ending,
    Entry,
    Scan,
)

__all__ = [
    "Codec",
    "ConsumedMessage",
    "DecompressionBudget",
    "Ending",
    "Entry",
    "Scan",
    "check_entries",
    "codec_of",
    "consumed",
    "encode",
    "encode_compressed",
    "entries",
    "is_entry",
    "messages",
    "payload_bytes",
    "payloads",
    "scan",
    "split",
    "take_consumed",
    "take_iterator",
    "take_messages",
    "take_payloads",
]


def encode(payloads: Sequence[bytes], magic: int = 1) -> bytes:
    """A set of plain entries, one per payload; empty payloads are legal.

    Raises:
      MessageSizeTooLarge: a payload cannot be expressed in 31 bits.
      TypeError: a payload is not bytes-like.
    """
    try:
        return hot.encode(payloads, magic)
    except TypeError:
        for payload in payloads:
            payload_bytes(payload)
        raise


def payload_bytes(payload: object) -> bytes:
    """A copy of a bytes-like object. Raises TypeError for text, numbers or anything else."""
    try:
        return bytes(memoryview(payload))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a payload must be bytes, not {type(payload).__name__}: encode it, or say how with "
            "serializer.class"
        ) from None


def encode_compressed(payloads: Sequence[bytes], codec: int) -> bytes:
    """One wrapper entry (magic 1) that holds all payloads; no payloads make an empty set.

    The broker compares the compressed size with `max.message.size`.
    """
    if codec == Codec.NONE:
        return hot.encode(payloads, 1)
    if not payloads:
        return b""
    packed = compress(codec, hot.encode(payloads, 1))
    header = MAGIC1_HEADER.pack(len(packed) + MAGIC1_OVERHEAD_BYTES, 1, int(codec), crc32(packed))
    return header + packed


def scan(
    buffer: bytes | bytearray | memoryview,
    message_bytes_max: int,
    *,
    budget: DecompressionBudget,
) -> Scan:
    """Validate a produced set as the original broker does, and say how much of it to append.

    First the top level in order: every CRC, and every payload's size against `message_bytes_max`
    (equal is allowed). Then the wrappers: every inner CRC, charged to `budget`, which all the sets
    of one request share. An incomplete entry at the end is left out of `valid_bytes`.

    Raises:
      MessageSizeTooLarge: drop this set, keep the connection.
      InvalidMessage: append nothing of this set and close the connection.
    """
    return hot.scan(buffer, message_bytes_max, budget)


def check_entries(buffer: bytes | bytearray | memoryview) -> Ending:
    """Find how far the top-level entries of a piece of a log are good; for recovery.

    Wrappers are not opened. Nothing is raised: the answer says where and why the good part ends.
    """
    return hot.check_entries(buffer)


def split(buffer: bytes | bytearray | memoryview) -> int:
    """Length in bytes of the complete entries at the start of a fetched set.

    CRCs are not looked at. An impossible length ends the good part like a cut entry does, so that
    what stands before it is delivered first; the next fetch then starts at it, and raises.

    Raises:
      MessageLargerThanFetchSize: not even the first entry is complete; fetch with a larger size.
      InvalidMessage: the first entry has an impossible length.
    """
    return hot.split(buffer)


def messages(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[tuple[bytes, int]]:
    """All messages of a set fetched at `offset`, as (payload, next offset), wrappers opened.

    The next offset is what to store once that message is done with. Inside a wrapper it is the
    wrapper's own start for all but the last message, because there is no way to address inside.
    `wrapper_bytes_max` bounds what each top-level wrapper may unpack to. All of it is in memory at
    once, and a fetch of 1 MB can hold a thousand times as much: for bytes from unknown
    senders there is `take_messages`.

    Raises:
      MessageLargerThanFetchSize: not even the first entry is complete.
      InvalidMessage: a damaged entry; `error.position` is where it starts in the buffer, and
        `buffer[:error.position]` can still be delivered.
    """
    return hot.messages(buffer, offset, wrapper_bytes_max)


def payloads(
    buffer: bytes | bytearray | memoryview, wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[bytes]:
    """The payloads of `messages`, without offsets; the same errors."""
    return hot.payloads(buffer, wrapper_bytes_max)


def consumed(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[ConsumedMessage]:
    """`messages` as objects that know where they come from; the same errors."""
    return hot.consumed(
        buffer, offset, topic, broker_id, partition, wrapper_bytes_max=wrapper_bytes_max
    )


def take_messages(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    unpacked_bytes_max: int = PIECE_BYTES,
) -> tuple[list[tuple[bytes, int]], int]:
    """The first of `messages`, and the position after their entries: go on there.

    A piece ends before the first wrapper that comes when `unpacked_bytes_max` or more bytes are
    unpacked; the first is always opened. So a set whose wrappers are small is one piece, as is one
    without wrappers, and no piece has more unpacked than both limits together. The errors are
    those of `messages`, for what the piece covers.
    """
    return hot.take_messages(buffer, offset, wrapper_bytes_max, unpacked_bytes_max)


def take_payloads(
    buffer: bytes | bytearray | memoryview,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    unpacked_bytes_max: int = PIECE_BYTES,
) -> tuple[list[bytes], int]:
    """The payloads of `take_messages`, and the same position; the same errors."""
    return hot.take_payloads(buffer, wrapper_bytes_max, unpacked_bytes_max)


def take_consumed(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    unpacked_bytes_max: int = PIECE_BYTES,
) -> tuple[list[ConsumedMessage], int]:
    """`take_messages` as objects that know where they come from; the same errors."""
    return hot.take_consumed(
        buffer, offset, topic, broker_id, partition, wrapper_bytes_max, unpacked_bytes_max
    )


def take_iterator(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    unpacked_bytes_max: int = PIECE_BYTES,
) -> tuple[Iterator[ConsumedMessage], int]:
    """`take_consumed` as an iterator, which may end sooner: a run of plain entries is checked here
    and each of its messages made on demand. The same errors, all raised by this call; `buffer`
    must not change until the iterator has ended."""
    return hot.take_iterator(
        buffer, offset, topic, broker_id, partition, wrapper_bytes_max, unpacked_bytes_max
    )


def entries(buffer: bytes | bytearray | memoryview, offset: int = 0) -> Iterator[Entry]:
    """The complete top-level entries one by one, valid or not, for tools that show a log.

    `offset` is the log offset of the buffer's first byte. Stops quietly before a cut entry: the
    last `next_offset` says how far it came.

    Raises:
      InvalidMessage: an entry's length is impossible, so that nothing after it can be found.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= LENGTH_BYTES:
        (length,) = LENGTH.unpack_from(view, position)
        start = position + LENGTH_BYTES
        if length < MAGIC0_OVERHEAD_BYTES:
            raise InvalidMessage(f"length {length} of the entry at {offset + position}", position)
        end = start + length
        if end > len(view):
            return
        magic = view[start]
        overhead = MAGIC1_OVERHEAD_BYTES if magic == 1 else MAGIC0_OVERHEAD_BYTES
        if magic == 1 and length < MAGIC1_OVERHEAD_BYTES:
            raise InvalidMessage(f"length {length} of the entry at {offset + position}", position)
        attributes = view[start + 1] if magic == 1 else 0
        (crc,) = CRC.unpack_from(view, start + overhead - CRC.size)
        payload = bytes(view[start + overhead : end])
        is_valid = magic in (0, 1) and crc32(payload) == crc
        yield Entry(offset + position, magic, attributes, crc, payload, is_valid, offset + end)
        position = end


def is_entry(buffer: bytes | bytearray | memoryview, position: int) -> bool:
    """Whether a whole, valid entry with a payload starts at `position`; a header must fit there.

    For finding a boundary in bytes fetched from any offset: a CRC does not match by chance, except
    that of an empty payload, 0.
    """
    # Nearly every position that is no boundary has no known magic or no possible length.
    if buffer[position + LENGTH_BYTES] > 1:
        return False
    (length,) = LENGTH.unpack_from(buffer, position)
    if not 0 < length <= len(buffer) - position - LENGTH_BYTES:
        return False
    magic1 = buffer[position + LENGTH_BYTES]
    start = position + LENGTH_BYTES + (MAGIC1_OVERHEAD_BYTES if magic1 else MAGIC0_OVERHEAD_BYTES)
    end = position + LENGTH_BYTES + length
    if end <= start:
        return False
    crc: int = CRC.unpack_from(buffer, start - CRC.size)[0]
    return crc == crc32(memoryview(buffer)[start:end])


def codec_of(entry: Entry) -> Codec:
    """The entry's codec.

    Raises:
      InvalidMessage: codec bits 3, which are not defined.
    """
    number = entry.attributes & CODEC_MASK
    try:
        return Codec(number)
    except ValueError:
        raise InvalidMessage(f"unknown codec {number} at {entry.offset}") from None
