"""Reads the payloads of segment files from disk, for the recount. Never writes, opens no socket.

Uses the layout of 0.7 (`<topic>-<partition>/<20 digits>.kafka`) and none of the broker's code, so
that it is independent of it. Everything that cannot be read is reported with partition and offset.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, MessageLargerThanFetchSize
from kafka2011.protocol.message import LENGTH_BYTES
from kafka2011.services.audit.payloads import Note, damage_notes, pieces_of

CHUNK_BYTES = 4 * 1024 * 1024
# To tell damage from a torn end: how far whole entries are looked for, and how many are checked.
SCANNED_BYTES_MAX = 64 * 1024
CHECKED_MAX = 100
_SEGMENT = re.compile(r"([0-9]{20})\.kafka")
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """The `log.dir` of one broker. `name` begins its notes. `copies`: of a replica set, all
    directories that were found, `path` among them."""

    tier: str
    name: str
    path: Path
    copies: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """One partition's segments, oldest first: (start offset, path). `end`: the offset up to which
    they are read; None: all."""

    topic: str
    partition: int
    segments: tuple[tuple[int, Path], ...]
    end: int | None = None

    @property
    def end_of_files(self) -> int:
        """The offset at which the newest segment's file ends. Raises OSError."""
        start, last = self.segments[-1]
        return start + last.stat().st_size


def partition_directories(root: Path) -> list[PartitionFiles]:
    """The partitions that have segments directly below `root`, sorted by topic and number."""
    found = []
    for directory in sorted(root.iterdir()) if root.is_dir() else []:
        named = _PARTITION.fullmatch(directory.name)
        if named is None or not directory.is_dir():
            continue
        segments = sorted(
            (int(match[1]), entry)
            for entry in directory.iterdir()
            if (match := _SEGMENT.fullmatch(entry.name))
        )
        if segments:
            found.append(PartitionFiles(named["topic"], int(named["partition"]), tuple(segments)))
    return sorted(found, key=lambda files: (files.topic, files.partition))


def log_roots(top: Path, depth: int = 3) -> list[Path]:
    """Directories at most `depth` below `top` that hold partition directories; no quarantines."""
    if not top.is_dir() or top.name.endswith("quarantine"):
        return []
    if partition_directories(top):
        return [top]
    if not depth:
        return []
    below = sorted(entry for entry in top.iterdir() if entry.is_dir() and not entry.is_symlink())
    return [root for entry in below for root in log_roots(entry, depth - 1)]


def read_partition(
    files: PartitionFiles, place: str, note: Note, cut_at: int = 0
) -> Iterator[tuple[int, list[bytes]]]:
    """The payloads of a partition, in order, in lists of some MiB, compressed sets unpacked.

    Each list comes with an offset at or before its first entry; no list goes across `cut_at`. If
    that is within an entry, this comes alone.
    `note` receives a line for each fault: retired segments, holes between segments, damaged
    entries, a torn end. `place` begins each of them.
    """
    first_offset = files.segments[0][0]
    where = f"{place} {files.topic}-{files.partition}"
    if first_offset:
        note(f"{where}: the bytes before offset {first_offset} are gone (retention)")
    for number, (start, path) in enumerate(files.segments):
        is_last = number == len(files.segments) - 1
        size = path.stat().st_size
        if files.end is not None and start >= files.end:
            return
        if not is_last and (end := start + size) != (goes_on := files.segments[number + 1][0]):
            note(
                f"{where}: from offset {end} to {goes_on} is in no segment file"
                if end < goes_on
                else f"{where}: {path.name} ends at {end}, the next segment begins at {goes_on}"
            )
        yield from _read_segment(path, start, is_last, where, note, cut_at=cut_at, end=files.end)


def _read_segment(
    path: Path,
    start: int,
    is_last: bool,
    where: str,
    note: Note,
    *,
    cut_at: int,
    end: int | None,
) -> Iterator[tuple[int, list[bytes]]]:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if end is not None:
            size = min(size, end - start)
        position = 0
        needed_bytes = 0  # of the next entry, if that is known to be larger than a chunk
        while position < size:
            chunk_bytes = max(CHUNK_BYTES, needed_bytes)
            to_cut = cut_at - start - position
            if 0 < to_cut < chunk_bytes:
                chunk_bytes = max(to_cut, needed_bytes)  # an entry across it comes alone
            buffer = os.pread(file.fileno(), min(chunk_bytes, size - position), position)
            try:
                valid_bytes = message_set.split(buffer)
            except MessageLargerThanFetchSize as error:
                needed_bytes = max(error.size_needed, LENGTH_BYTES)  # 0: not even that was there
                if len(buffer) == chunk_bytes and needed_bytes <= size - position:
                    continue
                if not is_last:
                    note(f"{where}: {size - position} bytes at {start + position} are torn off")
                elif _holds_entries(buffer):
                    note(
                        f"{where}: unreadable from offset {start + position} on: the length of "
                        f"the entry there is beyond the end of the log, and entries follow it "
                        f"({size - position} bytes are not read)"
                    )
                return  # the torn end of a log: what recovery would cut off
            except InvalidMessage as error:
                note(f"{where}: unreadable from offset {start + position} on: {error}")
                return
            needed_bytes = 0
            readable = memoryview(buffer)[:valid_bytes]
            for piece in pieces_of(readable, start + position, damage_notes(where, note)):
                yield start + position, piece.payloads
            position += valid_bytes


def _holds_entries(buffer: bytes) -> bool:
    """Whether a whole entry begins within the bytes, behind the first: these are no torn end."""
    checked = 0
    for at in range(1, min(len(buffer), SCANNED_BYTES_MAX)):
        behind = at + LENGTH_BYTES + int.from_bytes(buffer[at : at + LENGTH_BYTES], "big")
        if not at + LENGTH_BYTES < behind <= len(buffer):
            continue
        try:
            if message_set.payloads(buffer[at:behind]):
                return True
        except InvalidMessage:
            checked += 1
            if checked == CHECKED_MAX:
                return False
    return False
