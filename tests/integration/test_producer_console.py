"""`kafka2011 console-producer` as a process, against a socket that records what it sends."""

from collections.abc import Iterator

import pytest

from kafka2011.protocol.message_set import payloads
from tests.support.commands import run
from tests.support.scripted_server import ScriptedBroker

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


def console(server: ScriptedBroker, text: bytes, *options: str, status: int = 0) -> str:
    """What it says on standard error."""
    words = ("--topic", "cons", "--broker-list", server.broker_list, *options)
    return run("console-producer", *words, text=text, status=status).stderr


def sent(server: ScriptedBroker) -> list[bytes]:
    return [p for part in server.parts() for p in payloads(bytes(part.message_set))]


def test_lines_are_batched_flushed_and_it_ends_by_itself(server: ScriptedBroker) -> None:
    assert console(server, b"one\ntwo\r\n\n\xff\nlast without end") == ""
    assert sent(server) == [b"one", b"two", b"", b"\xff", b"last without end"]
    assert len(server.produce_frames(1)) == 1
    assert server.barrier_count() == 1


def test_sync_sends_a_request_a_line(server: ScriptedBroker) -> None:
    console(server, b"one\ntwo\n", "--sync")
    assert len(server.produce_frames(2)) == 2
    assert sent(server) == [b"one", b"two"]


def test_compress_packs_with_gzip_as_the_originals_capture_p18(server: ScriptedBroker) -> None:
    console(server, b"one\ntwo\nthree\n", "--compress")
    assert sent(server) == [b"one", b"two", b"three"]
    part = server.parts()[0]
    assert part.message_set[4:6] == b"\x01\x01"
    assert len(part.message_set) == 0x43  # as captured


def test_what_is_not_durable_is_said_with_status_1(server: ScriptedBroker) -> None:
    server.close_at_barrier = 1
    errors = console(server, b"one\n", status=1)
    assert "not known to be durable" in errors
    assert errors.count("\n") == 1


def test_a_line_above_the_limit_is_refused_and_the_others_go(server: ScriptedBroker) -> None:
    text = b"one\n" + b"x" * 100 + b"\ntwo\n"
    errors = console(server, text, "--max-message-size", "50", status=1)
    assert "line 2: a payload of 100 bytes" in errors
    assert sent(server) == [b"one", b"two"]


def test_no_broker_is_one_line_and_status_1() -> None:
    with ScriptedBroker() as gone:
        pass
    for options in ((), ("--sync",)):
        assert "cannot connect" in console(gone, b"one\n", *options, status=1)


@pytest.mark.parametrize(
    "options", [[], ["--broker-list", "nonsense"], ["--zookeeper", "a:1", "--broker-list", "0:b:2"]]
)
def test_wrong_options_are_status_2(options: list[str]) -> None:
    done = run("console-producer", "--topic", "t", *options, status=2)
    assert "Traceback" not in done.stderr
