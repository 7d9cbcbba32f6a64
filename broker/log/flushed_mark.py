"""Records how far each log is durably flushed, so that recovery tells damage from a torn ending.

A write that did not finish is above the flushed end; whatever is wrong below it is damage, however
much it looks like a power loss. `.kafka2011_flushed` in the root keeps that end, coarsely: it is
written after flushes, by time and by bytes, and may lag behind, never run ahead. It is replaced
as a whole. A file that is missing or damaged proves nothing; the original ignores it.

It holds times as well (see `file_times`): what the clock showed when it was written, and for each
log when it was last written to, which a killed process could not leave in the segment's file.

Form: `clock <ms>`, one line per log `<directory> <flushed end> <ms>`, then `crc <CRC-32 of all that
stands before, 8 hexadecimal digits>`. A replica's begins with `clock <ms> watermarks`, and a log's
line ends with its watermark: how much was known to be confirmed, so that readers need not wait
after a restart until others answer. It is never a reason to cut a log.
"""

import threading
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.writing import replace_file
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

NAME = ".kafka2011_flushed"
_CLOCK = "clock"
_WATERMARKS = "watermarks"
_CRC = "crc"
_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a log is flushed: up to `end`, all of it written at `time_ms` or earlier. What is
    below `watermark` is confirmed (None: not a replica's log)."""

    end: int
    time_ms: int
    watermark: int | None = None


@dataclass(slots=True)
class Marks:
    """The marks by directory, and the time at which they were written (0: unknown). `is_known`
    False: there was no file, or none that could be read."""

    by_directory: dict[str, Mark] = field(default_factory=dict)
    clock_ms: int = 0
    is_known: bool = True
    has_watermarks: bool = False

    def end_of(self, directory: str) -> int:
        """Up to which offset the log is known to be flushed; 0 when nothing is known."""
        mark = self.by_directory.get(directory)
        return mark.end if mark is not None else 0

    def to_bytes(self) -> bytes:
        lines = [
            f"{directory} {mark.end} {mark.time_ms}{self._watermark(mark)}\n"
            for directory, mark in sorted(self.by_directory.items())
            if "\n" not in directory  # the 0.7 rule allows it; such a log has no mark
        ]
        kind = f" {_WATERMARKS}" * self.has_watermarks
        text = "".join([f"{_CLOCK} {self.clock_ms}{kind}\n", *lines])
        data = text.encode("utf-8", "surrogateescape")
        return data + f"{_CRC} {zlib.crc32(data):08x}\n".encode()

    def _watermark(self, mark: Mark) -> str:
        return f" {mark.watermark or 0}" * self.has_watermarks

    @classmethod
    def from_bytes(cls, data: bytes) -> "Marks | None":
        """Parse what `to_bytes` made; None for anything else."""
        last = data.rfind(b"\n", 0, -1) + 1
        if data[last:] != f"{_CRC} {zlib.crc32(data[:last]):08x}\n".encode():
            return None
        marks = cls()
        try:
            clock, *lines = data[:last].decode("utf-8", "surrogateescape").split("\n")[:-1]
            clock = clock.removeprefix(f"{_CLOCK} ")
            marks.has_watermarks = clock.endswith(f" {_WATERMARKS}")
            marks.clock_ms = int(clock.removesuffix(f" {_WATERMARKS}"))
            for line in lines:
                directory, *numbers = line.rsplit(" ", 3 if marks.has_watermarks else 2)
                marks.by_directory[directory] = Mark(*map(int, numbers))
        except (TypeError, ValueError):
            return None
        return marks


def read(files: FileLayer, root: Path) -> Marks:
    """The marks in `root`; empty ones if there are none, or (with a warning) unreadable ones."""
    path = root / NAME
    if not files.exists(path):
        return Marks(is_known=False)
    reason = "its checksum does not match"
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
    return marks or Marks(is_known=False)


def write(files: FileLayer, root: Path, marks: Marks) -> None:
    """Replace the marks in `root`, durably. Raises OSError; then the old ones are still there."""
    replace_file(files, root / NAME, marks.to_bytes(), lambda: failpoint("before_flushed_mark"))


class MarkOrder:
    """Keeps marks that were collected earlier from replacing later ones, whichever thread comes
    first: the end of a log that is about to be cut must not come back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.collected = 0
        self.written = 0


class MarkJob:
    """Writes marks, unless later ones have been; `run` may be called in any thread."""

    def __init__(self, files: FileLayer, root: Path, marks: Marks, order: MarkOrder) -> None:
        self.error: OSError | None = None
        self._files = files
        self._root = root
        self._marks = marks
        self._order = order
        order.collected += 1
        self._number = order.collected

    def run(self) -> None:
        with self._order.lock:
            if self._number < self._order.written:
                return
            try:
                write(self._files, self._root, self._marks)
                self._order.written = self._number
            except OSError as error:
                self.error = error
