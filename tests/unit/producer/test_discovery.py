"""Brokers and partitions through ZooKeeper, as they come and go."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafka2011.coordination.paths import broker_id_path, topic_broker_path
from kafka2011.producer import (
    BrokerUnavailable,
    BrokerUnreachable,
    InvalidPartition,
    Part,
    Producer,
)
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.discovery import RETRY_MS, ZooKeeperBrokers
from tests.support.clock import ManualClock
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.unit.producer.support import numbered, register, sent

ONE, TWO = ("one", 9092), ("two", 9092)


@pytest.fixture
def brokers(registry: InMemoryRegistry) -> ZooKeeperBrokers:
    """1 at ONE and 2 at TWO, without topics."""
    register(registry, 1, ONE)
    register(registry, 2, TWO)
    return ZooKeeperBrokers(registry, rng=random.Random(3))


def chosen(brokers: ZooKeeperBrokers, topic: str, *keys: int | None) -> list[tuple[int, int]]:
    """Broker and partition of a message with each of these keys."""
    targets = [brokers.choose(topic, key) for key in keys]
    return [(target.broker_id, target.partition) for target in targets]


def test_an_unknown_topic_goes_to_partition_0_of_every_broker_until_it_is_announced(
    registry, brokers
) -> None:
    without_key = [None] * 100
    assert set(chosen(brokers, "new", *without_key)) == {(1, 0), (2, 0)}
    # One broker was quicker; the other has its share all the same.
    registry.put(topic_broker_path("new", 2), b"3")
    assert set(chosen(brokers, "new", *without_key)) == {(1, 0), (2, 0), (2, 1), (2, 2)}
    registry.put(topic_broker_path("new", 1), b"2")
    # A key is an index into the sorted pairs.
    assert chosen(brokers, "new", *range(6)) == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (1, 0)]


def test_an_assumed_partition_is_given_up_with_its_broker(registry, brokers) -> None:
    assert chosen(brokers, "new", 0, 1) == [(1, 0), (2, 0)]  # assumed on both
    registry.put(topic_broker_path("new", 1), b"1")
    assert chosen(brokers, "new", 0, 1) == [(1, 0), (2, 0)]
    registry.delete(broker_id_path(2))
    assert chosen(brokers, "new", 0, 1) == [(1, 0), (1, 0)]
    assert chosen(brokers, "late", 0, 1) == [(1, 0), (1, 0)]  # assumed on 1 alone
    register(registry, 2, TWO)  # back, without the topic
    assert chosen(brokers, "new", 0, 1) == [(1, 0), (1, 0)]
    registry.delete(broker_id_path(2))
    assert chosen(brokers, "late", 0, 1) == [(1, 0), (1, 0)]


def test_a_dead_brokers_partitions_are_left_out(registry, brokers) -> None:
    register(registry, 1, ONE, t=2)
    register(registry, 2, TWO, t=2)
    assert chosen(brokers, "t", 0, 1, 2, 3) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    registry.delete(broker_id_path(1))
    assert chosen(brokers, "t", 0, 1, 2, 3) == [(2, 0), (2, 1), (2, 0), (2, 1)]


def test_a_broker_is_looked_for_before_its_watch_has_fired(registry, brokers) -> None:
    assert brokers.address_of(1) == ONE
    register(registry, 3, TWO)
    brokers._stale_brokers = False
    assert brokers.address_of(3) == TWO


AWAY = [
    pytest.param(InMemoryRegistry.suspend, 0, id="no session"),
    pytest.param(InMemoryRegistry.fail_next, 1, id="no answer"),
]


@pytest.mark.parametrize(("fail", "reads"), AWAY)
def test_while_nothing_can_be_read_the_copy_is_in_use_and_what_failed_is_the_last_choice(
    registry, fail: Callable[[InMemoryRegistry], None], reads: int
) -> None:
    """Each message tried ZooKeeper twice, 10 s each, under the producer's lock."""
    clock = ManualClock()
    register(registry, 1, ONE, t=2)
    register(registry, 2, TWO, t=1)
    brokers = ZooKeeperBrokers(registry, rng=random.Random(3), clock=clock)
    without_key = [None] * 50
    assert set(chosen(brokers, "t", *without_key)) == {(1, 0), (1, 1), (2, 0)}
    before = registry._zookeeper.operation_count
    fail(registry)
    brokers.refresh(ONE)
    assert set(chosen(brokers, "t", *without_key)) == {(2, 0)}
    assert chosen(brokers, "t", 0, 1, 2) == [(1, 0), (1, 1), (2, 0)], "a key stays where it is"
    assert brokers.address_of(1) == ONE
    brokers.refresh(TWO)
    assert set(chosen(brokers, "t", *without_key)) == {(1, 0), (1, 1), (2, 0)}, "both have failed"
    assert registry._zookeeper.operation_count == before + reads
    clock.advance(RETRY_MS)
    assert set(chosen(brokers, "t", *without_key)) == {(1, 0), (1, 1), (2, 0)}
    registry.resume()
    registry.delete(broker_id_path(1))
    assert set(chosen(brokers, "t", *without_key)) == {(2, 0)}


def test_without_a_copy_zookeeper_is_waited_for_once_in_a_while(registry, brokers) -> None:
    registry.suspend()
    for _ in range(3):
        with pytest.raises(BrokerUnavailable, match="ZooKeeper is unavailable"):
            brokers.choose("t", None)
    count = registry._zookeeper.operation_count
    with pytest.raises(BrokerUnavailable, match="ZooKeeper is unavailable"):
        brokers.choose("another", None)
    assert registry._zookeeper.operation_count == count
    registry.resume()
    assert brokers.choose("t", None).address in (ONE, TWO)


def test_without_a_live_broker_there_is_nothing_to_choose(registry) -> None:
    with pytest.raises(BrokerUnavailable, match="no live"):
        ZooKeeperBrokers(registry).choose("t", None)


def test_a_partitioner_out_of_range_is_refused(registry) -> None:
    register(registry, 1, ONE)
    with (
        Producer(registry=registry, partitioner=lambda _key, count: count) as producer,
        pytest.raises(InvalidPartition),
    ):
        producer.send("t", b"x", key="k")


@pytest.fixture
def half_dead(
    registry: InMemoryRegistry, gone: ScriptedBroker, server: ScriptedBroker
) -> InMemoryRegistry:
    register(registry, 1, gone.address)
    register(registry, 2, server.address)
    return registry


def test_an_unreachable_broker_is_chosen_anew_after_reading_the_registry_again(
    half_dead, server
) -> None:
    class AlwaysLowestFirst(random.Random):
        calls = 0

        def random(self) -> float:
            self.calls += 1
            return 0.0 if self.calls < 3 else 0.999

    with Producer(registry=half_dead, rng=AlwaysLowestFirst(), connect_timeout_ms=20) as producer:
        producer.send("t", b"x")
        producer.flush()
    assert sent(server) == [b"x"]


def test_parts_for_a_healthy_broker_are_sent_although_another_is_gone(half_dead, server) -> None:
    with Producer(registry=half_dead, connect_timeout_ms=20) as producer:
        with pytest.raises(BrokerUnreachable):
            producer.send_parts([Part("t", [b"x"], 0), Part("t", [b"y"], 1)])
        producer.flush()
    assert sent(server) == [b"y"]


def test_a_list_goes_on_at_another_broker_where_the_first_one_left_off(
    registry, server, monkeypatch
) -> None:
    register(registry, 2, server.address)
    fails = iter([False, True])
    real_send = BrokerConnection.send

    def send(*given: Any, **tail: bytes) -> None:
        if next(fails, False):
            raise BrokerUnreachable("a test says so")
        real_send(*given, **tail)

    monkeypatch.setattr(BrokerConnection, "send", send)
    messages = [one * 400 for one in numbered(50)]
    with Producer(registry=registry, request_bytes_max=5000) as producer:
        producer.send("t", messages)
        producer.flush()
    assert sent(server) == messages
