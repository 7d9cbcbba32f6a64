"""The layout of one entry of a message set, written once.

    entry    = length i32 (bytes that follow, this field not counted), message
    message  = magic u8 = 0,                crc u32, payload      (magic 0, at least 5 bytes)
             | magic u8 = 1, attributes u8, crc u32, payload      (magic 1, at least 6 bytes)

All numbers are big-endian. The CRC is CRC-32 (zlib's polynomial) over the payload only: length,
magic and attributes are not protected by anything. Attribute bits 0-1 are the codec, the others
are written as 0 and ignored on reading. docs/log-format.md shows the same with a worked example,
and a test decodes that example with this module.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

LENGTH: Final = Struct(">i")
CRC: Final = Struct(">I")
MAGIC0_HEADER: Final = Struct(">iBI")  # length, magic, crc
MAGIC1_HEADER: Final = Struct(">iBBI")  # length, magic, attributes, crc
ENTRY_HEAD: Final = Struct(">iBB")  # length, magic, attributes if the magic is 1

LENGTH_BYTES: Final = LENGTH.size
# What `length` counts besides the payload.
MAGIC0_OVERHEAD_BYTES: Final = MAGIC0_HEADER.size - LENGTH_BYTES
MAGIC1_OVERHEAD_BYTES: Final = MAGIC1_HEADER.size - LENGTH_BYTES

CODEC_MASK: Final = 0x03

PAYLOAD_BYTES_MAX: Final = 2**31 - 1 - MAGIC1_OVERHEAD_BYTES


class Entry(NamedTuple):
    """One top-level entry, as dump tools show it; a wrapper is not opened.

    `offset` and `next_offset` are bytes from the start of the log. `is_valid` says that the magic
    is known and the CRC fits the payload.
    """

    offset: int
    magic: int
    attributes: int
    crc: int
    payload: bytes
    is_valid: bool
    next_offset: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 unknown."""
        return self.attributes & CODEC_MASK if self.magic == 1 else 0


class Scan(NamedTuple):
    """What a broker learns from one look at a produced message set.

    `valid_bytes`: length of the complete entries, which is what to append. `message_count`: inner
    messages counted, wrappers not.
    """

    valid_bytes: int
    message_count: int


class Ending(NamedTuple):
    """How far the top-level entries of a piece of a log are good, and why they end there.

    `valid_bytes`: length of the good entries from the start. `entry_count`: their number.
    `fault`: "" when the bytes end exactly there, "cut" when an incomplete entry follows (read more,
    or a torn write), else what is wrong with the entry at `valid_bytes`.
    """

    valid_bytes: int
    entry_count: int
    fault: str


@dataclass(slots=True, unsafe_hash=True)
class ConsumedMessage:
    """A message as handed to the application; treat it as read-only.

    `next_offset` is what to store once the application is done with it (see
    `message_set.messages` for messages inside a wrapper). The compiled twin has a class of its own
    with the same attributes: use `protocol.hot.ConsumedMessage`, which is the one in use.
    """

    payload: bytes
    topic: str
    broker_id: int
    partition: int
    next_offset: int
