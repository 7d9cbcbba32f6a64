"""Registration against the in-memory ZooKeeper: values, stale nodes, duplicates, new sessions."""

from collections.abc import Iterator

import pytest

from kafka2011.broker.registration import BrokerRegistration, DuplicateBrokerId
from kafka2011.coordination.cluster import BrokerAddress, live_brokers
from kafka2011.coordination.errors import CoordinationError
from tests.support.clock import ManualClock
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.waiting import wait_until

HERE = BrokerAddress("192.0.2.10", 9092)
ELSEWHERE = BrokerAddress("192.0.2.99", 9092)


@pytest.fixture
def zookeeper() -> InMemoryZooKeeper:
    return InMemoryZooKeeper()


@pytest.fixture
def registry(zookeeper: InMemoryZooKeeper) -> Iterator[InMemoryRegistry]:
    client = zookeeper.client()
    client.start()
    yield client
    client.close()


def registration(
    registry: InMemoryRegistry,
    address: BrokerAddress = HERE,
    *,
    answers: bool = False,
    stale_wait_s: float = 0.2,
) -> BrokerRegistration:
    return BrokerRegistration(
        registry,
        7,
        address,
        lambda topic: 5 if topic == "wide" else 2,
        clock=ManualClock(1315436360737),
        stale_wait_s=stale_wait_s,
        answers=lambda _: answers,
        pause=lambda _: None,
    )


def text(registry: InMemoryRegistry, path: str) -> bytes | None:
    stored = registry.get(path)
    return stored.value if stored is not None else None


def test_values_of_the_reference_s_example(registry: InMemoryRegistry) -> None:
    made = registration(registry)
    made.register(["clicks", "wide"])
    assert text(registry, "/brokers/ids/7") == b"192.0.2.10-1315436360737:192.0.2.10:9092"
    assert text(registry, "/brokers/topics/clicks/7") == b"2"
    assert text(registry, "/brokers/topics/wide/7") == b"5"
    assert text(registry, "/brokers/topics/clicks") is None
    assert made.is_registered
    made.close()


def test_new_topics_are_registered_soon_and_once(
    registry: InMemoryRegistry, zookeeper: InMemoryZooKeeper
) -> None:
    made = registration(registry)
    made.register([])
    for _ in range(100):
        made.topic_seen("new")
    wait_until(lambda: text(registry, "/brokers/topics/new/7") == b"2", "the topic's node")
    before = zookeeper.operation_count
    made.topic_seen("new")
    made.close()
    assert zookeeper.operation_count == before


def test_id_of_a_broker_that_answers_is_refused(
    registry: InMemoryRegistry, zookeeper: InMemoryZooKeeper
) -> None:
    first = registration(registry, ELSEWHERE)
    first.register([])
    other = zookeeper.client()
    other.start()
    second = registration(other, HERE, answers=True)
    with pytest.raises(DuplicateBrokerId, match=r"already registered by 192\.0\.2\.99:9092"):
        second.register([])
    assert live_brokers(registry) == {7: ELSEWHERE}
    second.close()
    first.close()
    other.close()


@pytest.mark.parametrize("address", [HERE, ELSEWHERE], ids=["same address", "another port"])
def test_stale_node_is_waited_for(zookeeper: InMemoryZooKeeper, address: BrokerAddress) -> None:
    dead = zookeeper.client()
    dead.start()
    registration(dead, address).register([])
    client = zookeeper.client()
    client.start()
    pauses = 0

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            dead.close()  # its session ends

    made = BrokerRegistration(
        client,
        7,
        HERE,
        lambda _: 1,
        clock=ManualClock(),
        stale_wait_s=20,
        answers=lambda _: False,
        pause=pause,
    )
    made.register([])
    assert pauses == 3
    assert live_brokers(client) == {7: HERE}
    made.close()
    client.close()


def test_a_node_that_never_goes_ends_the_waiting(
    registry: InMemoryRegistry, zookeeper: InMemoryZooKeeper
) -> None:
    registration(registry, HERE).register([])
    client = zookeeper.client()
    client.start()
    with pytest.raises(DuplicateBrokerId, match="still registered by"):
        registration(client, HERE).register([])
    client.close()


def test_garbage_in_the_node_is_waited_for_as_well(
    registry: InMemoryRegistry, zookeeper: InMemoryZooKeeper
) -> None:
    registry.create("/brokers/ids/7", b"\xff\xfe garbage", ephemeral=True)
    client = zookeeper.client()
    client.start()
    with pytest.raises(DuplicateBrokerId, match="still registered after"):
        registration(client, HERE).register([])
    client.close()


def test_new_session_registers_everything_again(registry: InMemoryRegistry) -> None:
    made = registration(registry)
    made.register(["clicks"])
    made.topic_seen("wide")
    wait_until(lambda: text(registry, "/brokers/topics/wide/7"), "the topic's node")
    registry.expire()
    wait_until(
        lambda: made.is_registered and text(registry, "/brokers/topics/wide/7") == b"5",
        "registered again",
    )
    assert live_brokers(registry) == {7: HERE}
    assert text(registry, "/brokers/topics/clicks/7") == b"2"
    made.close()


def test_a_registry_that_fails_is_asked_again(
    registry: InMemoryRegistry, zookeeper: InMemoryZooKeeper
) -> None:
    looker = zookeeper.client()
    looker.start()
    made = registration(registry)
    made.register([])
    registry.fail_next()
    made.topic_seen("later")
    wait_until(lambda: text(looker, "/brokers/topics/later/7") == b"2", "the topic's node")
    made.close()
    looker.close()


def test_no_registry_at_the_start_is_the_caller_s_business(registry: InMemoryRegistry) -> None:
    registry.fail_next()
    with pytest.raises(CoordinationError):
        registration(registry).register([])
