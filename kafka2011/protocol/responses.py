"""The three responses of 0.7, and two of our own. Produce has none.

    body        = error i16, rest
    Fetch       = message set (empty when error is not 0)
    MultiFetch  = for every part asked for, in that order: part size i32, part error i16, set
    Offsets     = count i32, count times offset i64
    Lineage     = count i32, count times (epoch i32, start i64); of our own, like its request

A part of a multi-fetch response is byte for byte a whole fetch response, frame size included, so
that a broker makes both with `encode_fetch_header` and sends the set itself from the file.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from struct import Struct
from struct import error as StructError
from typing import Final

from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
from kafka2011.protocol.lineage import Lineage

_HEADER: Final = Struct(">ih")  # size, error
_OFFSETS_HEADER: Final = Struct(">ihi")  # size, error, count
_ERROR: Final = Struct(">h")
_ERROR_AND_COUNT: Final = Struct(">hi")
_OFFSET_BYTES: Final = 8
_EPOCH_AND_START: Final = Struct(">iq")

FETCH_HEADER_BYTES: Final = _HEADER.size


def encode_fetch_header(error_code: int, set_size: int) -> bytes:
    """What stands before the set in a fetch response, and before each part of a multi-fetch one."""
    return _HEADER.pack(_ERROR.size + set_size, error_code)


def encode_multifetch_header(set_sizes: Iterable[int]) -> bytes:
    """What stands before the first part; each part follows with its own `encode_fetch_header`.

    Negative sizes, which a broker gives back for negative fetch sizes, add up as the 32-bit
    numbers of the original do: they wrap around.

    Raises:
      LocalProtocolError: the parts together do not fit a frame.
    """
    size = _ERROR.size + sum(FETCH_HEADER_BYTES + set_size for set_size in set_sizes)
    if size < 0:
        size = (size + 2**31) % 2**32 - 2**31
    try:
        return _HEADER.pack(size, 0)
    except StructError as error:
        raise LocalProtocolError(f"a response of {size} bytes does not fit a frame") from error


def encode_offsets_response(offsets: Sequence[int]) -> bytes:
    """The whole frame; the caller gives the offsets in descending order."""
    count = len(offsets)
    header = _OFFSETS_HEADER.pack(_ERROR_AND_COUNT.size + _OFFSET_BYTES * count, 0, count)
    return header + Struct(f">{count}q").pack(*offsets)


def encode_copies_response(is_possible: bool) -> bytes:
    """The whole frame: an Offsets response without offsets, with error -1 when there are too few
    replicas."""
    return _OFFSETS_HEADER.pack(_ERROR_AND_COUNT.size, 0 if is_possible else -1, 0)


def encode_lineage_response(lineage: Lineage) -> bytes:
    """The whole frame; without entries for a log that no replica set has written."""
    pieces = [_EPOCH_AND_START.pack(*entry) for entry in lineage]
    size = _ERROR_AND_COUNT.size + len(pieces) * _EPOCH_AND_START.size
    return b"".join((_OFFSETS_HEADER.pack(size, 0, len(pieces)), *pieces))


def decode_lineage_response(body: bytes | bytearray | memoryview) -> Lineage:
    """The lineage; both numbers of its entries ascend.

    Raises:
      RemoteProtocolError: a count that does not fit the body, an error code, which no broker sends,
        or entries that do not ascend.
    """
    view = memoryview(body)
    if len(view) < _ERROR_AND_COUNT.size:
        raise RemoteProtocolError(f"a lineage response of {len(view)} bytes")
    code, count = _ERROR_AND_COUNT.unpack_from(view)
    if code:
        raise RemoteProtocolError(f"a lineage response with error {code}")
    if count < 0 or _ERROR_AND_COUNT.size + count * _EPOCH_AND_START.size != len(view):
        raise RemoteProtocolError(f"{count} entries in a lineage response of {len(view)} bytes")
    found = tuple(_EPOCH_AND_START.iter_unpack(view[_ERROR_AND_COUNT.size :]))
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(((-1, 0), *found))):
        raise RemoteProtocolError(f"a lineage that does not ascend: {found[:10]}")
    return found


def decode_fetch_response(body: bytes | bytearray | memoryview) -> tuple[int, memoryview]:
    """The error code and a view of the set.

    Raises:
      RemoteProtocolError: shorter than an error code.
    """
    view = memoryview(body)
    if len(view) < _ERROR.size:
        raise RemoteProtocolError(f"a fetch response of {len(view)} bytes")
    (code,) = _ERROR.unpack_from(view)
    return code, view[_ERROR.size :]


def decode_multifetch_response(
    body: bytes | bytearray | memoryview, part_count: int
) -> list[tuple[int, memoryview]]:
    """Error code and set of each of the `part_count` parts that were asked for, in that order.

    Raises:
      RemoteProtocolError: not exactly that many parts, a part that does not fit, or an error code
        for the whole, which no broker sends. Parts carry no identity, so that nothing of the
        response can be used.
    """
    code, view = decode_fetch_response(body)
    if code:
        raise RemoteProtocolError(f"a multi-fetch response with error {code} of its own")
    parts: list[tuple[int, memoryview]] = []
    position = 0
    for _ in range(part_count):
        start = position + FETCH_HEADER_BYTES
        if start > len(view):
            raise RemoteProtocolError(f"{len(parts)} of {part_count} parts in the response")
        size, part_code = _HEADER.unpack_from(view, position)
        end = start + size - _ERROR.size
        if size < _ERROR.size or end > len(view):
            raise RemoteProtocolError(f"a part of {size} bytes in {len(view) - position}")
        parts.append((part_code, view[start:end]))
        position = end
    if position != len(view):
        raise RemoteProtocolError(f"{len(view) - position} bytes after the last part")
    return parts


def decode_offsets_response(body: bytes | bytearray | memoryview) -> list[int]:
    """The offsets, descending.

    Raises:
      RemoteProtocolError: a count that does not fit the body, or an error code, which 0.7's broker
        never sends (it closes the connection), and this one only in answer to Copies.
    """
    view = memoryview(body)
    if len(view) < _ERROR_AND_COUNT.size:
        raise RemoteProtocolError(f"an offsets response of {len(view)} bytes")
    code, count = _ERROR_AND_COUNT.unpack_from(view)
    if code:
        raise RemoteProtocolError(f"an offsets response with error {code}")
    if count < 0 or _ERROR_AND_COUNT.size + count * _OFFSET_BYTES != len(view):
        raise RemoteProtocolError(f"{count} offsets in a response of {len(view)} bytes")
    return list(Struct(f">{count}q").unpack_from(view, _ERROR_AND_COUNT.size))
