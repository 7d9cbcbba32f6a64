"""The console consumer's output."""

import threading

import pytest

from kafka2011.cli.console_consumer import _Output
from kafka2011.consumer.chunk import ConsumedMessage
from tests.support.waiting import wait_until


def test_an_output_that_cannot_be_written_ends_the_reading_and_is_raised() -> None:
    stop = threading.Event()
    with open("/dev/full", "wb", buffering=1000) as full:
        output = _Output(full, lambda message: message.payload, stop)
        message = ConsumedMessage(b"x", "t", 0, 0, 11)
        output.write(message)
        wait_until(stop.is_set, "the flush to fail")
        for call in (lambda: output.write(message), output.close):
            with pytest.raises(OSError, match="No space"):
                call()
        with pytest.raises(OSError, match="No space"):
            full.close()
