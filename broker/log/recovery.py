"""Decides what to keep of the newest segment after an unclean stop.

Verdicts: *clean* (every entry is whole), *torn* (the last write did not finish: what follows the
last whole entry is copied to quarantine, then cut off), *corrupt* (whole entries follow the
damage, so it is no torn ending: nothing is touched and the partition goes offline until an
operator decides). Never opens sockets; never removes a byte that is not in quarantine first.

Damage below the flushed end, where that is known (`flushed_mark`), is corrupt: no write was under
way there. Above it, a write that did not finish leaves an entry cut by the end of the file, or a
sector of zeros in the damaged entry where power was lost before it was written: torn. Other damage
is corrupt if whole entries follow it, and torn if none do; where bounded work cannot tell, the
verdict is corrupt, which costs no data.
"""

import contextlib
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.protocol import message_set
from kafka2011.protocol.message import (
    CODEC_MASK,
    CRC,
    LENGTH,
    LENGTH_BYTES,
    MAGIC0_OVERHEAD_BYTES,
    MAGIC1_OVERHEAD_BYTES,
)
from kafka2011.runtime.failpoints import failpoint

CUT_ENTRY = "cut entry"
READ_BYTES = 8 * 1024 * 1024
SECTOR_BYTES = 512
ZERO_SECTOR = bytes(SECTOR_BYTES)
HEADER_BYTES_MAX = LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES
# The searches for whole entries after the damage, and for the end of a damaged one, checksum at
# most this much of what looks like entries: UTF-16 text, for instance, looks like the start of an
# entry at every character.
SEARCH_CHECKED_BYTES_MAX = 64 * 1024 * 1024
# A place where no entry can begin costs as much of the budget: 64 MiB of such are some seconds.
CANDIDATE_BYTES = 16
# How far to look for the end of an entry whose length is damaged, if its length says less.
FIT_BYTES = 8 * 1024 * 1024
# Looks like the start of an entry: a length of 5 bytes to 256 MiB, magic 0 or 1. No run of zeros
# does, so that a long tail of them has no candidates.
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
    """What is in a segment: whole entries up to `valid_bytes` of `size_bytes`, and a verdict.

    `last_read` is where an entry starts, at most about one read before `valid_bytes`.
    """

    verdict: Verdict
    valid_bytes: int
    size_bytes: int
    entry_count: int
    reason: str
    last_read: int


# (count, position) -> at most that many bytes; fewer only at the end of the file.
Reader = Callable[[int, int], bytes]


def examine(read: Reader, size_bytes: int, start: int = 0, flushed_bytes: int = 0) -> Examination:
    """Walk the entries from `start` (the start of an entry) to the end of a segment.

    At least `flushed_bytes` of it are known to have been flushed.
    """
    valid, entry_count, fault, last_read = _walk(read, size_bytes, start)
    is_short = valid < flushed_bytes
    if not fault and not is_short:
        return Examination(Verdict.CLEAN, valid, size_bytes, entry_count, "", last_read)
    where = f"{fault or 'the file ends'} at position {valid}"
    if is_short:
        why_corrupt = f"below position {flushed_bytes}, up to which it was flushed"
    else:
        why_corrupt = _why_corrupt(read, valid, size_bytes, fault)
    if not why_corrupt:
        return Examination(Verdict.TORN, valid, size_bytes, entry_count, where, last_read)
    return Examination(
        Verdict.CORRUPT, valid, size_bytes, entry_count, f"{where}, {why_corrupt}", last_read
    )


def _walk(read: Reader, size_bytes: int, start: int) -> tuple[int, int, str, int]:
    """Position after the last whole entry, the number of entries, what is wrong there ("":
    nothing), and where the last read that found one began."""
    position, entry_count, last_read = start, 0, start
    end = size_bytes
    while position < end:
        count = min(READ_BYTES, end - position)
        data = read(count, position)
        if len(data) < count:  # the file was cut after its size was taken
            end = position + len(data)
        ending = message_set.check_entries(data)
        if ending.valid_bytes:
            last_read = position
        position += ending.valid_bytes
        entry_count += ending.entry_count
        if not ending.fault:
            continue
        if ending.fault != "cut":
            # It names a position in what was read; `examine` says where in the file it is.
            fault = ending.fault.removesuffix(f" at {ending.valid_bytes}")
            return position, entry_count, fault, last_read
        # Cut by the end of what was read, or by the end of the file?
        rest = data[ending.valid_bytes : ending.valid_bytes + LENGTH_BYTES]
        needed = LENGTH_BYTES + LENGTH.unpack(rest)[0] if len(rest) == LENGTH_BYTES else 0
        if position + max(needed, LENGTH_BYTES) > end:
            return position, entry_count, CUT_ENTRY, last_read
        if needed > READ_BYTES:
            fault = _fault_of(read, position, position + needed)
            if fault:
                return position, entry_count, fault, last_read
            last_read = position
            position += needed
            entry_count += 1
    return position, entry_count, "" if end == size_bytes else "the file ends early", last_read


def _fault_of(read: Reader, position: int, end: int) -> str:
    """What is wrong with the entry from `position` to `end` ("": nothing). It is read in pieces: a
    damaged length may be that of a whole segment."""
    header = read(HEADER_BYTES_MAX, position)
    at = position + LENGTH_BYTES + _overhead(header, 0)
    if len(header) < at - position:
        return CUT_ENTRY
    if header[LENGTH_BYTES] > 1:
        return f"unknown magic {header[LENGTH_BYTES]} of entry"
    (wanted,) = CRC.unpack_from(header, at - position - CRC.size)
    crc = 0
    while at < end:
        data = read(min(READ_BYTES, end - at), at)
        if not data:
            return CUT_ENTRY
        crc = zlib.crc32(data, crc)
        at += len(data)
    return "" if crc == wanted else "wrong CRC of entry"


def _why_corrupt(read: Reader, position: int, size_bytes: int, fault: str) -> str:
    """Why the damage at `position` is not a torn ending; "" when it is."""
    header = read(HEADER_BYTES_MAX, position)
    if fault == CUT_ENTRY and believable(header):
        # Entries that stand inside its payload prove nothing.
        return _fits_another_length(read, position, size_bytes, header)
    end = position + LENGTH_BYTES + _claimed(header)
    next_is_whole = _claimed(header) > 0 and is_whole(read, end, size_bytes)
    if not next_is_whole:
        fits = _fits_another_length(read, position, size_bytes, header)
        if fits:
            return fits
    if _lost_a_sector(read, position, min(end, size_bytes), size_bytes):
        return ""
    if next_is_whole:
        return "with whole entries behind it"
    return _search_behind(read, position, size_bytes)


def _claimed(header: bytes) -> int:
    """The length that an entry's first bytes say; 0 when no entry can have it."""
    if len(header) < LENGTH_BYTES:
        return 0
    (length,) = LENGTH.unpack_from(header)
    return max(0, int(length))


def is_whole(read: Reader, position: int, size_bytes: int, payload_bytes_min: int = 1) -> bool:
    """Whether a whole entry starts at `position`. The CRC of an empty payload is 0, which
    zeros satisfy: that alone proves nothing."""
    header = read(HEADER_BYTES_MAX, position) if position < size_bytes else b""
    length = _claimed(header)
    end = position + LENGTH_BYTES + length
    if length < _overhead(header, 0) + payload_bytes_min or end > size_bytes:
        return False
    return not _fault_of(read, position, end)


def _lost_a_sector(read: Reader, position: int, end: int, size_bytes: int) -> bool:
    """Whether a sector of the damaged entry is all zeros: it never reached the disk (etcd's test).

    The entry reaches to `end`. Its first sector counts from the entry's start on: what is before
    was flushed earlier. A length begins with zeros too, so less than a length field proves nothing.
    The sector that the end of the file cuts counts up to there.
    """
    first = -position % SECTOR_BYTES
    is_long = first >= LENGTH_BYTES and size_bytes - position >= first
    if is_long and not read(first, position).strip(b"\0"):
        return True
    for start in range(position + first, end, READ_BYTES):
        data = read(min(READ_BYTES, size_bytes - start), start)
        for at in range(0, min(len(data), end - start), SECTOR_BYTES):
            sector = data[at : at + SECTOR_BYTES]
            if sector == ZERO_SECTOR or not sector.strip(b"\0"):
                return True
    return False


def _candidates(read: Reader, start: int, end: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield what looks like the start of an entry from `start` to `end`: (position, bytes, index
    in them); and (position after the piece, bytes, -1) at the end of each piece read."""
    while start < end:
        # Enough more to see a candidate at the edge whole.
        data = read(READ_BYTES + LENGTH_BYTES, start)
        piece = min(READ_BYTES, len(data), end - start)
        for match in _ENTRY_START.finditer(data):
            if match.start() >= piece:
                break
            yield start + match.start(), data, match.start()
        if not piece:
            return
        start += piece
        yield start, data, -1


def _search_behind(read: Reader, position: int, size_bytes: int) -> str:
    """Why what follows the byte at `position` is not the mere rest of a write; "" when it has no
    whole entry with a payload."""
    checked = 0
    for candidate, data, at in _candidates(read, position + 1, size_bytes):
        if at < 0:
            continue
        (length,) = LENGTH.unpack_from(data, at)
        end = at + LENGTH_BYTES + length
        is_none = candidate + LENGTH_BYTES + length > size_bytes or length <= _overhead(data, at)
        checked += CANDIDATE_BYTES if is_none else length
        if checked > SEARCH_CHECKED_BYTES_MAX:
            return "with more behind it than can be searched for whole entries"
        if is_none:
            continue
        if end > len(data):
            is_found = is_whole(read, candidate, size_bytes)
        else:
            is_found = message_set.check_entries(data[at:end]).valid_bytes > 0
        if is_found:
            return "with whole entries behind it"
    return ""


def _overhead(data: bytes, position: int) -> int:
    """What the length of the entry there counts beside its payload; magic 0's if that is cut."""
    is_magic1 = data[position + LENGTH_BYTES : position + LENGTH_BYTES + 1] == b"\1"
    return MAGIC1_OVERHEAD_BYTES if is_magic1 else MAGIC0_OVERHEAD_BYTES


def believable(header: bytes) -> bool:
    """Whether an entry's first bytes are a header that a broker would accept."""
    if len(header) < LENGTH_BYTES + 2:
        return True
    magic, codec = header[LENGTH_BYTES], header[LENGTH_BYTES + 1] & CODEC_MASK
    return _claimed(header) > 0 and (magic == 0 or (magic == 1 and codec <= 2))


def _fits_another_length(read: Reader, position: int, size_bytes: int, header: bytes) -> str:
    """Why the entry at `position` may be whole if taken to end where another whole one starts,
    whatever its length field says; "" where it is not."""
    if len(header) < HEADER_BYTES_MAX:
        return ""
    payload = LENGTH_BYTES + _overhead(header, 0)
    (wanted,) = CRC.unpack_from(header, payload - CRC.size)
    end = min(size_bytes, position + max(FIT_BYTES, LENGTH_BYTES + _claimed(header)))
    start = done = position + payload
    crc = checked = 0
    for candidate, data, at in _candidates(read, start, end):
        if at < 0:  # the end of this piece
            crc = zlib.crc32(memoryview(data)[done - start : candidate - start], crc)
            start = done = candidate
            continue
        crc = zlib.crc32(memoryview(data)[done - start : at], crc)
        done = candidate
        if crc != wanted:
            continue
        # A payload can be made so that its CRC is right at each of its candidates.
        (length,) = LENGTH.unpack_from(data, at)
        checked += length if candidate + LENGTH_BYTES + length <= size_bytes else CANDIDATE_BYTES
        if checked > SEARCH_CHECKED_BYTES_MAX:
            return "with more in it than can be searched for its end"
        is_empty = candidate == position + payload
        if is_whole(read, candidate, size_bytes, int(is_empty)):
            return "whose CRC fits another length"
    return ""


def examine_file(files: FileLayer, fd: int, start: int = 0, flushed_bytes: int = 0) -> Examination:
    """`examine` over an open segment. Raises OSError."""
    return examine(
        lambda count, position: files.read_at(fd, count, position),
        files.size(fd),
        start,
        flushed_bytes,
    )


def cut_torn_ending(
    files: FileLayer, fd: int, path: Path, found: Examination, quarantine: Path
) -> Path:
    """Copy what follows the last whole entry to quarantine, durably, then cut it off, durably.

    The copy is in a directory named as the partition's: one name of both may be too long. The file
    keeps its modification time, which lookups by time and retention use. Run again after a crash
    at any point, it gives the same result. Returns the copy's path; raises OSError.
    """
    modified_ms = files.modified_ms(fd)
    place = quarantine / path.parent.name
    files.make_directory(place, parents=True)
    copy = _free_name(files, place, f"{path.name}.{found.valid_bytes}")
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
    except OSError as error:
        error.filename = error.filename or str(copy)
        # No room, perhaps: half a copy is of no use, and each start would leave another.
        with contextlib.suppress(OSError):
            files.remove(copy)
        raise
    finally:
        files.close(out)
    for directory in (place, quarantine):
        files.sync_directory(directory)
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
