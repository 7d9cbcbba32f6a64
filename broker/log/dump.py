"""Reports what is in a segment file and what is wrong with it, for `kafka2011 dump-log`.

Only `truncate_corrupt` writes. Reading streams, so a segment of any size is shown in little memory;
the verdict is recovery's, with the mark of the flushed end if the file lies in a data directory.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka2011.broker.log import flushed_mark, recovery, replica_journal
from kafka2011.broker.log.directory_lock import DirectoryLock
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.flushed_mark import Mark
from kafka2011.broker.log.segment import SUFFIX, start_of_name
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage
from kafka2011.protocol.message import LENGTH, LENGTH_BYTES, Entry
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

# The names of 0.7's codec objects, as its own dump tool prints them.
CODEC_NAMES = {
    0: "NoCompressionCodec",
    1: "GZIPCompressionCodec",
    2: "SnappyCompressionCodec",
}
NO_LOG = "not a log"  # a verdict beside recovery's
READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Summary:
    """What one file holds; offsets are of the log, sizes of the file."""

    path: str
    start_offset: int
    size_bytes: int
    verdict: str
    reason: str
    valid_bytes: int
    entry_count: int

    @property
    def tail_offset(self) -> int:
        """The offset after the last whole entry: where a broker would append."""
        return self.start_offset + self.valid_bytes


def segment_paths(path: Path) -> list[Path]:
    """The segments that a path stands for: a file itself, or those of a partition's directory."""
    if path.is_dir():
        return sorted(child for child in path.iterdir() if child.name.endswith(SUFFIX))
    return [path]


def start_offset(path: Path) -> int:
    """The offset in a segment's name; 0 when it has none (a copy, a quarantined ending)."""
    return start_of_name(path.name) or 0


def flushed_bytes(path: Path, files: FileLayer) -> int:
    """How much of a segment is known to have been flushed; 0 for a copy elsewhere."""
    path = path.resolve()
    end = flushed_mark.read(files, path.parent.parent).end_of(path.parent.name)
    count = max(0, end - start_offset(path))
    is_newest = segment_paths(path.parent)[-1:] == [path]
    return count if is_newest else min(count, path.stat().st_size)


def summary(path: Path, files: FileLayer | None = None) -> Summary:
    """Examine one file. Raises OSError."""
    files = files or FileLayer()
    flushed = flushed_bytes(path, files)
    fd = files.open_for_reading(path)
    try:
        found = recovery.examine_file(files, fd, flushed_bytes=flushed)
    finally:
        files.close(fd)
    verdict, reason = found.verdict.value, found.reason
    if _is_other_file(path, found):
        verdict, reason = NO_LOG, "its name and first bytes are not those of a segment"
    return Summary(
        str(path),
        start_offset(path),
        found.size_bytes,
        verdict,
        reason,
        found.valid_bytes,
        found.entry_count,
    )


def _is_other_file(path: Path, found: recovery.Examination) -> bool:
    """Whether a file never was a segment: it has another name, and no entry can begin as it does.
    With a segment's name it is a damaged one, whatever it begins with."""
    if start_of_name(path.name) is not None or found.entry_count or not found.size_bytes:
        return False
    with path.open("rb") as file:
        return not recovery.believable(file.read(recovery.HEADER_BYTES_MAX))


def entries(path: Path) -> Iterator[Entry]:
    """The top-level entries in order, good and bad, as far as they can be told apart.

    Ends quietly where nothing more can be found; `summary` says why. Raises OSError.
    """
    base = start_offset(path)
    position = 0
    wanted = READ_BYTES
    with path.open("rb") as file:

        def read(count: int, at: int) -> bytes:
            return os.pread(file.fileno(), count, at)

        while True:
            data = read(wanted, position)
            advanced = 0
            try:
                for entry in message_set.entries(data, base + position):
                    advanced = entry.next_offset - base - position
                    yield entry
            except InvalidMessage:
                return
            if advanced:
                position += advanced
                wanted = READ_BYTES
                continue
            if len(data) < max(wanted, LENGTH_BYTES):
                return  # cut by the end of the file
            wanted = LENGTH_BYTES + LENGTH.unpack_from(data)[0]
            size_bytes = os.fstat(file.fileno()).st_size
            if not _is_length_right(read, position, position + wanted, size_bytes):
                return


def _is_length_right(read: recovery.Reader, position: int, end: int, size_bytes: int) -> bool:
    """Whether a large entry ends where its length says, before all of it is read into memory: it
    is whole, or damaged with another whole one or the end of the file behind it."""
    if end > size_bytes:
        return False
    is_whole = recovery.is_whole(read, position, size_bytes, 0)
    return is_whole or end == size_bytes or recovery.is_whole(read, end, size_bytes)


def as_text(entry: Entry) -> str:
    """The line of an entry as the original's dump tool prints it."""
    return (
        f"offset: {entry.offset} isvalid: {str(entry.is_valid).lower()} "
        f"payloadsize: {len(entry.payload)} magic: {entry.magic} "
        f"compresscodec: {CODEC_NAMES.get(entry.codec, f'Unknown({entry.codec})')}"
    )


def as_record(entry: Entry, with_payload: bool) -> dict[str, Any]:
    """An entry for machines; a payload is hexadecimal."""
    record: dict[str, Any] = {
        "offset": entry.offset,
        "next_offset": entry.next_offset,
        "is_valid": entry.is_valid,
        "magic": entry.magic,
        "attributes": entry.attributes,
        "codec": entry.codec,
        "crc": entry.crc,
        "payload_bytes": len(entry.payload),
    }
    if with_payload:
        record["payload"] = entry.payload.hex()
    return record


def truncate_corrupt(path: Path, quarantine: Path | None = None) -> Path | None:
    """Cut a damaged segment after the last whole entry before the damage, once the rest is copied.

    This is the operator's decision, which recovery must not take: every entry after the damage is
    given up, and a log shorter than what was flushed is accepted as it is. A replica is not whole
    from then on: it copies everything from a leader before it may lead. Only for the newest
    segment of a partition, and only while no broker has the directory. Returns the copy's path,
    None when there is nothing to cut. Raises DataDirectoryError with one line when it must not be
    done, and OSError.
    """
    path = path.resolve()
    if path.is_dir() or not path.name.endswith(SUFFIX):
        raise DataDirectoryError(f"{path} is not a segment: name the file, <offset>{SUFFIX}")
    newest = segment_paths(path.parent)[-1]
    if newest != path:
        raise DataDirectoryError(
            f"{path} is not the newest segment: cutting it would leave a gap before {newest.name}"
        )
    root = path.parent.parent
    lock = DirectoryLock(root)
    lock.take()
    try:
        files = FileLayer()
        fd = files.open(path)
        try:
            found = recovery.examine_file(files, fd)
            end = start_offset(path) + found.valid_bytes
            _note_loss(files, root, path, found, end)
            copy = None
            if found.verdict is not recovery.Verdict.CLEAN:
                where = quarantine or root.parent / f"{root.name}-quarantine"
                copy = recovery.cut_torn_ending(files, fd, path, found, where)
        finally:
            files.close(fd)
        _accept_end(files, root, path.parent.name, end)
        return copy
    finally:
        lock.release()


def _note_loss(
    files: FileLayer, root: Path, path: Path, found: recovery.Examination, end: int
) -> None:
    """Mark a replica that gives up what may be confirmed as not whole: it must not lead, for the
    others would be cut to what it has left. A write that did not finish was never confirmed."""
    flushed_end = flushed_mark.read(files, root).end_of(path.parent.name)
    is_lost = found.verdict is recovery.Verdict.CORRUPT or end < flushed_end
    if not is_lost or not replica_journal.note_loss(files, root):
        return
    _log.error(
        "replica_not_whole",
        log_dir=str(root),
        reason=f"{path.parent.name} is cut at {end}; the replica copies everything from a leader",
    )


def _accept_end(files: FileLayer, root: Path, directory: str, end: int) -> None:
    """Lower the mark of a log's flushed end to where it ends now. Raises OSError."""
    marks = flushed_mark.read(files, root)
    mark = marks.by_directory.get(directory)
    if mark is not None and mark.end > end:
        marks.by_directory[directory] = Mark(end, mark.time_ms)
        flushed_mark.write(files, root, marks)
