"""Batches of a broker that has died."""

import threading

import pytest

from kafka2011.coordination import paths
from kafka2011.producer import NotDurable, Producer
from kafka2011.protocol.message_set import payloads
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.producer.support import async_producer, numbered, register, sent


@pytest.fixture
def broker_list(gone: ScriptedBroker, server: ScriptedBroker) -> str:
    """A broker whose address refuses connections, and `server`."""
    return f"7:127.0.0.1:{gone.port},8:127.0.0.1:{server.port}"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.RETRY_PAUSE_S", 0)


def test_a_batch_that_its_broker_does_not_take_goes_to_another(server, broker_list) -> None:
    with async_producer(
        server,
        broker_list=broker_list,
        num_retries=1,
        connect_timeout_ms=10,
        batch_size=7,
        enqueue_timeout_ms=-1,
    ) as producer:
        for payload in numbered(100):
            producer.send("a", payload)
        producer.flush()
        assert producer.stats.failed == 0
        assert 0 < producer.stats.rerouted < 100
        # Ten bytes more than its payload for each message, whichever broker took it.
        assert producer.stats.set_bytes == sum(len(payload) + 10 for payload in numbered(100))
    assert sorted(sent(server), key=int) == numbered(100)


def test_without_retries_a_dead_brokers_share_is_counted_and_named(server, broker_list) -> None:
    producer = async_producer(server, broker_list=broker_list, connect_timeout_ms=10)
    for payload in numbered(100):
        producer.send("a", payload)
    with pytest.raises(NotDurable, match="cannot connect"):
        producer.close()
    assert producer.stats.failed + len(sent(server)) == 100


def test_a_key_is_placed_anew_when_its_broker_left_the_registry(server, gone, registry) -> None:
    register(registry, 1, gone.address, a=2)
    register(registry, 2, server.address, a=2)
    with Producer(
        registry=registry,
        producer_type="async",
        queue_time_ms=60_000,
        connect_timeout_ms=10,
        num_retries=2,
    ) as producer:
        for key, payload in enumerate(numbered(4)):
            producer.send("a", payload, key)
        registry.delete(paths.broker_id_path(1))
        producer.flush()
    # By the default partitioner over what is left: keys 0 and 2 to 2-0, keys 1 and 3 to 2-1.
    placed = {(p.partition, one) for p in server.parts() for one in payloads(bytes(p.message_set))}
    assert placed >= {(0, b"0"), (1, b"1")}
    assert sorted(one for _, one in placed) == numbered(4)


def test_a_partitioner_that_fails_for_a_message_sent_again_does_not_end_the_sender(
    server, gone, registry
) -> None:
    calls = iter([0])

    def partitioner(_key: object, _count: int) -> int:
        return next(calls)  # StopIteration from the second call on

    register(registry, 1, gone.address, a=1)
    register(registry, 2, server.address, b=1)
    producer = Producer(
        registry=registry,
        producer_type="async",
        queue_time_ms=60_000,
        connect_timeout_ms=10,
        num_retries=1,
        partitioner=partitioner,
    )
    producer.send("a", b"1", "key")
    with pytest.raises(NotDurable, match="cannot connect"):
        producer.flush()
    assert producer.stats.failed == 1
    producer.send("b", b"2")
    producer.close()
    assert sent(server) == [b"2"]


def test_a_broker_whose_address_changes_costs_no_thread_for_each(server, gone, registry) -> None:
    register(registry, 1, server.address, a=1)
    with Producer(
        registry=registry, producer_type="async", batch_size=1, num_retries=0, connect_timeout_ms=10
    ) as producer:
        for number, payload in enumerate(numbered(10)):
            registry.delete(paths.broker_id_path(1))
            register(registry, 1, (f"127.0.0.{number + 1}", gone.port))
            producer.send("a", payload)
        registry.delete(paths.broker_id_path(1))
        register(registry, 1, server.address)
        producer.send("a", b"arrives")
        wait_until(lambda: len(senders()) <= 2, lambda: f"threads: {senders()}")
        with pytest.raises(NotDurable) as caught:
            producer.flush()
        assert sum(part.sends for part in caught.value.unconfirmed) == 10
        assert (producer.stats.messages, producer.stats.failed) == (11, 10)
        producer.flush()  # each loss is named once
    assert sent(server) == [b"arrives"]


def senders() -> list[str]:
    """The threads of producers' queues."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("send-")]
