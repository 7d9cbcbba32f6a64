import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from kafka2011.cli.console_producer import lines


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
