"""The loops over message sets, in Python: the reference for what the compiled twin must do.

Every function takes any contiguous buffer of bytes and copies only what it returns. The layout of
an entry is in `protocol.message`; the rules are those of the original's iterators:

 - fewer than 4 bytes left: the end;
 - a negative length is an error, wherever it is;
 - an entry cut short ends the set quietly after at least one complete entry, and is an error as the
   first one;
 - the CRC covers the payload only and is checked before anything is made of the payload;
 - the unpacked content of a wrapper is a set under the same rules.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

from protocol.checksum import crc32
from protocol.compression import DECOMPRESSED_BYTES_MAX, DecompressionBudget
from protocol.errors import (
    InvalidMessage,
    LocalProtocolError,
    MessageLargerThanFetchSize,
    MessageSizeTooLarge,
)
from protocol.message import (
    CODEC_MASK,
    CRC,
    LENGTH,
    LENGTH_BYTES,
    MAGIC0_HEADER,
    MAGIC0_OVERHEAD_BYTES,
    MAGIC1_HEADER,
    MAGIC1_OVERHEAD_BYTES,
    PAYLOAD_BYTES_MAX,
    ConsumedMessage,
    Ending,
    Scan,
)

COMPILED = False

_CUT = "cut"

# A Produce frame around its topic (see `protocol.requests`).
PRODUCE_HEAD: Final = Struct(">ihh")  # frame size, request id 0, topic length
PRODUCE_TAIL: Final = Struct(">ii")  # partition, set size


def scan(
    buffer: bytes | bytearray | memoryview, message_bytes_max: int, budget: DecompressionBudget
) -> Scan:
    """Validate a produced set (see `message_set.scan`)."""
    view = memoryview(buffer)
    end, entry_count, largest, wrappers = _walk(view, message_bytes_max)
    message_count = entry_count
    for position, codec, payload in wrappers:
        try:
            message_count += _count_inner(codec, payload, budget, 1) - 1
        except InvalidMessage as error:
            error.position = position
            raise
    return Scan(end, message_count, entry_count, largest)


def _walk(
    view: memoryview, message_bytes_max: int
) -> tuple[int, int, int, list[tuple[int, int, memoryview]]]:
    """Check the entries of one level; return end, count, largest payload, and the wrappers."""
    total = len(view)
    position = 0
    entry_count = 0
    largest = 0
    wrappers: list[tuple[int, int, memoryview]] = []
    while total - position >= LENGTH_BYTES:
        payload_start, end, attributes, fault = _entry(view, position, total)
        if fault:
            if fault == _CUT and entry_count:
                break
            raise InvalidMessage(f"{fault} entry at {position}", position)
        payload = view[payload_start:end]
        if len(payload) > largest:
            largest = len(payload)
            if largest > message_bytes_max:
                raise MessageSizeTooLarge(
                    f"payload of {largest} bytes is above the limit of {message_bytes_max}"
                )
        if attributes & CODEC_MASK:
            wrappers.append((position, attributes & CODEC_MASK, payload))
        entry_count += 1
        position = end
    return position, entry_count, largest, wrappers


def _entry(view: memoryview, position: int, total: int) -> tuple[int, int, int, str]:
    """Look at the entry at `position`: payload start, end, attributes, and what is wrong ("").

    At least 4 bytes are there. The attributes of magic 0 are 0.
    """
    (length,) = LENGTH.unpack_from(view, position)
    end = position + LENGTH_BYTES + length
    if length < 0:
        return 0, 0, 0, "negative length of"
    if end > total:
        return 0, 0, 0, _CUT
    if length < MAGIC0_OVERHEAD_BYTES:
        return 0, 0, 0, f"length {length} of"
    magic = view[position + LENGTH_BYTES]
    if magic == 1:
        if length < MAGIC1_OVERHEAD_BYTES:
            return 0, 0, 0, f"length {length} of"
        attributes = view[position + LENGTH_BYTES + 1]
        payload_start = position + LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES
    elif magic == 0:
        attributes = 0
        payload_start = position + LENGTH_BYTES + MAGIC0_OVERHEAD_BYTES
    else:
        return 0, 0, 0, f"unknown magic {magic} of"
    (crc,) = CRC.unpack_from(view, payload_start - CRC.size)
    if crc32(view[payload_start:end]) != crc:
        return 0, 0, 0, "wrong CRC of"
    return payload_start, end, attributes, ""


def _count_inner(codec: int, payload: memoryview, budget: DecompressionBudget, depth: int) -> int:
    unpacked = memoryview(budget.decompress(codec, payload, depth))
    _, message_count, _, wrappers = _walk(unpacked, len(unpacked))
    for _, inner_codec, inner_payload in wrappers:
        message_count += _count_inner(inner_codec, inner_payload, budget, depth + 1) - 1
    return message_count


def fault_text(buffer: bytes | bytearray | memoryview, position: int) -> str:
    """What is wrong with the entry at `position`, in words; the compiled twin asks this one."""
    view = memoryview(buffer)
    return f"{_entry(view, position, len(view))[3]} entry at {position}"


def produce_frames(
    buffer: bytes | bytearray | memoryview,
    start: int,
    end: int,
    frame_bytes_max: int,
    message_bytes_max: int,
) -> tuple[int, list[tuple[bytes, int, int, int, int]]]:
    """Read the plain Produce frames at the start of a buffer (see `requests.produce_frames`)."""
    view = memoryview(buffer)
    if not 0 <= start <= end <= len(view):
        raise ValueError("produce_frames: start and end must lie in the buffer")
    position = start
    found: list[tuple[bytes, int, int, int, int]] = []
    unpack_head = PRODUCE_HEAD.unpack_from
    unpack_tail = PRODUCE_TAIL.unpack_from
    while end - position >= PRODUCE_HEAD.size:
        size, request_id, topic_size = unpack_head(view, position)
        frame_end = position + LENGTH_BYTES + size
        tail_start = position + PRODUCE_HEAD.size + topic_size
        set_start = tail_start + PRODUCE_TAIL.size
        if (
            not 0 < size <= frame_bytes_max
            or frame_end > end
            or request_id
            or topic_size < 0
            or set_start > frame_end
        ):
            break
        partition, set_size = unpack_tail(view, tail_start)
        set_end = set_start + set_size
        if set_size < 0 or set_end > frame_end:
            break
        message_count = _plain_messages(view[set_start:set_end], message_bytes_max)
        if message_count < 0:
            break
        topic = bytes(view[position + PRODUCE_HEAD.size : tail_start])
        found.append((topic, partition, set_start, set_end, message_count))
        position = frame_end
    return position, found


def _plain_messages(view: memoryview, message_bytes_max: int) -> int:
    """How many messages a set has, or -1 when it is not simply good, plain and whole."""
    total = len(view)
    position = 0
    message_count = 0
    while total - position >= LENGTH_BYTES:
        payload_start, end, attributes, fault = _entry(view, position, total)
        if fault or attributes & CODEC_MASK or end - payload_start > message_bytes_max:
            return -1
        message_count += 1
        position = end
    return message_count if position == total else -1


def check_entries(buffer: bytes | bytearray | memoryview) -> Ending:
    """Find how far the top-level entries are good (see `message_set.check_entries`)."""
    view = memoryview(buffer)
    total = len(view)
    position = 0
    entry_count = 0
    while total - position >= LENGTH_BYTES:
        _, end, _, fault = _entry(view, position, total)
        if fault:
            words = fault if fault == _CUT else f"{fault} entry at {position}"
            return Ending(position, entry_count, words)
        entry_count += 1
        position = end
    return Ending(position, entry_count, _CUT if position < total else "")


def split(buffer: bytes | bytearray | memoryview) -> int:
    """Length of the complete entries (see `message_set.split`)."""
    total = len(buffer)
    position = 0
    unpack_length = LENGTH.unpack_from
    while total - position >= LENGTH_BYTES:
        (length,) = unpack_length(buffer, position)
        if length < MAGIC0_OVERHEAD_BYTES:
            if position:
                return position
            raise InvalidMessage(f"length {length} of entry at 0", 0)
        end = position + LENGTH_BYTES + length
        if end > total:
            break
        position = end
    if total and not position:
        raise cut_first(buffer)
    return position


def cut_first(buffer: bytes | bytearray | memoryview) -> MessageLargerThanFetchSize:
    total = len(buffer)
    needed = LENGTH_BYTES + LENGTH.unpack_from(buffer)[0] if total >= LENGTH_BYTES else 0
    return MessageLargerThanFetchSize(
        f"the first entry has {needed or 'unknown'} bytes, {total} were fetched", needed
    )


def messages(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[tuple[bytes, int]]:
    """Deep (payload, next offset) pairs (see `message_set.messages`)."""
    data = bytes(buffer)
    found: list[tuple[bytes, int]] = []
    for position, codec, payload, end in _top_level(data):
        if codec:
            inner = _inner_payloads(codec, payload, wrapper_bytes_max, position)
            if inner:
                last = inner.pop()
                # There is no way to address inside a wrapper: only its last message moves on.
                found.extend((message, offset + position) for message in inner)
                found.append((last, offset + end))
        else:
            found.append((payload, offset + end))
    return found


def payloads(
    buffer: bytes | bytearray | memoryview, wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[bytes]:
    """Deep payloads only (see `message_set.payloads`)."""
    found: list[bytes] = []
    for position, codec, payload, _ in _top_level(bytes(buffer)):
        if codec:
            found.extend(_inner_payloads(codec, payload, wrapper_bytes_max, position))
        else:
            found.append(payload)
    return found


def _top_level(data: bytes) -> list[tuple[int, int, bytes, int]]:
    """The complete top-level entries as (position, codec, payload, end), all CRCs checked."""
    if 0 < len(data) < LENGTH_BYTES:
        raise cut_first(data)
    view = memoryview(data)
    total = len(data)
    position = 0
    found: list[tuple[int, int, bytes, int]] = []
    while total - position >= LENGTH_BYTES:
        payload_start, end, attributes, fault = _entry(view, position, total)
        if fault:
            if fault != _CUT:
                raise InvalidMessage(f"{fault} entry at {position}", position)
            if position:
                break
            raise cut_first(data)
        found.append((position, attributes & CODEC_MASK, data[payload_start:end], end))
        position = end
    return found


def _inner_payloads(
    codec: int, payload: bytes, wrapper_bytes_max: int, position: int
) -> list[bytes]:
    budget = DecompressionBudget(wrapper_bytes_max)
    found: list[bytes] = []
    try:
        _collect(codec, payload, budget, 1, found)
    except InvalidMessage as error:
        error.position = position
        raise
    return found


def _collect(
    codec: int, payload: bytes, budget: DecompressionBudget, depth: int, found: list[bytes]
) -> None:
    data = budget.decompress(codec, payload, depth)
    view = memoryview(data)
    total = len(data)
    position = 0
    while total - position >= LENGTH_BYTES:
        payload_start, end, attributes, fault = _entry(view, position, total)
        if fault:
            if fault == _CUT and position:
                break
            raise InvalidMessage(f"{fault} entry at {position}", position)
        if attributes & CODEC_MASK:
            inner = data[payload_start:end]
            _collect(attributes & CODEC_MASK, inner, budget, depth + 1, found)
        else:
            found.append(data[payload_start:end])
        position = end


def consumed(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[ConsumedMessage]:
    """`messages` as objects (see `message_set.consumed`)."""
    return [
        ConsumedMessage(payload, topic, broker_id, partition, next_offset)
        for payload, next_offset in messages(buffer, offset, wrapper_bytes_max)
    ]


def consumed_text(message: ConsumedMessage) -> str:
    """The repr of a consumed message, for the compiled twin."""
    names = ConsumedMessage.__match_args__
    fields = ", ".join(f"{name}={getattr(message, name)!r}" for name in names)
    return f"ConsumedMessage({fields})"


def make_consumed(*fields: object) -> object:
    """Unpickle a consumed message as the class of the twin in use."""
    from protocol import hot

    return hot.ConsumedMessage(*fields)  # type: ignore[arg-type]


def encode(payloads: Sequence[bytes], magic: int = 1) -> bytes:
    """Plain entries (see `message_set.encode`)."""
    pieces: list[bytes] = []
    add = pieces.append
    if magic not in (0, 1):
        raise LocalProtocolError(f"no message format has the magic {magic}")
    pack1 = MAGIC1_HEADER.pack
    pack0 = MAGIC0_HEADER.pack
    for payload in payloads:
        size = len(payload)
        if size > PAYLOAD_BYTES_MAX:
            raise MessageSizeTooLarge(f"payload of {size} bytes does not fit an entry")
        if magic:
            add(pack1(size + MAGIC1_OVERHEAD_BYTES, 1, 0, crc32(payload)))
        else:
            add(pack0(size + MAGIC0_OVERHEAD_BYTES, 0, crc32(payload)))
        add(payload)
    return b"".join(pieces)


def encode_produce(topic: bytes, partition: int, payloads: Sequence[bytes]) -> bytes:
    """A whole Produce frame (see `requests.encode_produce`)."""
    message_set = encode(payloads)
    size = PRODUCE_HEAD.size - LENGTH_BYTES + len(topic) + PRODUCE_TAIL.size + len(message_set)
    try:
        head = PRODUCE_HEAD.pack(size, 0, len(topic))
        tail = PRODUCE_TAIL.pack(partition, len(message_set))
    except StructError as error:
        raise LocalProtocolError("a field of the produce request does not fit") from error
    return b"".join((head, topic, tail, message_set))
