"""The loops over message sets, in Python: the reference for what the compiled twin must do.

Every function takes any contiguous buffer of bytes. The layout of an entry is in
`protocol.message`; the rules are those of the original's iterators:

 - fewer than 4 bytes left: the end;
 - a negative length is an error, wherever it is;
 - an entry cut short ends the set quietly after at least one complete entry, and is an error as the
   first one;
 - the CRC covers the payload only and is checked before anything is made of the payload;
 - the unpacked content of a wrapper is a set under the same rules.

The two walks (`_walk` in place, `_read` copying payloads) try the common entry in line: magic 1,
whole, right CRC. Whatever is not that goes to `_entry`, which knows every case.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from kafka2011.protocol.checksum import crc32
from kafka2011.protocol.compression import DECOMPRESSED_BYTES_MAX, DecompressionBudget
from kafka2011.protocol.errors import (
    InvalidMessage,
    LocalProtocolError,
    MessageLargerThanFetchSize,
    MessageSizeTooLarge,
)
from kafka2011.protocol.layout import PRODUCE_FRAME_HEADER, PRODUCE_TAIL
from kafka2011.protocol.message import (
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

__all__ = [
    "COMPILED",
    "ConsumedMessage",
    "check_entries",
    "consumed",
    "consumed_text",
    "cut_first",
    "encode",
    "fault_text",
    "messages",
    "payloads",
    "produce_runs",
    "scan",
    "split",
    "take_consumed",
    "take_iterator",
    "take_messages",
    "take_payloads",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

COMPILED = False

_CUT = "cut"
_NO_LIMIT = 2**63 - 1

# Moving a set of this size costs less than handling one more append; a larger one stays in place.
_MERGED_SET_BYTES_MAX: Final = 32768


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


def fault_text(buffer: Buffer, position: int) -> str:
    """What is wrong with the entry at `position`, in words; the compiled twin calls it."""
    view = memoryview(buffer)
    return f"{_entry(view, position, len(view))[3]} entry at {position}"


def cut_first(buffer: Buffer) -> MessageLargerThanFetchSize:
    """The error for a set that does not even hold its first entry."""
    total = len(buffer)
    needed = LENGTH_BYTES + LENGTH.unpack_from(buffer)[0] if total >= LENGTH_BYTES else 0
    return MessageLargerThanFetchSize(
        f"the first entry has {needed or 'unknown'} bytes, {total} were fetched", needed
    )


# Produce ------------------------------------------------------------------------------------------


def _walk(
    view: memoryview, message_bytes_max: int
) -> tuple[int, int, int, list[tuple[int, int, memoryview]], str]:
    """Check the entries of one level.

    Returns how far they are good, their number, the largest payload, the wrappers as (position,
    codec, payload), and what stopped it: "" for the end. A payload above the limit stops it with
    "" too, and shows in the third value.
    """
    total = len(view)
    position = 0
    entry_count = 0
    largest = 0
    wrappers: list[tuple[int, int, memoryview]] = []
    last_header = total - MAGIC1_HEADER.size
    unpack = MAGIC1_HEADER.unpack_from
    while total - position >= LENGTH_BYTES:
        if position <= last_header:
            length, magic, attributes, crc = unpack(view, position)
            end = position + LENGTH_BYTES + length
        else:
            magic = end = attributes = crc = 0
        payload = view[position + MAGIC1_HEADER.size : end]
        if magic != 1 or length < MAGIC1_OVERHEAD_BYTES or end > total or crc32(payload) != crc:
            payload_start, end, attributes, fault = _entry(view, position, total)
            if fault:
                return position, entry_count, largest, wrappers, fault
            payload = view[payload_start:end]
        if len(payload) > largest:
            largest = len(payload)
            if largest > message_bytes_max:
                break
        if attributes & CODEC_MASK:
            wrappers.append((position, attributes & CODEC_MASK, payload))
        entry_count += 1
        position = end
    return position, entry_count, largest, wrappers, ""


def _check_end(position: int, entry_count: int, fault: str) -> None:
    """Raise unless a walk ended where a set may end."""
    if fault and (fault != _CUT or not entry_count):
        raise InvalidMessage(f"{fault} entry at {position}", position)


def scan(buffer: Buffer, message_bytes_max: int, budget: DecompressionBudget) -> Scan:
    """Validate a produced set (see `message_set.scan`)."""
    end, entry_count, largest, wrappers, fault = _walk(memoryview(buffer), message_bytes_max)
    _check_end(end, entry_count, fault)
    if largest > message_bytes_max:
        raise MessageSizeTooLarge(
            f"payload of {largest} bytes is above the limit of {message_bytes_max}"
        )
    message_count = entry_count - len(wrappers)
    for position, codec, payload in wrappers:
        try:
            message_count += _count_inner(codec, payload, budget, 1)
        except InvalidMessage as error:
            error.position = position
            raise
    return Scan(end, message_count)


def _count_inner(codec: int, payload: memoryview, budget: DecompressionBudget, depth: int) -> int:
    unpacked = memoryview(budget.decompress(codec, payload, depth))
    end, entry_count, _, wrappers, fault = _walk(unpacked, _NO_LIMIT)
    _check_end(end, entry_count, fault)
    message_count = entry_count - len(wrappers)
    for _, inner_codec, inner_payload in wrappers:
        message_count += _count_inner(inner_codec, inner_payload, budget, depth + 1)
    return message_count


def produce_runs(
    buffer: bytearray | memoryview,
    start: int,
    end: int,
    frame_bytes_max: int,
    message_bytes_max: int,
) -> tuple[int, list[tuple[bytes, int, int, int, int]]]:
    """Take the plain Produce frames at the start of a buffer (see `requests.produce_runs`)."""
    view = memoryview(buffer)
    if view.readonly:
        raise BufferError("produce_runs: the buffer must be writable")
    if not 0 <= start <= end <= len(view):
        raise ValueError("produce_runs: start and end must lie in the buffer")
    position = start
    runs: list[tuple[bytes, int, int, int, int]] = []
    route, run_start, run_end, run_messages, frame_count = b"", 0, 0, 0, 0
    while end - position >= PRODUCE_FRAME_HEADER.size:
        size, request_id, topic_size = PRODUCE_FRAME_HEADER.unpack_from(view, position)
        frame_end = position + LENGTH_BYTES + size
        route_start = position + PRODUCE_FRAME_HEADER.size - 2
        route_end = route_start + 2 + topic_size + 4
        set_start = route_end + 4
        if (
            not 0 < size <= frame_bytes_max
            or frame_end > end
            or request_id
            or topic_size < 0
            or set_start > frame_end
        ):
            break
        _, set_size = PRODUCE_TAIL.unpack_from(view, route_end - 4)
        if not 0 <= set_size <= frame_end - set_start:
            break
        message_set = view[set_start : set_start + set_size]
        good, message_count = _plain_start(message_set, message_bytes_max, CODEC_MASK)
        if good != set_size:  # magic 0, perhaps
            good, message_count, largest, wrappers, _ = _walk(message_set, message_bytes_max)
            if good != set_size or wrappers or largest > message_bytes_max:
                break
        if (
            frame_count
            and set_size <= _MERGED_SET_BYTES_MAX
            and view[route_start:route_end] == route
        ):
            view[run_end : run_end + set_size] = message_set
            run_end += set_size
            run_messages += message_count
            frame_count += 1
        else:
            if frame_count:
                runs.append((route, run_start, run_end, run_messages, frame_count))
            route = bytes(view[route_start:route_end])
            run_start, run_end = set_start, set_start + set_size
            run_messages, frame_count = message_count, 1
        position = frame_end
    if frame_count:
        runs.append((route, run_start, run_end, run_messages, frame_count))
    return position, runs


def check_entries(buffer: Buffer) -> Ending:
    """Find how far the top-level entries are good (see `message_set.check_entries`)."""
    view = memoryview(buffer)
    start, plain_count = _plain_start(view, _NO_LIMIT, 0)
    end, entry_count, _, _, fault = _walk(view[start:], _NO_LIMIT)
    end += start
    entry_count += plain_count
    if fault and fault != _CUT:
        return Ending(end, entry_count, f"{fault} entry at {end}")
    return Ending(end, entry_count, _CUT if end < len(view) else "")


def _plain_start(view: memoryview, payload_bytes_max: int, codec_mask: int) -> tuple[int, int]:
    """How far the entries from the start on are whole, valid and of magic 1, with payloads of at
    most that size and none of the attribute bits of `codec_mask`; and their number.

    Nearly all entries are like this, in runs of requests and when recovery reads gigabytes: this
    loop does nothing else.
    """
    total = len(view)
    position = entry_count = 0
    last_header = total - MAGIC1_HEADER.size
    length_max = payload_bytes_max + MAGIC1_OVERHEAD_BYTES
    unpack = MAGIC1_HEADER.unpack_from
    while position <= last_header:
        length, magic, attributes, crc = unpack(view, position)
        end = position + LENGTH_BYTES + length
        if (
            magic != 1
            or not MAGIC1_OVERHEAD_BYTES <= length <= length_max
            or end > total
            or attributes & codec_mask
            or crc32(view[position + MAGIC1_HEADER.size : end]) != crc
        ):
            break
        entry_count += 1
        position = end
    return position, entry_count


# Consume ------------------------------------------------------------------------------------------


def split(buffer: Buffer) -> int:
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


def _read(data: bytes) -> tuple[list[bytes], list[int], list[tuple[int, int]], str]:
    """Check and copy the entries of one level.

    Returns their payloads, their ends, the wrappers among them as (index, codec), and what stopped
    it: "" for the end.
    """
    view = memoryview(data)
    total = len(data)
    position = 0
    found: list[bytes] = []
    ends: list[int] = []
    wrappers: list[tuple[int, int]] = []
    last_header = total - MAGIC1_HEADER.size
    unpack = MAGIC1_HEADER.unpack_from
    while total - position >= LENGTH_BYTES:
        if position <= last_header:
            length, magic, attributes, crc = unpack(data, position)
            end = position + LENGTH_BYTES + length
        else:
            magic = end = attributes = crc = 0
        payload = data[position + MAGIC1_HEADER.size : end]
        if magic != 1 or length < MAGIC1_OVERHEAD_BYTES or end > total or crc32(payload) != crc:
            payload_start, end, attributes, fault = _entry(view, position, total)
            if fault:
                return found, ends, wrappers, fault
            payload = data[payload_start:end]
        if attributes & CODEC_MASK:
            wrappers.append((len(found), attributes & CODEC_MASK))
        found.append(payload)
        ends.append(end)
        position = end
    return found, ends, wrappers, ""


def _read_fetched(buffer: Buffer) -> tuple[list[bytes], list[int], list[tuple[int, int]], str]:
    """`_read` for a fetched set: raises when not even the first entry is complete."""
    data = bytes(buffer)
    found, ends, wrappers, fault = _read(data)
    if data and not found and fault in ("", _CUT):
        raise cut_first(data)
    return found, ends, wrappers, fault


def messages(
    buffer: Buffer, offset: int, wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[tuple[bytes, int]]:
    """Deep (payload, next offset) pairs (see `message_set.messages`)."""
    return take_messages(buffer, offset, wrapper_bytes_max, _NO_LIMIT)[0]


def payloads(buffer: Buffer, wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[bytes]:
    """Deep payloads only (see `message_set.payloads`)."""
    return take_payloads(buffer, wrapper_bytes_max, _NO_LIMIT)[0]


def take_messages(
    buffer: Buffer, offset: int, wrapper_bytes_max: int, unpacked_bytes_max: int
) -> tuple[list[tuple[bytes, int]], int]:
    """`messages` up to a budget, and where it ends (see `message_set.take_messages`)."""
    plain, ends, wrappers, fault = _read_fetched(buffer)
    pairs = list(zip(plain, [offset + end for end in ends], strict=True))
    found: list[tuple[bytes, int]] = []
    done = unpacked_bytes = 0
    for index, codec in wrappers:
        found += pairs[done:index]
        start = ends[index - 1] if index else 0
        if unpacked_bytes >= unpacked_bytes_max:
            return found, start
        inner, inner_bytes = _opened(codec, plain[index], wrapper_bytes_max, start)
        unpacked_bytes += inner_bytes
        if inner:
            last = inner.pop()
            # There is no way to address inside a wrapper: only its last message moves on.
            found += [(payload, offset + start) for payload in inner]
            found.append((last, offset + ends[index]))
        done = index + 1
    # A fault behind a wrapper is looked at after it, so that the error names the first bad entry.
    end = ends[-1] if ends else 0
    _check_end(end, len(plain), fault)
    return found + pairs[done:] if wrappers else pairs, end


def take_payloads(
    buffer: Buffer, wrapper_bytes_max: int, unpacked_bytes_max: int
) -> tuple[list[bytes], int]:
    """`payloads` up to a budget, and where it ends (see `message_set.take_payloads`)."""
    plain, ends, wrappers, fault = _read_fetched(buffer)
    found: list[bytes] = []
    done = unpacked_bytes = 0
    for index, codec in wrappers:
        found += plain[done:index]
        start = ends[index - 1] if index else 0
        if unpacked_bytes >= unpacked_bytes_max:
            return found, start
        inner, inner_bytes = _opened(codec, plain[index], wrapper_bytes_max, start)
        unpacked_bytes += inner_bytes
        found += inner
        done = index + 1
    end = ends[-1] if ends else 0
    _check_end(end, len(plain), fault)
    return found + plain[done:] if wrappers else plain, end


def _opened(
    codec: int, payload: bytes, wrapper_bytes_max: int, position: int
) -> tuple[list[bytes], int]:
    """The payloads in the top-level wrapper at `position`, however deep, and the number of bytes
    that were unpacked for them."""
    found: list[bytes] = []
    budget = DecompressionBudget(wrapper_bytes_max)
    try:
        _collect(codec, payload, budget, 1, found)
    except InvalidMessage as error:
        error.position = position
        raise
    return found, wrapper_bytes_max - budget.bytes_left


def _collect(
    codec: int, payload: bytes, budget: DecompressionBudget, depth: int, found: list[bytes]
) -> None:
    plain, ends, wrappers, fault = _read(budget.decompress(codec, payload, depth))
    done = 0
    for index, inner_codec in wrappers:
        found += plain[done:index]
        _collect(inner_codec, plain[index], budget, depth + 1, found)
        done = index + 1
    _check_end(ends[-1] if ends else 0, len(plain), fault)
    found += plain[done:]


def consumed(
    buffer: Buffer,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    *,
    wrapper_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[ConsumedMessage]:
    """`messages` as objects (see `message_set.consumed`)."""
    return take_consumed(buffer, offset, topic, broker_id, partition, wrapper_bytes_max, _NO_LIMIT)[
        0
    ]


def take_consumed(  # noqa: PLR0917 (five words name a place in a log)
    buffer: Buffer,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    wrapper_bytes_max: int,
    unpacked_bytes_max: int,
) -> tuple[list[ConsumedMessage], int]:
    """`take_messages` as objects (see `message_set.take_consumed`)."""
    pairs, end = take_messages(buffer, offset, wrapper_bytes_max, unpacked_bytes_max)
    found = [
        ConsumedMessage(payload, topic, broker_id, partition, next_offset)
        for payload, next_offset in pairs
    ]
    return found, end


def take_iterator(  # noqa: PLR0917 (as above)
    buffer: Buffer,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    wrapper_bytes_max: int,
    unpacked_bytes_max: int,
) -> tuple[Iterator[ConsumedMessage], int]:
    """`take_consumed` as an iterator (see `message_set.take_iterator`)."""
    found, end = take_consumed(
        buffer, offset, topic, broker_id, partition, wrapper_bytes_max, unpacked_bytes_max
    )
    return iter(found), end


def consumed_text(message: ConsumedMessage) -> str:
    """The repr of a consumed message, for the compiled twin."""
    names = ConsumedMessage.__match_args__
    fields = ", ".join(f"{name}={getattr(message, name)!r}" for name in names)
    return f"ConsumedMessage({fields})"


# Make ---------------------------------------------------------------------------------------------


def encode(payloads: Sequence[bytes], magic: int = 1) -> bytes:
    """Plain entries (see `message_set.encode`)."""
    if magic not in (0, 1):
        raise LocalProtocolError(f"no message format has the magic {magic}")
    pieces: list[bytes] = []
    add = pieces.append
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
