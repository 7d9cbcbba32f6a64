"""Registration against the in-memory ZooKeeper: values, stale nodes, duplicates, new sessions."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka2011.broker.registration import BrokerRegistration, DuplicateBrokerId
from kafka2011.coordination.cluster import BrokerAddress, live_brokers
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import SessionEvent
from tests.support.clock import ManualClock
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.waiting import wait_until

HERE = BrokerAddress("192.0.2.10", 9092)
ELSEWHERE = BrokerAddress("192.0.2.99", 9092)
ID_NODE = "/brokers/ids/7"

Connect = Callable[[], InMemoryRegistry]


@pytest.fixture
def zookeeper() -> InMemoryZooKeeper:
    return InMemoryZooKeeper()


@pytest.fixture
def connect(zookeeper: InMemoryZooKeeper) -> Iterator[Connect]:
    """Makes sessions that are closed at the end."""
    made: list[InMemoryRegistry] = []

    def session() -> InMemoryRegistry:
        made.append(zookeeper.client())
        made[-1].start()
        return made[-1]

    yield session
    for client in made:
        client.close()


@pytest.fixture
def registry(connect: Connect) -> InMemoryRegistry:
    return connect()


def registration(
    registry: InMemoryRegistry, address: BrokerAddress = HERE, **options: Any
) -> BrokerRegistration:
    """Of broker 7, to which no other broker answers, without a pause."""
    usual = {"stale_wait_s": 0.2, "answers": lambda _: False, "pause": lambda _: None}
    usual["clock"] = ManualClock(1315436360737)
    return BrokerRegistration(
        registry, 7, address, lambda topic: 5 if topic == "wide" else 2, **{**usual, **options}
    )


def text(registry: InMemoryRegistry, path: str) -> bytes | None:
    stored = registry.get(path)
    return stored.value if stored is not None else None


def wait_for_topic(registry: InMemoryRegistry, topic: str, count: bytes) -> None:
    wait_until(lambda: text(registry, f"/brokers/topics/{topic}/7") == count, "the topic's node")


def test_values_are_those_that_0_7_writes(registry: InMemoryRegistry) -> None:
    made = registration(registry)
    made.register(["clicks", "wide"])
    assert text(registry, ID_NODE) == b"192.0.2.10-1315436360737:192.0.2.10:9092"
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
    wait_for_topic(registry, "new", b"2")
    before = zookeeper.operation_count
    made.topic_seen("new")
    made.close()
    assert zookeeper.operation_count == before


def test_id_of_a_broker_that_answers_is_refused(
    registry: InMemoryRegistry, connect: Connect
) -> None:
    registration(registry, ELSEWHERE).register([])
    second = registration(connect(), answers=lambda _: True)  # that waits 0 s
    with pytest.raises(DuplicateBrokerId, match=r"already registered by 192\.0\.2\.99:9092"):
        second.register([])
    assert live_brokers(registry) == {7: ELSEWHERE}
    second.close()


@pytest.mark.parametrize(
    ("address", "is_answered"),
    [(HERE, False), (ELSEWHERE, False), (ELSEWHERE, True)],
    ids=["same address", "another port", "another port that a foreign broker has by now"],
)
def test_stale_node_is_waited_for(
    connect: Connect, address: BrokerAddress, is_answered: bool
) -> None:
    dead, client = connect(), connect()
    registration(dead, address).register([])
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            dead.close()  # its session ends

    made = registration(client, stale_wait_s=20, pause=pause, answers=lambda _: is_answered)
    made.register([])
    assert len(pauses) == 3
    assert live_brokers(client) == {7: HERE}
    made.close()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"192.0.2.10-1315436360737:192.0.2.10:9092", "still registered by"),
        (b"\xff\xfe garbage", "still registered after"),
    ],
    ids=["a broker's", "garbage"],
)
def test_a_node_that_never_goes_ends_the_waiting(
    registry: InMemoryRegistry, connect: Connect, value: bytes, message: str
) -> None:
    registry.create(ID_NODE, value, ephemeral=True)
    with pytest.raises(DuplicateBrokerId, match=message):
        registration(connect()).register([])


def test_new_session_registers_everything_again(registry: InMemoryRegistry) -> None:
    made = registration(registry)
    made.register(["clicks"])
    made.topic_seen("wide")
    wait_for_topic(registry, "wide", b"5")
    registry.expire()
    wait_for_topic(registry, "wide", b"5")
    wait_until(lambda: made.is_registered, "registered again")
    assert live_brokers(registry) == {7: HERE}
    assert text(registry, "/brokers/topics/clicks/7") == b"2"
    made.close()


def test_a_notice_of_a_session_that_is_registered_in_already_changes_nothing(
    registry: InMemoryRegistry,
) -> None:
    """It can come late: the thread was in the middle of a topic, and has registered everything."""
    clock = ManualClock(1315436360737)
    made = registration(registry, clock=clock)
    made.register(["clicks"])
    clock.advance(1000)  # so the id's node would have another value now
    made._on_session(SessionEvent.RECREATED)
    made.topic_seen("later")
    wait_for_topic(registry, "later", b"2")
    assert text(registry, ID_NODE) == b"192.0.2.10-1315436360737:192.0.2.10:9092"
    wait_until(lambda: made.is_registered, "registered")
    made.close()


def test_a_session_that_ends_while_the_broker_registers_first_is_seen(
    registry: InMemoryRegistry,
) -> None:
    made = registration(registry)

    def partition_count(_topic: str) -> int:
        made._partition_count = lambda _: 2
        registry.expire()
        return 2

    made._partition_count = partition_count
    made.register(["clicks"])
    wait_until(lambda: live_brokers(registry) == {7: HERE}, "registered again")
    made.close()


def test_a_registry_that_fails_is_asked_again(registry: InMemoryRegistry, connect: Connect) -> None:
    made = registration(registry)
    made.register([])
    registry.fail_next()
    made.topic_seen("later")
    wait_for_topic(connect(), "later", b"2")
    made.close()


def test_a_bug_in_registering_again_is_no_end_of_it(
    registry: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.runtime.workers.RESTART_FIRST_S", 0.001)
    bugs: list[Exception] = []

    def partition_count(_topic: str) -> int:
        if bugs:
            raise bugs.pop()
        return 2

    made = registration(registry)
    made._partition_count = partition_count
    made.register(["clicks"])
    bugs.append(ZeroDivisionError())
    registry.expire()
    wait_until(lambda: not bugs and made.is_registered, "registered again")
    bugs.append(ZeroDivisionError())
    made.topic_seen("later")
    wait_for_topic(registry, "later", b"2")
    made.close()


def test_no_registry_at_the_start_is_the_caller_s_business(registry: InMemoryRegistry) -> None:
    registry.fail_next()
    with pytest.raises(CoordinationError):
        registration(registry).register([])
