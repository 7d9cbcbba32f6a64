import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.frontend.lines import HEAD_BYTES, Line, LineReader, LongLine


def read_all(reader: LineReader) -> list[Line | LongLine]:
    found = []
    while not reader.at_end:
        found += reader.next_lines()
    last = reader.last_line()
    return found if last is None else [*found, last]


def expected(data: bytes, limit: int) -> list[Line | LongLine]:
    """The same by reading everything at once."""
    found: list[Line | LongLine] = []
    end = 0
    raw = data.split(b"\n")
    for number, piece in enumerate(raw, start=1):
        is_last = number == len(raw)
        if is_last and not piece:
            break
        end += len(piece) + (not is_last)
        text = piece.removesuffix(b"\r")
        if len(text) > limit:
            digest = hashlib.sha256(text).digest()
            found.append(LongLine(text[:HEAD_BYTES], len(text), digest, number, end))
        else:
            found.append(Line(text, number, end))
    return found


DATA = st.lists(
    st.one_of(st.sampled_from([b"\n", b"\r", b"\r\n", b"", b"ab"]), st.binary(max_size=30))
).map(b"".join)


@given(data=DATA, chunk=st.integers(1, 40), limit=st.integers(0, 20))
def test_any_chunking_gives_the_same_lines(data: bytes, chunk: int, limit: int) -> None:
    reader = LineReader(io.BytesIO(data), line_bytes_max=limit, chunk_bytes=chunk)
    assert read_all(reader) == expected(data, limit)


@given(data=DATA, cut=st.integers(0, 20))
def test_reading_goes_on_behind_any_line(data: bytes, cut: int) -> None:
    lines = expected(data, 1000)
    if cut < len(lines):
        before = lines[cut]
        reader = LineReader(io.BytesIO(data), before.end, before.number, chunk_bytes=7)
        assert read_all(reader) == lines[cut + 1 :]


def test_the_last_line_counts_without_its_end_and_an_end_makes_no_line() -> None:
    assert [line.number for line in read_all(LineReader(io.BytesIO(b"a\nb")))] == [1, 2]
    assert [line.number for line in read_all(LineReader(io.BytesIO(b"a\nb\n")))] == [1, 2]
    assert read_all(LineReader(io.BytesIO(b""))) == []


def test_a_growing_file_is_followed_and_an_unfinished_line_waits() -> None:
    file = io.BytesIO(b"one\ntw")
    reader = LineReader(file)
    assert [line.data for line in reader.next_lines() if isinstance(line, Line)] == [b"one"]
    assert reader.next_lines() == []
    assert reader.at_end
    file.seek(0, io.SEEK_END)
    file.write(b"o\nthree\n")
    file.seek(6)
    assert reader.next_lines() == [Line(b"two", 2, 8), Line(b"three", 3, 14)]


class Endless(io.RawIOBase):
    """A line of `size` bytes that exists only as it is read, and one more behind it."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._tail = b"\r\nnext\n"

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def read(self, size: int = -1) -> bytes:
        if self._left:
            given_bytes = min(size, self._left)
            self._left -= given_bytes
            return b"x" * given_bytes
        tail, self._tail = self._tail, b""
        return tail


@pytest.mark.parametrize("size", [4 * 1024 * 1024 + 1, 64 * 1024 * 1024])
def test_a_line_of_any_length_passes_in_bounded_memory(size: int) -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        reader = LineReader(Endless(size))  # type: ignore[arg-type]
        first, second = read_all(reader)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    whole = hashlib.sha256(b"x" * size).digest()
    assert first == LongLine(b"x" * HEAD_BYTES, size, whole, 1, size + 2)
    assert second == Line(b"next", 2, size + 7)
    assert peak < 24 * 1024 * 1024


def test_two_megabytes_are_an_ordinary_line() -> None:
    data = b"y" * 2_000_000
    assert read_all(LineReader(io.BytesIO(data + b"\n"))) == [Line(data, 1, 2_000_001)]
