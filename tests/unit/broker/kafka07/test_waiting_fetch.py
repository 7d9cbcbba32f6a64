"""A fetch that waits at the broker: what ends the wait, and that nothing is left of it."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka2011.broker.kafka07 import session
from kafka2011.broker.network import server
from kafka2011.protocol import requests
from tests.support.brokers import RawClient
from tests.support.in_process_broker import LOOPS, InProcessBroker, in_process_broker
from tests.support.raw_requests import (
    OUT_OF_RANGE,
    answer,
    entry,
    fetch,
    frame,
    offsets,
    offsets_answer,
    produce,
    waiting_fetch,
)
from tests.support.waiting import wait_until
from tests.unit.broker.data_directory import DataDirectory

V = entry(b"hello")
LONG_MS = 30_000
HOUR_MS = 3_600_000
NOTHING = frame(b"\0\0" + answer(b""))
ARRIVED = frame(b"\0\0" + answer(V))


@pytest.fixture(params=list(LOOPS))
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    with in_process_broker(tmp_path, request.param, num_partitions=2) as made:
        yield made


@pytest.fixture(params=[1, 40], ids=["in one turn", "in turns"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many parts a fetch has; many are read in turns, between which nothing is received. The
    broker would let it wait for an hour."""
    monkeypatch.setattr(session, "TURN_S", 0.0)
    monkeypatch.setattr(requests, "WAIT_MS_MAX", HOUR_MS)
    return int(request.param)


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[RawClient]:
    with broker.connect() as made:
        yield made


def store(client: RawClient, topic: bytes = b"t", partition: int = 0) -> None:
    """Append one message and wait until it is durable."""
    client.send(produce(topic, V, partition) + offsets(topic, -1, 1, partition))
    client.response()


def waited(broker: InProcessBroker) -> int:
    return broker.broker.partitions._data_waits.log_count


def is_waiting(broker: InProcessBroker) -> Callable[[], bool]:
    return lambda: waited(broker) > 0


def test_it_is_answered_at_once_where_there_is_something_to_say(
    broker: InProcessBroker, client: RawClient
) -> None:
    store(client)
    both = client.ask(waiting_fetch(LONG_MS, (b"t", 0, 15, 99), (b"t", 0, 0, 99)))
    assert both == frame(b"\0\0" + answer(b"") + answer(V))
    wrong = client.ask(waiting_fetch(LONG_MS, (b"t", 0, 15, 99), (b"t", 0, 16, 99)))
    assert wrong == frame(b"\0\0" + answer(b"") + OUT_OF_RANGE)
    assert client.ask(waiting_fetch(LONG_MS)) == frame(b"\0\0")
    assert not waited(broker)


def test_it_is_answered_when_the_data_are_durable(
    broker: InProcessBroker, client: RawClient
) -> None:
    store(client)
    client.send(waiting_fetch(LONG_MS, (b"t", 0, 15, 99)))
    wait_until(is_waiting(broker), "the wait")
    with broker.connect() as other:
        other.send(produce(b"t", V))
        assert client.response() == ARRIVED
    assert not waited(broker)


def test_a_partition_without_a_log_is_waited_for(
    broker: InProcessBroker, client: RawClient
) -> None:
    waits = broker.broker.partitions._data_waits
    client.send(waiting_fetch(LONG_MS, (b"new", 1, 0, 99)))
    wait_until(lambda: waits.for_new_log, "the wait")
    with broker.connect() as other:
        store(other, b"another")
        store(other, b"new", 1)
    assert client.response() == ARRIVED
    assert not waits.for_new_log
    assert not waited(broker)


def test_it_is_answered_empty_at_its_deadline(broker: InProcessBroker, client: RawClient) -> None:
    store(client)
    assert client.ask(waiting_fetch(20, (b"t", 0, 15, 99))) == NOTHING
    assert client.ask(waiting_fetch(0, (b"t", 0, 15, 99))) == NOTHING
    assert not waited(broker)


def test_what_the_client_sends_ends_it(
    broker: InProcessBroker, client: RawClient, parts: int
) -> None:
    store(client)
    waiting = waiting_fetch(HOUR_MS, *[(b"t", 0, 15, 99)] * parts)
    nothing = frame(b"\0\0" + answer(b"") * parts)
    client.send(waiting)
    wait_until(is_waiting(broker), "the wait")
    client.send(fetch(b"t", 0, 0, 15) + waiting + offsets(b"t"))
    assert client.response() == nothing
    assert client.response() == answer(V)
    assert client.response() == nothing  # something stands behind it
    assert client.response() == offsets_answer(15, 0)
    assert not waited(broker)


def test_a_client_that_leaves_ends_it(
    broker: InProcessBroker, client: RawClient, parts: int
) -> None:
    store(client)
    for _ in range(3):
        with broker.connect() as leaving:
            leaving.send(waiting_fetch(HOUR_MS, *[(b"t", 0, 15, 99)] * parts))
            wait_until(is_waiting(broker), "the wait")
        wait_until(lambda: not waited(broker), "the end of the wait")
    wait_until(lambda: len(broker.broker.server._connections) == 1, "the others are gone")


def test_the_brokers_stop_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(server, "STOP_GRACE_S", 1e6)  # for what is owed, as this is not
    with in_process_broker(tmp_path, "uvloop") as broker:
        client = broker.connect()
        store(client)
        client.send(waiting_fetch(HOUR_MS, *[(b"t", 0, 15, 99)] * parts))
        wait_until(is_waiting(broker), "the wait")
    with client:
        assert client.response() == frame(b"\0\0" + answer(b"") * parts)
        assert client.is_closed_by_broker()


def test_where_too_many_wait_it_is_answered_at_once(
    broker: InProcessBroker, client: RawClient
) -> None:
    store(client)
    broker.broker.partitions._data_waits._logs_max = 0
    assert client.ask(waiting_fetch(LONG_MS, (b"t", 0, 15, 99))) == NOTHING


def test_a_log_that_fails_ends_it(disk: DataDirectory) -> None:
    with (
        in_process_broker(disk.root.parent, "uvloop", disk.files) as broker,
        broker.connect() as client,
        broker.connect() as other,
    ):
        store(client)
        store(client, b"another")  # a broker stops with its last log
        client.send(waiting_fetch(LONG_MS, (b"t", 0, 15, 99)))
        wait_until(is_waiting(broker), "the wait")
        disk.fail(errno.EIO, "write_at")
        other.send(produce(b"t", V))
        assert client.response() == NOTHING
        assert client.ask(waiting_fetch(LONG_MS, (b"t", 0, 15, 99))) == NOTHING


@pytest.mark.parametrize(
    "request_bytes",
    [
        waiting_fetch(-1, (b"t", 0, 0, 99)),
        waiting_fetch(1, (b"t", 0, 0, -1)),
        frame(b"\x03\xe8\0\0"),
        frame(b"\x03\xe8\0\0\0\x01\0\x02"),
        frame(b"\x03\xe9" + bytes(20)),
    ],
    ids=["negative wait", "negative size", "no wait", "no parts", "another id"],
)
def test_what_is_malformed_closes_the_connection(
    broker: InProcessBroker, client: RawClient, request_bytes: bytes
) -> None:
    client.send(request_bytes)
    assert client.is_closed_by_broker()
