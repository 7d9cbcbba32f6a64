"""The threads of replay-log, and what it says of what it has not read."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from kafka2011.cli import replay_log
from kafka2011.cli.replay_log import _Replay, _Tally
from kafka2011.cli.unread import unread
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import PartitionStuck
from kafka2011.coordination import paths
from kafka2011.producer import Producer
from kafka2011.protocol.message_set import payloads
from tests.conftest import Run
from tests.support.memory_deployment import PATIENCE_MS, Deployment
from tests.support.scripted_server import ScriptedBroker, TcpTarget


def test_a_thread_that_ends_by_a_bug_is_a_failure_of_the_command() -> None:
    def broken() -> Iterator[Any]:
        raise ZeroDivisionError("a bug")
        yield

    tally = _Tally(-1, 1000, threading.Event())
    replay = _Replay(broken(), Producer(broker_list="0:127.0.0.1:1"), "t", 1, 0, tally)  # type: ignore[arg-type]
    replay.worker.join()
    assert tally.stop.is_set()
    assert tally.failures == ["ZeroDivisionError('a bug')"]


def test_the_last_message_that_was_asked_for_ends_the_threads_that_wait() -> None:
    tally = _Tally(2, 1000, threading.Event())
    assert tally.take()
    assert not tally.stop.is_set()
    assert tally.take()
    assert tally.stop.is_set()
    assert not tally.take()


def test_what_was_read_before_a_damaged_place_is_sent_and_only_that_is_counted() -> None:
    def damaged() -> Iterator[Any]:
        for number in range(3):
            yield Mock(payload=b"%d" % number)
        raise PartitionStuck("in", 0, 0, 99, "damaged")

    for is_away in (False, True):
        tally = _Tally(-1, 1000, threading.Event())
        with ScriptedBroker() as broker:
            address = "0:127.0.0.1:1" if is_away else broker.broker_list
            replay = _Replay(damaged(), Producer(broker_list=address), "t", 2, 0, tally)  # type: ignore[arg-type]
            replay.worker.join()
            found = [one for part in broker.parts() for one in payloads(bytes(part.message_set))]
        assert found == ([] if is_away else [b"0", b"1", b"2"])
        assert tally.sent_count == len(found)
        assert len(tally.failures) == 1


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """Broker 0 has 100 messages of topic "in"; its ZooKeeper is that of the command."""
    made = Deployment()
    made.broker(0).append("in", 0, [b"%d" % number for number in range(100)])
    made.topic("in", {0: 1})
    registry = made.zookeeper.client()
    registry.start()
    monkeypatch.setattr(replay_log, "connected", lambda _: contextlib.nullcontext(registry))
    yield made
    made.close()


def words(deployment: Deployment, timeout_ms: int, *more: object) -> list[object]:
    target = f"broker.list=0:127.0.0.1:{deployment.broker(9).port}"
    given = ("--zookeeper", "h:1", "--brokerinfo", target, "--inputtopic", "in")
    return [*given, "--outputtopic", "out", "--consumer-timeout-ms", timeout_ms, *more]


def test_a_broker_that_gives_nothing_is_no_end_of_its_partition(
    deployment: Deployment, run: Run
) -> None:
    with TcpTarget(reads=False) as hung:
        stored = paths.encode_broker(hung.host, hung.port, 1)
        deployment.admin.put(paths.broker_id_path(1), stored)
        deployment.topic("in", {1: 1})
        done = run("replay-log", *words(deployment, 300))
        assert done.status == 1
        assert "in/1-0 is not known to be read to its end: its broker does not answer" in done.err
        asked_for = run("replay-log", *words(deployment, PATIENCE_MS, "--messages", 100))
    assert (asked_for.status, asked_for.err) == (0, "")
    assert asked_for.out == "100 messages replayed from in to out\n"


def test_silence_is_the_end_when_everything_was_read(deployment: Deployment, run: Run) -> None:
    assert run("replay-log", *words(deployment, 2000)).status == 0
    assert len(payloads(deployment.brokers[9].log("out", -1))) == 100


def test_a_signal_is_no_failure_though_much_is_unread() -> None:
    name, stop = TopicPartition("in", 0, 0), threading.Event()
    connector = Mock(is_settled=True, lag=lambda: {name: 5})
    assert unread(connector, [name], stop)
    connector.lag = lambda: stop.set() or {name: None}  # it ends the connector meanwhile
    assert unread(connector, [name], stop) == []
    connector.lag = Mock()
    assert unread(connector, [name], stop) == []
    connector.lag.assert_not_called()


def test_what_is_unread_is_named() -> None:
    whole, part, silent, lost = (TopicPartition("t", 0, number) for number in range(4))
    connector = Mock(is_settled=True, lag=lambda: {whole: 0, part: 1234, silent: None})
    assert unread(connector, [whole, lost], threading.Event()) == [
        "t/0-1 was not read to its end: 1,234 bytes are left",
        "t/0-2 is not known to be read to its end: its broker does not answer, or its log ends "
        "before what was read",
        "t/0-3 is not known to be read to its end: its broker does not answer, or its log ends "
        "before what was read",
    ]
    connector = Mock(is_settled=False, lag=dict)
    [line] = unread(connector, [], threading.Event())
    assert "not all partitions could be taken" in line
