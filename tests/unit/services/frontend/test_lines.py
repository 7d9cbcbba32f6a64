import hashlib
import io
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.tail.messages import ANCHOR_BYTES
from kafka2011.services.frontend.lines import HEAD_BYTES, Line, LineReader, LongLine


def read_all(reader: LineReader) -> list[Line | LongLine]:
    found = []
    while not reader.at_end:
        found += reader.next_lines()
    last = reader.last_line()
    return found if last is None else [*found, last]


def long_line(text: bytes, number: int, end: int) -> LongLine:
    return LongLine(text[:HEAD_BYTES], len(text), hashlib.sha256(text).digest(), number, end)


def expected(data: bytes, limit: int) -> list[Line | LongLine]:
    """The same by reading everything at once."""
    found: list[Line | LongLine] = []
    for number, match in enumerate(re.finditer(rb"[^\n]*\n|[^\n]+", data), start=1):
        text = match[0].removesuffix(b"\n").removesuffix(b"\r")
        kind = long_line if len(text) > limit else Line
        found.append(kind(text, number, match.end()))
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


@given(data=DATA, chunk=st.integers(1, 40), limit=st.integers(0, 20), cut=st.integers(0, 20))
def test_what_stands_before_the_last_line_is_known(
    data: bytes, chunk: int, limit: int, cut: int
) -> None:
    data = b"\n" + data * 10  # longer than an anchor
    starts = [line.end for line in expected(data, 1000)]
    start = starts[min(cut, len(starts) - 1)]
    reader = LineReader(io.BytesIO(data), start, line_bytes_max=limit, chunk_bytes=chunk)
    while not reader.at_end:
        lines = reader.next_lines() or [reader.last_line() if reader.at_end else None]
        for line in filter(None, lines):
            assert reader.before(line.end) == data[: line.end][-ANCHOR_BYTES:]


@pytest.mark.parametrize(("data", "numbers"), [(b"a\nb", [1, 2]), (b"a\nb\n", [1, 2]), (b"", [])])
def test_the_last_line_counts_without_its_end_and_an_end_makes_no_line(
    data: bytes, numbers: list[int]
) -> None:
    assert [line.number for line in read_all(LineReader(io.BytesIO(data)))] == numbers


def test_a_growing_file_is_followed_and_an_unfinished_line_waits() -> None:
    file = io.BytesIO(b"one\ntw")
    reader = LineReader(file)
    assert reader.next_lines() == [Line(b"one", 1, 4)]
    assert reader.next_lines() == []
    assert reader.at_end
    file.write(b"o\nthree\n")
    file.seek(6)
    assert reader.next_lines() == [Line(b"two", 2, 8), Line(b"three", 3, 14)]


@pytest.mark.parametrize("size", [4 * 1024 * 1024 + 1, 64 * 1024 * 1024])
def test_a_line_of_any_length_passes_in_bounded_memory(tmp_path: Path, size: int) -> None:
    with (tmp_path / "sparse").open("w+b", buffering=0) as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"\r\nnext\n")
        tracemalloc.start()
        try:
            found = read_all(LineReader(file))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert found == [long_line(bytes(size), 1, size + 2), Line(b"next", 2, size + 7)]
    assert peak < 24 * 1024 * 1024


def test_two_megabytes_are_an_ordinary_line() -> None:
    data = b"y" * 2_000_000
    assert read_all(LineReader(io.BytesIO(data + b"\n"))) == [Line(data, 1, 2_000_001)]
