"""An access log as a file: opened by its content, and examined before anything is sent.

gzip, bzip2, xz and zstd are recognised by their first bytes, not by the name. The reader of a
compressed file counts positions in the unpacked text; to go on from one it unpacks the file from
its start. `examine` reads the first lines: an input of which under half can be read is refused,
with what its first line looks like and what was expected.
"""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from kafka2011.events.topics import ACCESS_LOG, unreadable_topic
from kafka2011.services.frontend.access_line import AccessLine
from kafka2011.services.frontend.lines import LINE_BYTES_MAX, Line, LineReader, LongLine
from kafka2011.services.frontend.log_format import FORMAT_DEFAULT, parser_of

PLAIN = "plain"  # not packed
SAMPLE_LINES = 1000
SAMPLE_BYTES = 8 * 1024 * 1024
SHOWN_BYTES = 120  # of line 1
SHOWN_BINARY_BYTES = 24
_SKIP_BYTES = 256 * 1024
_EXPECTED = (
    'the common or combined format (host - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5) '
    "or JSON lines; another format is given in Apache's or nginx's own notation "
    "(LOG_FORMAT= of make, --format, setting input.format)"
)


class InputRefused(ValueError):
    """The input is damaged, or cannot be sent. The text is one line."""


class Sample(NamedTuple):
    """A summary of an input's first lines: `kind` is plain, gzip, bzip2, xz or zstd; times are
    those of the readable lines, ms since the epoch."""

    kind: str
    lines: int
    readable: int
    earliest_ms: int
    latest_ms: int


def _open_zstd(file: BinaryIO) -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdFile(file)


_KINDS: dict[str, tuple[bytes, Callable[[BinaryIO], Any]]] = {
    "gzip": (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    "bzip2": (b"BZh", bz2.BZ2File),
    "xz": (b"\xfd7zXZ\x00", lzma.LZMAFile),
    "zstd": (b"\x28\xb5\x2f\xfd", _open_zstd),
}
_ARCHIVES = {b"PK\x03\x04": "a zip archive", b"7z\xbc\xaf\x27\x1c": "a 7z archive"}


def kind_of(path: Path) -> str:
    """How the file is packed. Raises OSError; InputRefused for an archive of files."""
    with path.open("rb") as file:
        head = file.read(8)
    for magic, name in _ARCHIVES.items():
        if head.startswith(magic):
            raise InputRefused(f"{path} is {name}: unpack it, and give the log inside")
    return next((kind for kind, (magic, _) in _KINDS.items() if head.startswith(magic)), PLAIN)


class InputFile(io.RawIOBase):
    """The unpacked bytes of a file. Raises InputRefused when the packed data is damaged or ends too
    early, OSError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.kind = kind_of(path)
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._open = _KINDS[self.kind][1] if self.kind != PLAIN else None
        self._reader: Any = self._open(self._file) if self._open else self._file
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, fewer only at the end of the data or of a packed piece."""
        try:
            found: bytes = self._reader.read(size)
        except OSError as error:
            if error.errno is not None:
                raise
            raise self._damaged(error) from None
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._damaged(error) from None
        except Exception as error:
            if type(error).__name__ != "ZstdError":  # of either module
                raise
            raise self._damaged(error) from None
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte of the unpacked text, or to its end if it is shorter."""
        assert whence == io.SEEK_SET
        if self._open is None:
            return self._file.seek(offset)
        if offset < self._at:
            self._file.seek(0)
            self._reader = self._open(self._file)
            self._at = 0
        while self._at < offset and self.read(min(_SKIP_BYTES, offset - self._at)):
            pass
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()

    def _damaged(self, error: Exception) -> InputRefused:
        # How much of the damaged piece was unpacked is not known.
        where = f" somewhere behind byte {self._at:,} of the unpacked text" if self._at else ""
        return InputRefused(
            f"{self._path}: its {self.kind} data is damaged or cut off{where} ({error})"
        )


def check_whole(path: Path) -> None:
    """Unpack a packed file to its end, in bounded memory. Raises as InputFile does."""
    with InputFile(path) as file:
        while file.kind != PLAIN and file.read(_SKIP_BYTES):
            pass


def examine(path: Path, log_format: str = FORMAT_DEFAULT) -> Sample:
    """Look at the first lines. Raises InputRefused when the file is empty or under half of these
    lines can be read, OSError when the file cannot."""
    with InputFile(path) as file:
        lines = _first_lines(file)
        kind = file.kind
    if not lines:
        raise InputRefused(f"{path} is empty: there is nothing to send")
    parser = parser_of(log_format)
    read = [parser.parse(line.data) if isinstance(line, Line) else None for line in lines]
    readable = [line for line in read if line is not None]
    if len(readable) * 2 < len(lines):
        raise InputRefused(_refusal(path, lines, len(readable), log_format))
    return Sample(kind, len(lines), len(readable), *_span(readable))


def mostly_unreadable(sent: Mapping[str, int]) -> str:
    """A line that says that under half of what was sent was readable; empty if that is not so.
    `sent`: topic -> messages."""
    readable, unreadable = sent.get(ACCESS_LOG, 0), sent.get(unreadable_topic(ACCESS_LOG), 0)
    if readable >= unreadable:
        return ""
    return (
        f"only {readable:,} of {readable + unreadable:,} lines of the input could be read; the "
        f"others are in topic {unreadable_topic(ACCESS_LOG)}; expected: {_EXPECTED}"
    )


def _first_lines(file: InputFile) -> list[Line | LongLine]:
    reader = LineReader(file, line_bytes_max=LINE_BYTES_MAX)
    found: list[Line | LongLine] = []
    read_bytes = 0
    while len(found) < SAMPLE_LINES and read_bytes < SAMPLE_BYTES and not reader.at_end:
        found += reader.next_lines()
        read_bytes += _SKIP_BYTES
    # The part of a line whose end was not read counts as a line only if there is no other.
    if reader.at_end or not found:
        last = reader.last_line()
        found += [last] if last is not None else []
    return found[:SAMPLE_LINES]


def _refusal(path: Path, lines: list[Line | LongLine], readable: int, log_format: str) -> str:
    of = f"the first {len(lines):,} lines" if len(lines) > 1 else "its only line"
    first = lines[0]
    size = f", above {LINE_BYTES_MAX:,} bytes" if isinstance(first, LongLine) else ""
    expected = _EXPECTED if log_format == FORMAT_DEFAULT else f"the given format, {log_format}"
    return (
        f"{path}: {readable or 'nothing'} of {of} can be read; line 1{size} is {_shown(first)}; "
        f"expected is {expected}"
    )


def _shown(line: Line | LongLine) -> str:
    """The beginning of a line, in quotes; if it is not text, as Python writes bytes."""
    data = line.data if isinstance(line, Line) else line.head
    head = data[:SHOWN_BYTES]
    text = head.decode("utf-8", "replace").removesuffix("\ufffd")
    if not text.isprintable():
        head = data[:SHOWN_BINARY_BYTES]
    shown = f"'{text}'" if text.isprintable() else repr(head)[1:]
    return shown + ("..." if len(data) > len(head) else "")


def _span(readable: list[AccessLine]) -> tuple[int, int]:
    times = [line.event_time_ms for line in readable]
    return min(times), max(times)


def described(sample: Sample, now_ms: int) -> str:
    """A sample as a line of text: how it is packed, how much can be read, and its dates."""
    packed = "" if sample.kind == PLAIN else f"{sample.kind}, "
    days = dict.fromkeys((_day(sample.earliest_ms), _day(sample.latest_ms)))
    text = (
        f"{packed}{sample.readable:,} of the first {sample.lines:,} lines can be read, "
        f"dated {' to '.join(days)} (UTC)"
    )
    if sample.latest_ms > now_ms + 86_400_000:
        text += ", which is in the future: was a clock wrong? They are loaded as dated"
    return text


def _day(time_ms: int) -> str:
    return (date(1970, 1, 1) + timedelta(milliseconds=time_ms)).isoformat()
