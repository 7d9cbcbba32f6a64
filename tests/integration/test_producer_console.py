"""`kafka2011 console-producer` against a socket that records what it sends."""

import re
from collections.abc import Callable, Iterator

import pytest

from kafka2011.cli import console_producer
from kafka2011.protocol.message_set import payloads
from tests.conftest import Run
from tests.support.scripted_server import ScriptedBroker

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


Console = Callable[..., str]


@pytest.fixture
def console(server: ScriptedBroker, run: Run) -> Console:
    """`console(b"line", ...)`: what the command says on standard error."""

    def command(text: bytes, *options: str, status: int = 0) -> str:
        words = ("--topic", "cons", "--broker-list", server.broker_list, *options)
        return run("console-producer", *words, text=text, status=status).err

    return command


def sent(server: ScriptedBroker) -> list[bytes]:
    return [p for part in server.parts() for p in payloads(bytes(part.message_set))]


def test_lines_are_batched_flushed_and_it_ends_by_itself(
    server: ScriptedBroker, console: Console
) -> None:
    said = console(b"one\ntwo\r\n\n\xff\nlast without end")
    assert said == "kafka2011: 5 messages sent to cons\n"
    assert sent(server) == [b"one", b"two", b"", b"\xff", b"last without end"]
    assert len(server.produce_frames(1)) == 1
    assert server.barrier_count() == 1


def test_sync_sends_a_request_a_line(
    server: ScriptedBroker, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA2011_ZK_CONNECT", "nowhere:1")  # the option wins
    console(b"one\ntwo\n", "--sync")
    assert len(server.produce_frames(2)) == 2
    assert sent(server) == [b"one", b"two"]


def test_a_partition_is_chosen_by_its_name_and_a_key_needs_zookeeper(
    server: ScriptedBroker, console: Console
) -> None:
    broker_id = server.broker_list.partition(":")[0]
    console(b"one\ntwo\n", "--partition", f"{broker_id}-3")
    assert [part.partition for part in server.parts()] == [3, 3]
    assert sent(server) == [b"one", b"two"]
    assert "not in broker.list" in console(b"one\n", "--partition", "9-0", status=1)
    for wrong in (("--partition", "3"), ("--key", "k")):
        assert console(b"one\n", *wrong, status=2).count("\n") == 1


def test_settings_are_those_of_set_unless_an_option_says_otherwise(
    server: ScriptedBroker, console: Console
) -> None:
    console(b"one\ntwo\n", "--set", "producer.type=sync", "--set", "compression.codec=1")
    assert len(server.produce_frames(2)) == 2
    assert [part.message_set[5] for part in server.parts()] == [1, 1]
    assert "2 lines refused" in console(b"one\ntwo\n", "--set", "max.message.size=2", status=1)
    console(b"one\ntwo\n", "--set", "max.message.size=2", "--max-message-size", "3")
    assert sent(server) == [b"one", b"two"] * 2


def test_compress_packs_with_gzip_as_the_originals_capture_p18(
    server: ScriptedBroker, console: Console
) -> None:
    console(b"one\ntwo\nthree\n", "--compress")
    assert sent(server) == [b"one", b"two", b"three"]
    part = server.parts()[0]
    assert part.message_set[4:6] == b"\x01\x01"
    assert len(part.message_set) == 0x43  # as captured


def test_what_is_not_durable_is_said_with_status_1(
    server: ScriptedBroker, console: Console
) -> None:
    server.close_at_barrier = 1
    errors = console(b"one\n", status=1)
    assert "after 1 line: not known to be durable" in errors
    assert errors.count("\n") == 1


def test_a_partition_for_which_a_broker_closes_the_connection_may_not_be_there(
    server: ScriptedBroker, console: Console
) -> None:
    server.close_at_barrier = 1
    broker_id = server.broker_list.partition(":")[0]
    errors = console(b"one\n", "--partition", f"{broker_id}-3", status=1)
    hint = "; the broker may have no partition 3 of cons (num.partitions)\n"
    assert errors.endswith(hint)
    # Closed while there is more to send.
    server.refused = {"cons"}
    errors = console(b"line\n" * 100_000, "--partition", f"{broker_id}-3", status=1)
    assert re.search(r"^kafka2011: line [\d,]+ was not sent: .*lines? sent before it; ", errors)
    assert errors.endswith(hint)
    assert errors.count("\n") == 1


def test_ten_lines_that_are_refused_are_named_and_all_are_counted(
    server: ScriptedBroker, console: Console
) -> None:
    text = b"one\n" + b"long\n" * 12
    errors = console(text, "--max-message-size", "3", status=1).splitlines()
    assert [line.split(":")[1] for line in errors[:10]] == [f" line {n}" for n in range(2, 12)]
    assert errors[10:] == [
        "kafka2011: further lines that are refused are only counted",
        "kafka2011: 12 lines refused, 1 sent to cons",
    ]


def test_a_line_that_is_not_kept_is_refused_and_the_others_go(
    server: ScriptedBroker, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_producer, "LINE_BYTES_MAX", 10)
    said = console(b"one\n" + b"x" * 100_000 + b"\ntwo\n", status=1)
    assert "line 2: of 100,000 bytes: lines above 10 bytes are not read\n" in said
    assert sent(server) == [b"one", b"two"]


def test_a_line_above_the_limit_is_refused_and_the_others_go(
    server: ScriptedBroker, console: Console
) -> None:
    text = b"one\n" + b"x" * 100 + b"\ntwo\n"
    errors = console(text, "--max-message-size", "50", status=1)
    assert "line 2: a payload of 100 bytes" in errors
    assert sent(server) == [b"one", b"two"]


def test_no_broker_is_one_line_and_status_1(server: ScriptedBroker, console: Console) -> None:
    server.close()
    for options in ((), ("--sync",)):
        errors = console(b"one\n", *options, status=1)
        assert "cannot connect" in errors
        assert errors.count("\n") == 1
