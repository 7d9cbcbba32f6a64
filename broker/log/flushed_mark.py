"""Up to where each log was flushed, durably, so that recovery tells damage from a torn ending.

A write that did not finish is above the flushed end; whatever is wrong below it is damage, however
much it looks like a power loss. `.kafka2011_flushed` in the root keeps that end, coarsely: it is
written after flushes, by time and by bytes, and may lag behind, never run ahead. It is replaced
as a whole. A file that is missing or damaged proves nothing; the original passes it over.

It holds times as well (see `file_times`): what the clock showed when it was written, and for each
log when it was last written to, which a killed process could not leave in the segment's file.

Form: `clock <ms>`, one line a log `<directory> <flushed end> <ms>`, then `crc <CRC-32 of all that
stands before, 8 hexadecimal digits>`.
"""

import contextlib
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.writing import write_file
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

NAME = ".kafka2011_flushed"
_NEW = f"{NAME}.new"
_CLOCK = "clock"
_CRC = "crc"
_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """The log is flushed up to `end`; what is below it was written at `time_ms` or earlier."""

    end: int
    time_ms: int


@dataclass(slots=True)
class Marks:
    """The marks by directory, and the time at which they were written (0: unknown)."""

    by_directory: dict[str, Mark] = field(default_factory=dict)
    clock_ms: int = 0

    def end_of(self, directory: str) -> int:
        """Up to which offset the log is known to be flushed; 0 when nothing is known."""
        mark = self.by_directory.get(directory)
        return mark.end if mark is not None else 0

    def to_bytes(self) -> bytes:
        lines = [
            f"{directory} {mark.end} {mark.time_ms}\n"
            for directory, mark in sorted(self.by_directory.items())
            if "\n" not in directory  # the 0.7 rule allows it; such a log has no mark
        ]
        text = "".join([f"{_CLOCK} {self.clock_ms}\n", *lines])
        data = text.encode("utf-8", "surrogateescape")
        return data + f"{_CRC} {zlib.crc32(data):08x}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Marks | None":
        """None when it is not as `to_bytes` made it."""
        last = data.rfind(b"\n", 0, -1) + 1
        if data[last:] != f"{_CRC} {zlib.crc32(data[:last]):08x}\n".encode():
            return None
        marks = cls()
        try:
            clock, *lines = data[:last].decode("utf-8", "surrogateescape").split("\n")[:-1]
            marks.clock_ms = int(clock.removeprefix(f"{_CLOCK} "))
            for line in lines:
                directory, end, time_ms = line.rsplit(" ", 2)
                marks.by_directory[directory] = Mark(int(end), int(time_ms))
        except ValueError:
            return None
        return marks


def read(files: FileLayer, root: Path) -> Marks:
    """The marks in `root`; none when there are none, with a warning when they cannot be read."""
    path = root / NAME
    if not files.exists(path):
        return Marks()
    reason = "its checksum does not fit"
    try:
        fd = files.open_for_reading(path)
        try:
            marks = Marks.from_bytes(files.read_at(fd, min(files.size(fd), _BYTES_MAX), 0))
        finally:
            files.close(fd)
    except OSError as error:
        marks, reason = None, error.strerror or repr(error)
    if marks is None:
        _log.warning("flushed_mark_unreadable", path=str(path), reason=reason)
    return marks or Marks()


def write(files: FileLayer, root: Path, marks: Marks) -> None:
    """Replace the marks in `root`, durably. Raises OSError; then the old ones are still there."""
    new = root / _NEW
    try:
        write_file(files, new, marks.to_bytes())
        failpoint("before_flushed_mark")
        files.replace(new, root / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(new)
        raise
    files.sync_directory(root)


class MarkJob:
    """Writes marks; `run` may be called in any thread. At most one at a time."""

    def __init__(self, files: FileLayer, root: Path, marks: Marks) -> None:
        self.error: OSError | None = None
        self._files = files
        self._root = root
        self._marks = marks

    def run(self) -> None:
        try:
            write(self._files, self._root, self._marks)
        except OSError as error:
            self.error = error
