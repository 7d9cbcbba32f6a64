"""Checks what a follower was sent before it is written: whole entries, each as its CRC says."""

from dataclasses import dataclass

from kafka2011.broker.log.errors import CopyDamaged
from kafka2011.broker.log.file_layer import Buffer
from kafka2011.protocol import message_set
from kafka2011.protocol.message import LENGTH, LENGTH_BYTES

CUT = "cut"


@dataclass(frozen=True, slots=True)
class Checked:
    """The whole entries of a copy, in bytes and number; the rest is the beginning of an entry, to
    be put before what comes next."""

    whole_bytes: int
    entry_count: int


def check_copied(data: Buffer, entry_bytes_max: int) -> Checked:
    """Find the whole entries at the beginning of `data`, which a leader has at an entry's offset.
    Wrappers are not opened: the copy is to equal the leader's bytes, whatever they are.

    Raises CopyDamaged for an entry that is wrong, or announced as larger than the maximum.
    """
    found = message_set.check_entries(data)
    rest = memoryview(data)[found.valid_bytes :]
    if found.fault and found.fault != CUT:
        raise CopyDamaged(f"a copy with {found.fault} after {found.valid_bytes} bytes")
    if len(rest) >= LENGTH_BYTES:
        (length,) = LENGTH.unpack_from(rest)
        if length + LENGTH_BYTES > entry_bytes_max:
            raise CopyDamaged(f"a copy with an entry of {length} bytes, above {entry_bytes_max}")
    return Checked(found.valid_bytes, found.entry_count)
