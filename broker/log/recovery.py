"""Decides what to keep of the newest segment after an unclean stop.

Verdicts: *clean* (every entry is whole), *torn* (the last write did not finish: what follows the
last whole entry is copied to quarantine, then cut off), *corrupt* (whole entries follow the
damage, so it is no torn ending: nothing is touched and the partition goes offline until an
operator decides). Never opens sockets; never removes a byte that is not in quarantine first.

What tells torn from corrupt: a write that did not finish leaves a piece of an entry, or zeros
where sectors never reached the disk, and after that nothing but more of the same. Damage in the
middle has whole entries behind it.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from broker.log.errors import DataDirectoryError
from broker.log.file_layer import FileLayer
from protocol import message_set
from protocol.message import (
    CRC,
    LENGTH,
    LENGTH_BYTES,
    MAGIC0_OVERHEAD_BYTES,
    MAGIC1_OVERHEAD_BYTES,
)
from runtime.failpoints import failpoint

CUT_ENTRY = "cut entry"
READ_BYTES = 8 * 1024 * 1024
SECTOR_BYTES = 512
# How much of what follows the damage is searched for whole entries, and how many bytes of
# candidates are checksummed in that search: enough to pass one entry of `max.message.size`
# and bounded for any content.
SEARCH_BYTES_MAX = 8 * 1024 * 1024
SEARCH_CHECKED_BYTES_MAX = 64 * 1024 * 1024
# A length above this in a cut entry is taken for damage, not for a large message.
BELIEVABLE_BYTES_MAX = 128 * 1024 * 1024
# Looks like the start of an entry: a length of 5 to 256 MiB, magic 0 or 1. Zeros are passed over by
# the expression itself, so a long tail of them costs nothing.
_ENTRY_START = re.compile(
    rb"(?=(?:[\x01-\x0f][\x00-\xff]{3}"
    rb"|\x00(?:[^\x00][\x00-\xff]{2}|\x00[^\x00][\x00-\xff]|\x00\x00[\x05-\xff]))[\x00\x01])"
)


class Verdict(Enum):
    CLEAN = "clean"
    TORN = "torn"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class Examination:
    """What is in a segment: whole entries up to `valid_bytes` of `size_bytes`, and what then."""

    verdict: Verdict
    valid_bytes: int
    size_bytes: int
    entry_count: int
    reason: str


# (count, position) -> at most that many bytes; fewer only at the end of the file.
Reader = Callable[[int, int], bytes]


def examine(read: Reader, size_bytes: int, start: int = 0) -> Examination:
    """Walk the entries from `start` (the start of an entry) to the end of a segment."""
    valid, entry_count, fault = _walk(read, size_bytes, start)
    if not fault:
        return Examination(Verdict.CLEAN, valid, size_bytes, entry_count, "")
    where = f"{fault} at position {valid}"
    if _is_torn(read, valid, size_bytes, fault):
        return Examination(Verdict.TORN, valid, size_bytes, entry_count, where)
    return Examination(
        Verdict.CORRUPT, valid, size_bytes, entry_count, f"{where}, with whole entries behind it"
    )


def _walk(read: Reader, size_bytes: int, start: int) -> tuple[int, int, str]:
    """Position after the last whole entry, their number, and what is wrong there ("": nothing)."""
    position, entry_count, wanted = start, 0, READ_BYTES
    while position < size_bytes:
        data = read(min(wanted, size_bytes - position), position)
        ending = message_set.check_entries(data)
        position += ending.valid_bytes
        entry_count += ending.entry_count
        if not ending.fault:
            if not data:
                return position, entry_count, "the file ends early"
            continue
        if ending.fault != "cut":
            return position, entry_count, ending.fault
        # Cut by the end of what was read, or by the end of the file?
        rest = data[ending.valid_bytes : ending.valid_bytes + LENGTH_BYTES]
        needed = LENGTH_BYTES + LENGTH.unpack(rest)[0] if len(rest) == LENGTH_BYTES else 0
        if position + max(needed, LENGTH_BYTES) > size_bytes:
            return position, entry_count, CUT_ENTRY
        wanted = max(READ_BYTES, needed)
    return position, entry_count, ""


def _is_torn(read: Reader, position: int, size_bytes: int, fault: str) -> bool:
    rest = read(min(SEARCH_BYTES_MAX, size_bytes - position), position)
    if _lost_a_sector(rest, position):
        return True
    if not _whole_entry_behind(rest):
        return True
    # An entry whose header can be believed and which the end of the file cuts is the torn one:
    # entries inside its payload prove nothing. But when its CRC fits the bytes up to something
    # that looks like an entry, then only its length is damaged.
    return fault == CUT_ENTRY and _believable(rest) and not _fits_up_to_another(rest)


def _lost_a_sector(rest: bytes, position: int) -> bool:
    """Whether a sector of the damaged entry is all zeros: it never reached the disk (etcd's test).

    The sector that holds the entry's start counts from there on: what stands before it was
    flushed earlier. A length's own first bytes are zeros too, so less than a length proves nothing.
    """
    end = len(rest)
    if len(rest) >= LENGTH_BYTES:
        (length,) = LENGTH.unpack_from(rest)
        if length > 0:
            end = min(end, LENGTH_BYTES + length)
    first = -position % SECTOR_BYTES
    if first >= LENGTH_BYTES and len(rest) >= first and not rest[:first].strip(b"\0"):
        return True
    zeros = bytes(SECTOR_BYTES)
    return any(
        rest[sector : sector + SECTOR_BYTES] == zeros for sector in range(first, end, SECTOR_BYTES)
    )


def _whole_entry_behind(rest: bytes) -> bool:
    """Whether a whole entry with a payload starts anywhere behind the first byte of `rest`."""
    checked = 0
    view = memoryview(rest)
    for match in _ENTRY_START.finditer(rest, 1):
        candidate = match.start()
        (length,) = LENGTH.unpack_from(rest, candidate)
        end = candidate + LENGTH_BYTES + length
        # Without a payload the CRC is zero, which zeros satisfy: that proves nothing.
        if end > len(rest) or length <= _overhead(rest, candidate):
            continue
        checked += length
        if checked > SEARCH_CHECKED_BYTES_MAX:
            return False
        if message_set.check_entries(view[candidate:end]).valid_bytes:
            return True
    return False


def _overhead(rest: bytes, position: int) -> int:
    magic = rest[position + LENGTH_BYTES]
    return MAGIC1_OVERHEAD_BYTES if magic == 1 else MAGIC0_OVERHEAD_BYTES


def _believable(rest: bytes) -> bool:
    """Whether an entry's first bytes are a header that a broker lets in."""
    if len(rest) < LENGTH_BYTES + 2:
        return True
    (length,) = LENGTH.unpack_from(rest)
    magic, attributes = rest[LENGTH_BYTES], rest[LENGTH_BYTES + 1]
    return length <= BELIEVABLE_BYTES_MAX and (magic == 0 or (magic == 1 and attributes <= 2))


def _fits_up_to_another(rest: bytes) -> bool:
    """Whether the first entry is whole when it ends where something like an entry starts, whatever
    its length field says."""
    view = memoryview(rest)
    if len(rest) < LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES:
        return False
    end = LENGTH_BYTES + _overhead(rest, 0)  # so far the payload goes in the loop below
    (wanted,) = CRC.unpack_from(rest, end - CRC.size)
    crc = 0
    for match in _ENTRY_START.finditer(rest, end):
        crc = zlib.crc32(view[end : match.start()], crc)
        end = match.start()
        if crc == wanted:
            return True
    return False


def examine_file(files: FileLayer, fd: int, start: int = 0) -> Examination:
    """`examine` over an open segment. Raises OSError."""
    return examine(
        lambda count, position: files.read_at(fd, count, position), files.size(fd), start
    )


def cut_torn_ending(
    files: FileLayer, fd: int, path: Path, found: Examination, quarantine: Path
) -> Path:
    """Copy what follows the last whole entry to quarantine, durably, then cut it off, durably.

    The file keeps its modification time, by which time lookups and retention go. Run again after
    a crash at any point it comes to the same end. Returns the copy's path; raises OSError.
    """
    modified_ms = files.modified_ms(fd)
    files.make_directory(quarantine, parents=True)
    copy = _free_name(files, quarantine, f"{path.parent.name}-{path.name}.{found.valid_bytes}")
    out = files.open(copy, create=True)
    try:
        position = found.valid_bytes
        while position < found.size_bytes:
            data = files.read_at(fd, READ_BYTES, position)
            if not data:
                break
            written = 0
            while written < len(data):
                written += files.write_at(
                    out,
                    [memoryview(data)[written:]],
                    position + written - found.valid_bytes,
                )
            position += len(data)
        files.sync_file(out)
    finally:
        files.close(out)
    files.sync_directory(quarantine)
    failpoint("after_quarantine_copy")
    files.truncate(fd, found.valid_bytes)
    files.set_modified_ms(fd, modified_ms)
    files.sync_file(fd)
    return copy


def _free_name(files: FileLayer, directory: Path, name: str) -> Path:
    for number in range(10_000):
        path = directory / (f"{name}.{number}" if number else name)
        if not files.exists(path):
            return path
    raise DataDirectoryError(
        f"{directory} holds 10000 copies of {name}: look at them, then empty it"
    )
