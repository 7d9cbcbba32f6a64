"""gzip and snappy in the forms that the JVM writes, with ceilings on what is unpacked.

The output ceiling is applied while unpacking, never after it: gzip is inflated up to the limit,
and a snappy block is not touched when the length that it declares does not fit. Time and memory
are linear in input plus allowed output, whatever the input.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from kafka2011.protocol.errors import DecompressedSizeTooLarge, InvalidMessage, LocalProtocolError


class Codec(IntEnum):
    """The codec number in bits 0-1 of a message's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2


# 16 MiB unpacked per request: 16 times what `max.message.size` lets through packed.
DECOMPRESSED_BYTES_MAX: Final = 16 * 1024 * 1024
# What a reader holds unpacked at once: it opens no further wrapper when it has this much.
PIECE_BYTES: Final = 4 * 1024 * 1024
# The JVM clients never nest; a mirror that repacks shallow wrappers nests once.
DEPTH_MAX: Final = 4

_GZIP_HEADER: Final = bytes.fromhex("1f8b0800000000000000")  # no time, no name, OS 0: older JVMs
_GZIP_MEMBER_START: Final = _GZIP_HEADER[:3]
_GZIP_MEMBER_BYTES_MIN: Final = 18  # header 10, trailer 8
# Each member costs a fresh inflater, so a payload of empty members is bounded by their number.
_GZIP_MEMBERS_MAX: Final = 1024
# Later members are fed in windows: zlib copies what follows a member, which would be quadratic.
_GZIP_WINDOW_BYTES: Final = 64 * 1024

_SNAPPY_MAGIC: Final = bytes.fromhex("82534e4150505900")
_SNAPPY_HEADER: Final = Struct(">8sii")  # magic, version, lowest compatible version
_SNAPPY_BLOCK_LENGTH: Final = Struct(">i")
_SNAPPY_BLOCK_BYTES: Final = 32768  # unpacked; the JVM's block size
# A copy of 64 bytes takes 3, so no block unpacks to more than about 21.4 times its length.
_SNAPPY_EXPANSION_MAX: Final = 22


class DecompressionBudget:
    """What all the sets of one request may unpack to together.

    Make one per request (or per fetched top-level entry) and hand it to every `scan` of it.
    `bytes_left` only ever falls. A wrapper at the top level has depth 1.
    """

    __slots__ = ("bytes_left", "depth_max")

    def __init__(self, bytes_max: int = DECOMPRESSED_BYTES_MAX, depth_max: int = DEPTH_MAX) -> None:
        self.bytes_left = bytes_max
        self.depth_max = depth_max

    def decompress(self, codec: int, data: bytes | memoryview, depth: int) -> bytes:
        """Unpack a wrapper's payload found at `depth` and charge its size to the budget.

        Raises:
          InvalidMessage: nested too deep, unknown codec, or bytes that do not unpack.
          DecompressedSizeTooLarge: the budget does not cover it.
        """
        if depth > self.depth_max:
            raise InvalidMessage(f"compressed sets nested more than {self.depth_max} deep")
        unpacked = decompress(codec, data, self.bytes_left)
        self.bytes_left -= len(unpacked)
        return unpacked


def compress(codec: int, data: bytes) -> bytes:
    """Pack `data` as the JVM clients do: one gzip member without time, or framed snappy."""
    if codec == Codec.GZIP:
        member = bytearray(zlib.compress(data, wbits=31))
        member[: len(_GZIP_HEADER)] = _GZIP_HEADER
        return bytes(member)
    if codec == Codec.SNAPPY:
        pieces = [_SNAPPY_HEADER.pack(_SNAPPY_MAGIC, 1, 1)]
        for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
            pieces.append(_SNAPPY_BLOCK_LENGTH.pack(len(block)))
            pieces.append(block)
        return b"".join(pieces)
    if codec == Codec.NONE:
        return data
    raise LocalProtocolError(f"no codec has the number {codec}")


def decompress(codec: int, data: bytes | memoryview, bytes_max: int) -> bytes:
    """Unpack to at most `bytes_max` bytes.

    gzip may have several members, and what follows the last one is ignored, as in the JVM. snappy
    may be framed (the JVM) or one raw block (0.7-era clients in other languages).

    Raises:
      DecompressedSizeTooLarge: more than `bytes_max`; not unpacked further.
      InvalidMessage: an unknown codec or bytes that do not unpack.
    """
    if codec == Codec.GZIP:
        return _gunzip(data, bytes_max)
    if codec == Codec.SNAPPY:
        return _unsnappy(memoryview(data), bytes_max)
    raise InvalidMessage(f"unknown codec {codec}")


def announced_bytes(codec: int, data: memoryview) -> int:
    """The unpacked size that a packed payload declares, read without unpacking; 0 if there is none.

    A hint: it may be wrong. gzip declares its last member's, modulo 4 GiB.
    """
    if codec == Codec.GZIP:
        return int.from_bytes(data[-4:], "little") if len(data) >= _GZIP_MEMBER_BYTES_MIN else 0
    if codec != Codec.SNAPPY:
        return 0
    try:
        if data[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
            return int(cramjam.snappy.decompress_raw_len(data))
        announced, position = 0, _SNAPPY_HEADER.size
        while position + _SNAPPY_BLOCK_LENGTH.size < len(data):
            (length,) = _SNAPPY_BLOCK_LENGTH.unpack_from(data, position)
            position += _SNAPPY_BLOCK_LENGTH.size
            if length <= 0:
                break
            # A varint of at most 5 bytes is all that is read of a block.
            announced += int(cramjam.snappy.decompress_raw_len(data[position : position + 5]))
            position += length
        return announced
    except cramjam.DecompressionError:
        return 0


def _gunzip(data: bytes | memoryview, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        # One byte more than allowed, so that "too much" shows. 0 would mean no limit.
        unpacked = inflater.decompress(data, bytes_max + 1)
        if len(unpacked) > bytes_max:
            raise _too_large(bytes_max)
        if not inflater.eof:
            raise InvalidMessage("gzip payload is truncated")
        if not inflater.unused_data:
            return unpacked
        rest = memoryview(inflater.unused_data)
        return _gunzip_more_members(unpacked, rest, bytes_max)
    except zlib.error as error:
        raise InvalidMessage(f"gzip payload does not unpack: {error}") from error


def _gunzip_more_members(first: bytes, rest: memoryview, bytes_max: int) -> bytes:
    pieces = [first]
    bytes_left = bytes_max - len(first)
    position = 0
    members = 1
    # The JVM ignores whatever does not look like another member.
    while (
        len(rest) - position > _GZIP_MEMBER_BYTES_MIN
        and rest[position : position + 3] == _GZIP_MEMBER_START
    ):
        members += 1
        if members > _GZIP_MEMBERS_MAX:
            raise InvalidMessage(f"gzip payload has more than {_GZIP_MEMBERS_MAX} members")
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            window = rest[position : position + _GZIP_WINDOW_BYTES]
            if not window:
                raise InvalidMessage("gzip payload is truncated")
            piece = inflater.decompress(window, bytes_left + 1)
            if len(piece) > bytes_left:
                raise _too_large(bytes_max)
            pieces.append(piece)
            bytes_left -= len(piece)
            # With room left in the output, zlib has taken the whole window or ended the member.
            position += len(window) - len(inflater.unused_data)
    return b"".join(pieces)


def _unsnappy(data: memoryview, bytes_max: int) -> bytes:
    if len(data) < _SNAPPY_HEADER.size or data[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        return _unsnappy_block(data, bytes_max)
    _, version, _ = _SNAPPY_HEADER.unpack_from(data)
    if version < 1:
        raise InvalidMessage(f"snappy stream has version {version}")
    pieces: list[bytes] = []
    bytes_left = bytes_max
    position = _SNAPPY_HEADER.size
    while position < len(data):
        start = position + _SNAPPY_BLOCK_LENGTH.size
        if start > len(data):
            break  # fewer than 4 bytes where a length would stand are the end, as in the JVM
        (length,) = _SNAPPY_BLOCK_LENGTH.unpack_from(data, position)
        if not 0 < length <= len(data) - start:
            raise InvalidMessage(f"snappy block of {length} bytes in {len(data) - start}")
        piece = _unsnappy_block(data[start : start + length], bytes_left)
        pieces.append(piece)
        bytes_left -= len(piece)
        position = start + length
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unsnappy_block(block: memoryview, bytes_max: int) -> bytes:
    try:
        # The declared length is read first: it is what the decoder would allocate.
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > len(block) * _SNAPPY_EXPANSION_MAX:
            raise InvalidMessage(f"snappy block of {len(block)} bytes declares {declared}")
        if declared > bytes_max:
            raise _too_large(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InvalidMessage(f"snappy payload does not unpack: {error}") from error


def _too_large(bytes_max: int) -> DecompressedSizeTooLarge:
    return DecompressedSizeTooLarge(f"compressed set unpacks to more than {bytes_max} bytes")
