import os
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.cli import console_producer
from kafka2011.cli.console_producer import TooLong, lines


@given(text=st.binary(max_size=200).map(lambda b: b.replace(b"\r", b"\n")))
def test_lines_are_those_of_the_text(text: bytes) -> None:
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    try:
        found = list(lines(read, threading.Event()))
    finally:
        os.close(read)
    expected = text.split(b"\n")
    assert found == (expected if expected[-1] else expected[:-1])


def test_a_line_without_end_is_passed_over_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console_producer, "LINE_BYTES_MAX", 100_000)
    read, write = os.pipe()

    def fill() -> None:
        with os.fdopen(write, "wb") as text:
            text.write(b"one\n" + bytes(100_000) + b"\ntwo\n")
            for _ in range(200):
                text.write(bytes(50_000))
            text.write(b"\nthree\n" + bytes(100_001))

    writer = threading.Thread(target=fill)
    tracemalloc.start()
    try:
        writer.start()
        found = list(lines(read, threading.Event()))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        writer.join()
        os.close(read)
    assert found == [
        *(b"one", bytes(100_000), b"two", TooLong(10_000_000), b"three", TooLong(100_001))
    ]
    assert peak_bytes < 2_000_000
