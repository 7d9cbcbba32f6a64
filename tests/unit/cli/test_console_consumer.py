"""The console consumer's output, and where it begins."""

import threading

import pytest

from kafka2011.cli import console_consumer
from kafka2011.cli.console_consumer import _Output
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.consumer.config import ConsumerConfig
from tests.support.waiting import wait_until
from tests.unit.cli.conftest import Run


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


@pytest.mark.parametrize(
    ("words", "reset"),
    [
        ((), "largest"),
        (("--from-beginning",), "smallest"),
        (("--set", "autooffset.reset=smallest"), "smallest"),
    ],
)
def test_where_a_group_without_offsets_begins(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reset: str
) -> None:
    seen: list[ConsumerConfig] = []

    def consume(config: ConsumerConfig, *_: object, **__: object) -> int:
        seen.append(config)
        return 0

    monkeypatch.setattr(console_consumer, "_consume", consume)
    run("console-consumer", "--zookeeper", "127.0.0.1:1", "--topic", "t", *words)
    assert [config.autooffset_reset for config in seen] == [reset]
