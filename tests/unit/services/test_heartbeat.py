"""Heartbeats of a process, through a producer into a recording server."""

from collections.abc import Iterator

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.events.monitoring import Heartbeat, decode_report
from kafka2011.events.topics import AUDIT
from kafka2011.producer import Producer
from kafka2011.protocol.message_set import payloads
from kafka2011.services.heartbeat import HeartbeatSender
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


@pytest.fixture
def server() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


def beats_in(server: ScriptedBroker) -> list[Heartbeat]:
    found = []
    for part in server.parts():
        assert part.topic == AUDIT
        found += [decode_report(payload) for payload in payloads(bytes(part.message_set))]
    assert all(isinstance(beat, Heartbeat) for beat in found)
    return found  # type: ignore[return-value]


def sender(connect: object, **changed: object) -> HeartbeatSender:
    settings = {"server": "mirror-1", "service": "mirror", "interval_ms": 20, **changed}
    return HeartbeatSender(connect, **settings)  # type: ignore[arg-type]


def test_it_beats_until_it_says_goodbye(server: ScriptedBroker) -> None:
    beating = sender(lambda: Producer(broker_list=server.broker_list))
    wait_until(lambda: len(beats_in(server)) >= 3, "three heartbeats")
    beating.close()
    *before, last = beats_in(server)
    assert last.is_last
    assert not any(beat.is_last for beat in before)
    assert {(beat.header.server, beat.header.service) for beat in before} == {
        ("mirror-1", "mirror")
    }
    assert len({beat.header.guid for beat in before}) == len(
        {beat.header.time_ms for beat in before}
    )


def test_after_messages_that_may_have_been_written_twice_it_is_another_instance(
    server: ScriptedBroker,
) -> None:
    repeated = [5]
    beating = sender(lambda: Producer(broker_list=server.broker_list), repeated=lambda: repeated[0])
    wait_until(lambda: len(beats_in(server)) >= 2, "two heartbeats")
    repeated[0] = 6
    seen = len(beats_in(server))
    wait_until(lambda: len(beats_in(server)) >= seen + 3, "three more")
    beating.close()
    instances = [beat.instance for beat in beats_in(server)]
    assert len(set(instances[: seen - 1])) == 1
    assert len(set(instances)) == 2
    assert instances == sorted(instances)


def test_that_messages_may_have_been_written_twice_is_said_before_the_next_heartbeat_is_due(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is said the audit calls them extra."""
    monkeypatch.setattr("kafka2011.services.heartbeat.REPEATED_LOOK_S", 0.01)
    repeated = [0]
    beating = sender(
        lambda: Producer(broker_list=server.broker_list),
        repeated=lambda: repeated[0],
        interval_ms=86_400_000,
    )
    wait_until(lambda: len(beats_in(server)) == 1, "the first")
    repeated[0] = 1
    wait_until(lambda: len(beats_in(server)) == 2, "another, long before it is due")
    repeated[0] = 2
    beating.close()
    first, second, last = beats_in(server)
    assert first.instance != second.instance
    assert last.is_last, "no third one: they may be repeated again and again"


def test_a_cluster_that_is_away_is_tried_again(server: ScriptedBroker) -> None:
    tries = []

    def connect() -> Producer:
        tries.append(1)
        if len(tries) < 3:
            raise CoordinationUnavailable("not yet")
        return Producer(broker_list=server.broker_list)

    beating = sender(connect)
    wait_until(lambda: bool(beats_in(server)), "a heartbeat")
    beating.close()
    assert len(tries) == 3


@pytest.mark.parametrize("changed", [{"server": ""}, {"interval_ms": 0}])
def test_without_a_name_or_an_interval_nothing_is_done(changed: dict[str, object]) -> None:
    def connect() -> Producer:
        raise AssertionError

    sender(connect, **changed).close()


def test_an_exception_that_is_not_foreseen_costs_one_heartbeat(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.runtime.workers.RESTART_FIRST_S", 0.001)
    bugs: list[Exception] = [ZeroDivisionError()]

    def connect() -> Producer:
        if bugs:
            raise bugs.pop()
        return Producer(broker_list=server.broker_list)

    beating = sender(connect)
    wait_until(lambda: beats_in(server), "a heartbeat")
    beating.close()
    assert beats_in(server)[-1].is_last
