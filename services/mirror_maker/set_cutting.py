"""Which entries go together in one request to the target, and why one alone is refused. Pure.

A broker closes the connection at a request whose compressed sets unpack to more than its limit, or
cannot be unpacked. The unpacked size that a wrapper announces is read without unpacking it; only an
entry that was refused alone is unpacked.
"""

from typing import NamedTuple

from kafka2011.protocol import message_set
from kafka2011.protocol.compression import DecompressionBudget, announced_bytes
from kafka2011.protocol.errors import KafkaError, MessageLargerThanFetchSize
from kafka2011.protocol.message import CODEC_MASK, ENTRY_HEAD, LENGTH_BYTES, MAGIC1_HEADER


class RefusedEntry(NamedTuple):
    """An entry of the source's log that the target refuses, and why."""

    offset: int
    size: int  # bytes
    reason: str

    @property
    def text(self) -> str:
        return f"the target refuses the entry at {self.offset}, of {self.size} bytes: {self.reason}"

    @property
    def next_offset(self) -> int:
        return self.offset + self.size


class Piece(NamedTuple):
    """Entries that go together: where they end in their set, and their number."""

    end: int
    entry_count: int


def begins_compressed(data: memoryview) -> bool:
    """Whether the first of some whole entries is a wrapper."""
    _, magic, attributes = ENTRY_HEAD.unpack_from(data)
    return bool(magic == 1 and attributes & CODEC_MASK)


def cut_by_unpacked(data: memoryview, unpacked_bytes_max: int) -> tuple[list[Piece], bool]:
    """Cut whole entries into pieces that each announce at most that many unpacked bytes; also
    whether any is a wrapper. A single entry that announces more is a piece of its own."""
    pieces: list[Piece] = []
    position = entry_count = unpacked = 0
    has_wrappers = False
    while position < len(data):
        length, magic, attributes = ENTRY_HEAD.unpack_from(data, position)
        end = position + LENGTH_BYTES + length
        codec = attributes & CODEC_MASK if magic == 1 else 0
        if codec:
            has_wrappers = True
            announced = announced_bytes(codec, data[position + MAGIC1_HEADER.size : end])
            if entry_count and unpacked + announced > unpacked_bytes_max:
                pieces.append(Piece(position, entry_count))
                entry_count = unpacked = 0
            unpacked += announced
        entry_count += 1
        position = end
    pieces.append(Piece(position, entry_count))
    return pieces, has_wrappers


def leading_piece(data: bytes | memoryview, bytes_max: int) -> Piece:
    """The first entries that fit `bytes_max`, but at least one."""
    try:
        end = message_set.split(data[: max(bytes_max, LENGTH_BYTES)])
    except MessageLargerThanFetchSize as error:
        end = error.size_needed
    return Piece(end, message_set.check_entries(data[:end]).entry_count)


def fault_of(
    entry: bytes | memoryview, *, message_bytes_max: int, decompressed_bytes_max: int
) -> str:
    """Why a broker with these limits refuses this entry; "" if it accepts it."""
    budget = DecompressionBudget(decompressed_bytes_max)
    try:
        message_set.scan(entry, message_bytes_max, budget=budget)
    except KafkaError as error:
        return str(error)
    return ""
