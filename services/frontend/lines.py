"""Bytes of a file to lines, in bounded memory whatever a line's length.

A line ends at \\n; one \\r before it belongs to the end. The last line counts even without an end.
Of a line above `line_bytes_max` only the beginning, length and SHA-256 are kept.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from kafka2011.producer.tail.messages import ANCHOR_BYTES

HEAD_BYTES = 64 * 1024  # kept of an unreadable line
# Longer lines are treated as corrupt: no server accepts a request line near this size (Apache's
# limit is 8 KiB), and referrer and agent are bounded too.
LINE_BYTES_MAX = 4 * 1024 * 1024
CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; `number` from 1; `end` is the file offset behind its end."""

    data: bytes
    number: int
    end: int


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that was too long to keep; `sha256` and `length` are of the whole of it."""

    head: bytes
    length: int
    sha256: bytes
    number: int
    end: int


class Bytes(Protocol):
    """What lines are read from."""

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...


def bytes_before(file: Bytes, offset: int) -> bytes:
    """The bytes in front of `offset`, at most ANCHOR_BYTES; fewer if the file is shorter."""
    start = max(0, offset - ANCHOR_BYTES)
    file.seek(start)
    found = b""
    while piece := file.read(offset - start - len(found)):
        found += piece
    return found


class LineReader:
    """Reads lines from where an earlier reader was: behind line `number`, at byte `offset`."""

    def __init__(
        self,
        file: Bytes,
        offset: int = 0,
        number: int = 0,
        *,
        line_bytes_max: int = LINE_BYTES_MAX,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._file = file
        self._offset = offset
        self._number = number
        self._line_bytes_max = line_bytes_max
        self._chunk_bytes = chunk_bytes
        self._rest = b""  # of a line whose end has not been read
        self._long: _Passing | None = None
        self.at_end = False
        self._recent = bytes_before(file, offset)  # the last chunk, and bytes in front of it
        self._read_offset = offset  # behind that chunk
        file.seek(offset)

    def next_lines(self) -> list[Line | LongLine]:
        """Read one chunk and return the lines that it completes.

        There are none at the present end of the file (`at_end`), and when the chunk lies inside one
        line.
        """
        chunk = self._file.read(self._chunk_bytes)
        self.at_end = not chunk
        if not chunk:
            return []
        self._recent = self._recent[-ANCHOR_BYTES:] + chunk
        self._read_offset += len(chunk)
        found: list[Line | LongLine] = []
        if self._long is not None:
            head, newline, chunk = chunk.partition(b"\n")
            self._long.add(head)
            if not newline:
                return []
            found.append(self._finish_long(self._long, 1))
            self._long = None
        pieces = chunk.split(b"\n")
        pieces[0] = self._rest + pieces[0]
        self._rest = pieces.pop()
        offset, number = self._offset, self._number
        limit = self._line_bytes_max
        for piece in pieces:
            offset += len(piece) + 1
            number += 1
            if piece[-1:] == b"\r":
                piece = piece[:-1]  # noqa: PLW2901
            if len(piece) > limit:
                digest = hashlib.sha256(piece).digest()
                found.append(LongLine(piece[:HEAD_BYTES], len(piece), digest, number, offset))
            else:
                found.append(Line(piece, number, offset))
        self._offset, self._number = offset, number
        if len(self._rest) > limit + 1:
            self._long = _Passing()
            self._long.add(self._rest)
            self._rest = b""
        return found

    def before(self, end: int) -> bytes:
        """The bytes in front of the end of one of the newest lines, at most ANCHOR_BYTES."""
        at = len(self._recent) - (self._read_offset - end)
        return self._recent[max(0, at - ANCHOR_BYTES) : at]

    def last_line(self) -> Line | LongLine | None:
        """The file's last line if it has no \\n; call it once, `at_end`."""
        if self._long is not None:
            passing, self._long = self._long, None
            return self._finish_long(passing, 0)
        if not self._rest:
            return None
        piece, self._rest = self._rest, b""
        self._offset += len(piece)
        self._number += 1
        if piece[-1:] == b"\r":
            piece = piece[:-1]
        if len(piece) > self._line_bytes_max:
            digest = hashlib.sha256(piece).digest()
            return LongLine(piece[:HEAD_BYTES], len(piece), digest, self._number, self._offset)
        return Line(piece, self._number, self._offset)

    def _finish_long(self, passing: "_Passing", newline_bytes: int) -> LongLine:
        self._offset += passing.read_bytes + newline_bytes
        self._number += 1
        head, length, digest = passing.finish()
        return LongLine(head, length, digest, self._number, self._offset)


class _Passing:
    """Head, length and hash of a line that is read piece by piece; a \\r at its end is left out."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._head = b""
        self._length = 0
        self._held = b""  # a \r that may turn out to be the end
        self.read_bytes = 0

    def add(self, piece: bytes) -> None:
        if not piece:
            return
        self.read_bytes += len(piece)
        piece = self._held + piece
        self._held = b""
        if piece[-1:] == b"\r":
            self._held = b"\r"
            piece = piece[:-1]
        self._hash.update(piece)
        self._length += len(piece)
        if len(self._head) < HEAD_BYTES:
            self._head += piece[: HEAD_BYTES - len(self._head)]

    def finish(self) -> tuple[bytes, int, bytes]:
        return self._head, self._length, self._hash.digest()
