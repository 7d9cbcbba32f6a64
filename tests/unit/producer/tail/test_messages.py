"""A cursor's arithmetic, and positions that outlive the process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.tail.messages import (
    BadState,
    Cursor,
    FileId,
    decode_positions,
    encode_positions,
)


def read_all(cursor: Cursor, content: bytes, step: int = 7) -> list[bytes]:
    """What a cursor makes of a file with this content, read in small steps."""
    found: list[bytes] = []
    while True:
        offset, size = cursor.window(step)
        messages = cursor.accept(content[offset : offset + size])
        if messages is None:
            found += cursor.restart()
            continue
        found += messages
        if offset + size > len(content):
            return found


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.integers(1, 50))
def test_lines_come_out_whole_however_they_are_read(lines, step) -> None:
    content = b"".join(line + b"\n" for line in lines)
    cursor = Cursor(1000)
    assert read_all(cursor, content + b"unended", step) == lines
    assert cursor.offset == len(content)
    assert cursor.finish() == [b"unended"]
    assert cursor.offset == len(content) + 7


@given(st.binary(min_size=1, max_size=100), st.integers(1, 10), st.integers(1, 30))
def test_a_long_line_comes_in_bounded_pieces(line, limit, step) -> None:
    cursor = Cursor(limit)
    found = read_all(cursor, line, step) + cursor.finish()
    assert all(len(piece) <= limit for piece in found)
    assert b"".join(found) == line.replace(b"\n", b"")
    assert cursor.read_offset - cursor.offset <= limit


def test_other_content_at_the_position_is_noticed() -> None:
    cursor = Cursor(1000)
    assert read_all(cursor, b"one\ntwo\nthr") == [b"one", b"two"]
    for other in (b"", b"ONE\n", b"ONE\nTWO\nTHREE\nFOUR\n"):
        offset, size = cursor.window(100)
        assert cursor.accept(other[offset : offset + size]) is None
    assert cursor.restart() == [b"thr"]
    assert read_all(cursor, b"ONE\nTWO\n") == [b"ONE", b"TWO"]


def test_a_position_survives_the_process_and_recognises_its_file() -> None:
    content = b"".join(b"line %d\n" % number for number in range(100)) + b"half"
    first, second, third = (Cursor(1000) for _ in range(3))
    read_all(first, content)
    (stored,) = decode_positions(encode_positions([first.position(FileId(1, 2), "a.log")]))
    second.resume(stored)
    assert read_all(second, content + b" and half\n") == [b"half and half"]
    third.resume(stored)
    assert third.position(FileId(1, 2), "a.log") == stored  # not looked at yet
    assert read_all(third, b"X" * len(content) + b"\n") == [b"X" * len(content)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 9, "files": []}',
        b'{"version": 1, "files": [{"device": 1}]}',
        b'{"version": 1, "files": [{"device": 1, "inode": 1, "path": "a", "offset": 3,'
        b' "anchor_bytes": 4, "anchor_sha256": ""}]}',
        b"[" * 100_000,
        *(
            b'{"version": 1, "files": [{"device": 1, "inode": 1, "anchor_sha256": "",'
            b' "anchor_bytes": 0, "path": "a", "offset": 3, %s}]}' % odd
            for odd in (b'"offset": 1e999', b'"path": "\\u0000"', b'"content": "x"', b'"lines": -1')
        ),
    ],
)
def test_a_damaged_state_is_refused(data) -> None:
    with pytest.raises(BadState):
        decode_positions(data)
