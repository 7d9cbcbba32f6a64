"""The console consumer's output, what of it is committed, and where it begins."""

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from unittest.mock import Mock

import pytest

from kafka2011.cli import console_consumer
from kafka2011.cli.console_consumer import _consume, _Output, _Printing, end_on
from kafka2011.cli.message_formats import Format, FormatFailed, message_format
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.groups.delivery import Grant
from kafka2011.consumer.groups.topic_filters import whitelist
from tests.conftest import Run
from tests.support.memory_deployment import PATIENCE_MS, Deployment
from tests.support.waiting import wait_until


class Sink(io.RawIOBase):
    """Keeps what is written, and may take no more than `bytes_max` at once."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self.written = bytearray()
        self.bytes_max = bytes_max

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, data: Any) -> int:
        taken = bytes(data[: self.bytes_max])
        self.written += taken
        return len(taken)


@pytest.fixture
def consume(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[int, int]]]:
    """`consume(out, formatted=...)` reads 2000 messages of topic t; the exit status, and how many
    the group has committed."""
    deployment = Deployment()
    payloads = [b"message-%05d" % number for number in range(2000)]
    size = deployment.broker_of_t(payloads).end("t", 0) // len(payloads)
    monkeypatch.setattr(
        console_consumer, "ZooKeeperRegistry", lambda *_, **__: deployment.zookeeper.client()
    )

    def call(out: BinaryIO, formatted: Format = newline, **options: Any) -> tuple[int, int]:
        stop = options.pop("stop", threading.Event())
        settings = {"consumer_timeout_ms": PATIENCE_MS, **options.pop("settings", {})}
        config = ConsumerConfig(
            group_id="g", zk_connect="h:1", autooffset_reset="smallest", **settings
        )
        given = {"count_max": None, "skips": False, **options}
        status = -1
        with contextlib.suppress(OSError):
            status = _consume(
                config,
                whitelist("t"),
                _Output(out, formatted, stop),
                stop,
                topic="t",
                forget_first=False,
                forget_after=False,
                **given,
            )
        return status, int(deployment.stored("t", 0, 0) or b"0") // size

    yield call
    deployment.close()


def newline(message: ConsumedMessage) -> bytes:
    return message.payload + b"\n"


Consume = Callable[..., tuple[int, int]]


def test_what_did_not_reach_the_output_is_not_committed(consume: Consume) -> None:
    with contextlib.suppress(OSError), open("/dev/full", "wb") as full:
        assert consume(full) == (-1, 0)
    sink = Sink()
    assert consume(io.BufferedWriter(sink), count_max=2000) == (0, 2000)
    assert sink.written.count(b"\n") == 2000, "the next consumer of the group has all of it"


def test_no_message_counts_before_the_output_has_it() -> None:
    """Also to a timer that commits at any moment."""
    sink, grant = Sink(), Grant()
    messages = [ConsumedMessage(bytes(1000), "t", 0, 0, number + 1) for number in range(500)]

    def check() -> None:
        for mark in (grant.last, grant.done):
            assert sink.written.count(b"\n") >= (mark.next_offset if mark else 0)

    def formatted(message: ConsumedMessage) -> bytes:
        check()
        return newline(message)

    batches = iter([(iter(messages[:300]), grant), (iter(messages[300:]), grant), None])
    stream, stop = Mock(take=lambda: (check(), next(batches))[1]), threading.Event()
    output = _Output(io.BufferedWriter(sink), formatted, stop)
    assert _Printing(Mock(), stream, output, stop, None, skips=False).run() == 0
    assert sink.written == b"".join(map(newline, messages))
    assert grant.last is grant.done is messages[-1]


def test_a_stop_in_the_middle_of_a_batch_commits_what_was_printed_and_no_more(
    consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_consumer, "FLUSH_BYTES", 1)
    sink, stop = Sink(), threading.Event()

    def formatted(message: ConsumedMessage) -> bytes:
        if message.payload.endswith(b"777"):
            stop.set()
        return newline(message)

    assert consume(io.BufferedWriter(sink), formatted, stop=stop) == (0, 778)
    assert sink.written.count(b"\n") == 778


def test_the_last_message_that_was_asked_for_is_the_last_that_is_committed(
    consume: Consume,
) -> None:
    sinks = Sink(), Sink()
    for sink, count, committed in zip(sinks, (7, 13), (7, 20), strict=True):
        assert consume(io.BufferedWriter(sink), count_max=count) == (0, committed)
    printed = sinks[0].written + sinks[1].written
    assert printed == b"".join(b"message-%05d\n" % number for number in range(20))


@pytest.mark.parametrize(("skips", "outcome"), [(False, (1, 3)), (True, (0, 5))])
def test_a_message_that_the_formatter_fails_on_is_committed_when_it_is_skipped(
    consume: Consume, capsys: pytest.CaptureFixture[str], *, skips: bool, outcome: tuple[int, int]
) -> None:
    def formatted(message: ConsumedMessage) -> bytes:
        if message.payload.endswith(b"3"):
            raise FormatFailed("a test says so")
        return newline(message)

    sink = Sink()
    assert consume(io.BufferedWriter(sink), formatted, skips=skips, count_max=4) == outcome
    assert sink.written.count(b"\n") == outcome[1] - skips
    assert "a test says so" in capsys.readouterr().err


def test_an_unbuffered_output_gets_every_byte() -> None:
    """With PYTHONUNBUFFERED, a write may take a part."""
    sink = Sink(bytes_max=3)
    output = _Output(sink, newline, threading.Event())  # type: ignore[arg-type]
    for number in range(10):
        output.write(ConsumedMessage(b"message %d" % number, "t", 0, 0, number))
    output.flush()
    assert sink.written == b"".join(b"message %d\n" % number for number in range(10))


def test_any_byte_separates_lines() -> None:
    separator = os.fsdecode(b"\xff")
    formatted = message_format(
        "newline", [f"line.separator={separator}"], False, bytes, is_here=True
    )
    assert formatted(ConsumedMessage(b"one", "t", 0, 0, 13)) == b"one\xff"


def test_a_reader_that_has_gone_stops_the_reading_though_nothing_is_written() -> None:
    reader, writer = os.pipe()
    stop = threading.Event()
    with open(writer, "wb") as out:
        output = _Output(out, newline, stop)
        output.start()
        assert not stop.is_set()
        os.close(reader)
        wait_until(stop.is_set, "it is noticed")
        output.close()


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
    ("words", "group", "forgets"),
    [
        ((), "console-consumer-", True),
        (("--group", "g"), "g", False),
        (("--set", "groupid=g"), "g", False),
        (("--set", "groupid=other", "--group", "g"), "g", False),
    ],
)
def test_a_group_that_was_named_is_used_and_kept(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    group: str,
    forgets: bool,
) -> None:
    seen: list[tuple[str, bool]] = []

    def consume(config: ConsumerConfig, *_: object, forget_after: bool, **__: object) -> int:
        seen.append((config.group_id.rstrip("0123456789"), forget_after))
        return 0

    monkeypatch.setattr(console_consumer, "_consume", consume)
    run("console-consumer", "--zookeeper", "127.0.0.1:1", "--topic", "t", *words)
    assert seen == [(group, forgets)]


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
