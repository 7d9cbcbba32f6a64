"""The console consumer's output, and where it begins."""

import threading
from unittest.mock import Mock

import pytest

from kafka2011.cli import console_consumer
from kafka2011.cli.console_consumer import _Output, end_on
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.consumer.config import ConsumerConfig
from tests.conftest import Run
from tests.support.waiting import wait_until


def test_an_output_that_cannot_be_written_ends_the_reading_and_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = threading.Event()
    with open("/dev/full", "wb", buffering=1000) as full:
        output = _Output(full, lambda message: message.payload, stop)
        output.start()
        message = ConsumedMessage(b"x", "t", 0, 0, 11)
        output.write(message)
        wait_until(stop.is_set, "the flush to fail")
        for call in (lambda: output.write(message), output.close):
            with pytest.raises(OSError, match="No space"):
                call()
        with pytest.raises(OSError, match="No space"):
            full.close()
    assert not caplog.text, "one line says it, and no stack trace"


@pytest.mark.parametrize(
    ("words", "reset", "timeout_ms"),
    [
        ((), "largest", -1),
        (("--from-beginning",), "smallest", -1),
        (("--set", "autooffset.reset=smallest"), "smallest", -1),
        (("--set", "consumer.timeout.ms=3000"), "largest", 3000),
        (("--consumer-timeout-ms", "5"), "largest", 5),
    ],
)
def test_an_option_that_is_not_given_leaves_the_setting(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    reset: str,
    timeout_ms: int,
) -> None:
    seen: list[ConsumerConfig] = []

    def consume(config: ConsumerConfig, *_: object, **__: object) -> int:
        seen.append(config)
        return 0

    monkeypatch.setattr(console_consumer, "_consume", consume)
    run("console-consumer", "--zookeeper", "127.0.0.1:1", "--topic", "t", *words)
    found = [(config.autooffset_reset, config.consumer_timeout_ms) for config in seen]
    assert found == [(reset, timeout_ms)]
    assert "flush" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("answers", "steps"),
    [(True, ["answers_within", "shutdown"]), (False, ["answers_within", "abandon", "shutdown"])],
)
def test_a_stop_does_not_wait_for_a_zookeeper_that_is_away(
    capsys: pytest.CaptureFixture[str], *, answers: bool, steps: list[str]
) -> None:
    """Each step of the shutdown would wait for its answer."""
    stop, both = threading.Event(), Mock()
    both.answers_within.return_value = answers
    stop.set()
    end_on(stop, both, both)
    assert [name for name, *_ in both.method_calls] == steps
    assert ("ZooKeeper does not answer" in capsys.readouterr().err) is not answers
