import os
import threading
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.cli import console_producer
from kafka2011.cli.console_producer import TooLong, lines
from kafka2011.producer import Producer
from tests.support.scripted_server import ScriptedBroker


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


def test_the_end_says_how_many_lines_found_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    """Their number was promised while they were sent; the end had sends and bytes alone."""
    with ScriptedBroker() as broker:
        producer = Producer(
            broker_list=broker.broker_list, producer_type="async", connect_timeout_ms=1
        )

        def reader(_: object) -> Iterator[bytes]:
            broker.close()
            yield from (b"one", b"two")

        def send(line: bytes) -> None:
            producer.send("t", line)

        with pytest.raises(SystemExit) as ended:
            console_producer._send_all(producer, "t", send, reader, threading.Event(), place=None)
    assert ended.value.code == 1
    said = "after 2 lines, of which 2 could not be sent: not known to be durable: "
    assert said in capsys.readouterr().err
