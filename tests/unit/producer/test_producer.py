import itertools
import random
from typing import Any

import pytest

from kafka2011.coordination import paths
from kafka2011.producer import (
    BrokerUnavailable,
    BrokerUnreachable,
    InvalidPartition,
    NotDurable,
    Part,
    Producer,
    ProducerClosed,
    ProducerConfig,
)
from kafka2011.protocol.errors import IllegalTopicName, MessageSizeTooLarge
from kafka2011.protocol.message_set import encode, payloads
from kafka2011.protocol.requests import OffsetsRequest, ProduceRequest
from kafka2011.runtime.config import ConfigError, settings_of
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


def new_producer(server: ScriptedBroker, **settings: Any) -> Producer:
    return Producer(**{"broker_list": server.broker_list, "connect_timeout_ms": 300, **settings})


def sent_payloads(server: ScriptedBroker) -> list[bytes]:
    return [p for part in server.parts() for p in payloads(bytes(part.message_set))]


# --- flush -----------------------------------------------------------------------------------


def test_flush_asks_for_the_latest_offset_behind_the_sends(server: ScriptedBroker) -> None:
    with new_producer(server) as producer:
        producer.send("test", b"one")
        producer.flush()
        requests = server.requests()
    assert isinstance(requests[0], ProduceRequest)
    assert requests[1] == OffsetsRequest("test", 0, -1, 1)


def test_flush_with_nothing_sent_asks_nothing(server: ScriptedBroker) -> None:
    with new_producer(server) as producer:
        producer.flush()
        producer.send("test", b"one")
        producer.flush()
        producer.flush()
    assert server.barrier_count() == 1


def test_flush_is_a_barrier_on_every_connection() -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        brokers = f"1:127.0.0.1:{one.address[1]},2:127.0.0.1:{two.address[1]}"
        with Producer(broker_list=brokers) as producer:
            producer.send_set("a", encode([b"x"]), broker_id=1)
            producer.send_set("b", encode([b"y"]), broker_id=2)
            producer.flush()
            assert one.barrier_count() == two.barrier_count() == 1


def test_a_connection_that_closes_before_the_answer_is_not_durable(
    server: ScriptedBroker,
) -> None:
    server.close_at_barrier = 1
    with new_producer(server) as producer:
        producer.send("a", [b"x", b"y"])
        producer.send("b", b"z")
        producer.send("a", b"w")
        with pytest.raises(NotDurable) as caught:
            producer.flush()
        lost = {(u.broker, u.topic): (u.sends, u.set_bytes) for u in caught.value.unconfirmed}
        name = f"127.0.0.1:{server.address[1]}"
        assert lost == {(name, "a"): (2, 33), (name, "b"): (1, 11)}
        assert caught.value.retriable
        assert name in str(caught.value)
        # The caller sends again on a new connection, and that is durable.
        producer.send("a", [b"x", b"y"])
        producer.flush()
        assert producer.stats.lost_sends == 3


def test_a_barrier_without_answer_times_out_and_gives_the_connection_up(
    server: ScriptedBroker,
) -> None:
    server.is_silent = True
    with new_producer(server) as producer:
        producer.send("a", b"x")
        with pytest.raises(NotDurable, match="before the deadline"):
            producer.flush(timeout_ms=50)
        server.is_silent = False
        producer.send("a", b"x")
        producer.flush()
        assert server.connection_count == 2


@pytest.mark.parametrize(
    "answer",
    [
        bytes.fromhex("00000000"),
        bytes.fromhex("7fffffff 0000"),
        bytes.fromhex("0000000e 0000 00000002 0000000000000000"),
        bytes.fromhex("0000000e 0000 00000001 0000000000000000 00"),
    ],
)
def test_nonsense_as_answer_is_not_durable(server: ScriptedBroker, answer: bytes) -> None:
    server.offsets_answer = answer
    with new_producer(server) as producer:
        producer.send("a", b"x")
        with pytest.raises(NotDurable):
            producer.flush(timeout_ms=2000)


def test_a_broker_that_went_away_between_send_and_flush_is_named(server: ScriptedBroker) -> None:
    with new_producer(server) as producer:
        producer.send("a", b"x")
        server.produce_frames(1)
        server.hang_up()
        with pytest.raises(NotDurable, match="1 sends of 11 bytes to a"):
            producer.flush()


def test_what_an_earlier_connection_left_unknown_is_still_told(server: ScriptedBroker) -> None:
    """A send that works again on a new connection must not hide the loss on the old one."""
    with new_producer(server) as producer:
        producer.send("a", b"x")
        server.produce_frames(1)
        server.hang_up()

        def send_until_noticed() -> bool:
            try:
                producer.send("a", b"y")
            except BrokerUnavailable:
                return True
            return server.connection_count == 2

        wait_until(send_until_noticed, "the producer to notice")
        producer.send("a", b"z")
        with pytest.raises(NotDurable):
            producer.flush()
        producer.flush()  # told once


def test_an_idle_connection_that_the_broker_closed_is_replaced_before_the_send(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.producer.connection.IDLE_CHECK_NS", 0)
    with new_producer(server) as producer:
        producer.send("a", b"x")
        producer.flush()
        server.hang_up()
        producer.send("a", b"y")
        producer.flush()  # nothing was lost: the first was durable, the second went to the new one
        assert sent_payloads(server) == [b"x", b"y"]
        assert server.connection_count == 2


# --- planned reconnects ----------------------------------------------------------------------


def test_reconnect_interval_makes_a_barrier_before_it_closes(server: ScriptedBroker) -> None:
    with new_producer(server, reconnect_interval=3) as producer:
        for number in range(7):
            producer.send("a", b"%d" % number)
        producer.flush()
        assert producer.stats.reconnects == 2
    assert server.connection_count == 3
    kinds = ["barrier" if isinstance(r, OffsetsRequest) else "send" for r in server.requests()]
    assert kinds == ["send"] * 3 + ["barrier"] + ["send"] * 3 + ["barrier", "send", "barrier"]
    assert sent_payloads(server) == [b"%d" % number for number in range(7)]


def test_a_planned_reconnect_whose_barrier_fails_is_told_by_flush(server: ScriptedBroker) -> None:
    server.close_at_barrier = 1
    with new_producer(server, reconnect_interval=1) as producer:
        producer.send("a", b"x")
        with pytest.raises(NotDurable):
            producer.flush()


def test_reconnect_by_time(server: ScriptedBroker) -> None:
    with new_producer(server, reconnect_time_interval_ms=0) as producer:
        producer.send("a", b"x")
        producer.send("a", b"y")
    assert server.connection_count == 2
    with new_producer(server, reconnect_time_interval_ms=-1) as producer:
        producer.send("a", b"x")
        producer.send("a", b"y")
    assert server.connection_count == 3


def test_flush_uses_its_own_barrier_for_a_due_reconnect(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(10**15, 10**9)  # each look at the clock is a second later
    monkeypatch.setattr("kafka2011.producer.connection.time.monotonic_ns", lambda: next(clock))
    with new_producer(
        server, reconnect_time_interval_ms=20_000, rng=random.Random(0), connect_timeout_ms=60_000
    ) as producer:
        producer.send("a", b"x")
        for _ in range(30):
            producer.flush(10**9)
        assert producer.stats.reconnects == 1
        assert server.barrier_count() == 1


# --- refusals --------------------------------------------------------------------------------


def test_a_payload_above_the_limit_is_refused_and_counted(server: ScriptedBroker) -> None:
    with new_producer(server, max_message_bytes=10) as producer:
        producer.send("a", b"x" * 10)
        with pytest.raises(MessageSizeTooLarge, match="11 bytes"):
            producer.send("a", [b"x", b"x" * 11])
        assert producer.stats.refused_too_large == 1
        producer.flush()
    assert sent_payloads(server) == [b"x" * 10]


def test_a_compressed_set_is_measured_packed(server: ScriptedBroker) -> None:
    with new_producer(server, max_message_bytes=100, compression_codec="1") as producer:
        producer.send("a", bytes(1000))
        with pytest.raises(MessageSizeTooLarge):
            producer.send("a", random.Random(1).randbytes(200))


@pytest.mark.parametrize("topic", ["", "a/b", "..", "x" * 256])
def test_an_illegal_topic_is_refused_before_anything_is_sent(
    server: ScriptedBroker, topic: str
) -> None:
    with new_producer(server) as producer, pytest.raises(IllegalTopicName):
        producer.send(topic, b"x")
    assert server.connection_count == 0


def test_a_closed_producer_refuses(server: ScriptedBroker) -> None:
    producer = new_producer(server)
    producer.close()
    producer.close()
    with pytest.raises(ProducerClosed):
        producer.send("a", b"x")


def test_no_broker_at_the_address_is_told_after_the_connect_timeout() -> None:
    with ScriptedBroker() as gone:
        brokers = gone.broker_list
    with (
        Producer(broker_list=brokers, connect_timeout_ms=20) as producer,
        pytest.raises(BrokerUnreachable) as caught,
    ):
        producer.send("a", b"x")
    assert caught.value.retriable


def test_a_host_that_no_name_can_be_is_a_broker_that_is_not_there() -> None:
    with (
        Producer(broker_list="1:a..b:9092", connect_timeout_ms=20) as producer,
        pytest.raises(BrokerUnreachable, match="is not a host"),
    ):
        producer.send("a", b"x")


def test_close_delivers_or_says_what_it_could_not(server: ScriptedBroker) -> None:
    with new_producer(server) as producer:
        producer.send("a", b"x")
    assert server.barrier_count() == 1
    server.close_at_barrier = 1
    producer = new_producer(server)
    producer.send("a", b"x")
    with pytest.raises(NotDurable):
        producer.close()


def test_an_error_inside_the_block_is_not_hidden(server: ScriptedBroker) -> None:
    server.close_at_barrier = 1
    with pytest.raises(KeyError) as caught, new_producer(server) as producer:
        producer.send("a", b"x")
        raise KeyError("mine")
    assert "not known to be durable" in caught.value.__notes__[0]


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "exactly one"),
        ({"broker_list": "0:h:1", "zk_connect": "h:2"}, "not both"),
        ({"broker_list": "h:1"}, "id:host:port"),
        ({"broker_list": "0:h:1", "partitioner": "builtins:max"}, "partitioner.class"),
        ({"broker_list": "0:h:1", "compression_codec": "9"}, "gzip"),
        ({"broker_list": "0:h:1", "serializer": "no.such:thing"}, "imported"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Producer(**settings)


def test_host_and_port_name_the_one_broker(server: ScriptedBroker) -> None:
    with Producer(host="127.0.0.1", port=server.address[1]) as producer:
        producer.send("a", b"x")
    assert sent_payloads(server) == [b"x"]


def test_a_setting_without_effect_is_logged(
    server: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    new_producer(server, zk_sync_time_ms=1).close()
    assert "zk_sync_time_ms has no effect" in caplog.text


def test_an_unknown_setting_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        Producer(brokers="0:h:1")


def test_serializer_makes_payloads(server: ScriptedBroker) -> None:
    with new_producer(server, serializer="kafka.serializer.StringEncoder") as producer:
        producer.send("a", ["é", 7])
        producer.send_parts([Part("b", ["x"])])
        producer.flush()
    assert sent_payloads(server) == ["é".encode(), b"7", b"x"]


def test_address_map_says_where_to_dial(server: ScriptedBroker) -> None:
    mapped = {("published.example", 9092): server.address}
    with Producer(broker_list="0:published.example:9092", address_map=mapped) as producer:
        producer.send("a", b"x")
        producer.flush()
    assert sent_payloads(server) == [b"x"]


# --- through ZooKeeper -----------------------------------------------------------------------


def register(registry: InMemoryRegistry, broker_id: int, server: ScriptedBroker) -> None:
    registry.put(paths.broker_id_path(broker_id), paths.encode_broker(*server.address, 1))


def test_an_unknown_topic_goes_to_partition_0_of_every_broker_until_it_is_announced(
    registry: InMemoryRegistry,
) -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        register(registry, 1, one)
        register(registry, 2, two)
        with Producer(registry=registry, rng=random.Random(3)) as producer:
            for _ in range(20):
                producer.send("new", b"x")
            producer.flush()
            assert {part.partition for part in one.parts() + two.parts()} == {0}
            assert len(one.parts()) > 3
            assert len(two.parts()) > 3
            # One broker was quicker; the other has its share all the same.
            registry.put(paths.topic_broker_path("new", 2), b"5")
            before = len(one.parts()), len(two.parts())
            for _ in range(100):
                producer.send("new", b"x")
            producer.flush()
            ours, theirs = one.parts()[before[0] :], two.parts()[before[1] :]
            assert {part.partition for part in ours} == {0}
            assert {part.partition for part in theirs} == {0, 1, 2, 3, 4}
            registry.put(paths.topic_broker_path("new", 1), b"2")
            before = len(one.parts()), len(two.parts())
            for key in range(7):  # an index into the sorted pairs
                producer.send("new", b"x", key=key)
            producer.flush()
            assert [part.partition for part in one.parts()[before[0] :]] == [0, 1]
            assert [part.partition for part in two.parts()[before[1] :]] == [0, 1, 2, 3, 4]


def test_an_assumed_partition_is_given_up_with_its_broker(registry: InMemoryRegistry) -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        register(registry, 1, one)
        register(registry, 2, two)
        with Producer(registry=registry) as producer:
            producer.send("new", b"x", key=0)  # assumed on both, sent to 1
            registry.put(paths.topic_broker_path("new", 1), b"1")
            producer.send("new", b"x", key=1)  # 2 has not announced it, and gets it
            registry.delete(paths.broker_id_path(2))
            producer.send("new", b"x", key=1)
            register(registry, 2, two)  # back, without the topic
            producer.send("new", b"x", key=1)
            producer.flush()
        assert (len(one.parts()), len(two.parts())) == (3, 1)


def test_a_broker_whose_watch_has_not_come_yet_is_looked_for(registry: InMemoryRegistry) -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        register(registry, 1, one)
        with Producer(registry=registry) as producer:
            producer.send("a", b"x")
            producer._discovery._on_brokers = lambda _: None  # type: ignore[attr-defined]
            register(registry, 2, two)
            producer._discovery._stale_brokers = False  # type: ignore[attr-defined]
            producer.send_set("a", encode([b"y"]), broker_id=2, partition=0)
        assert sent_payloads(two) == [b"y"]


def test_a_dead_brokers_partitions_are_left_out(registry: InMemoryRegistry) -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        for broker_id, server in ((1, one), (2, two)):
            register(registry, broker_id, server)
            registry.put(paths.topic_broker_path("t", broker_id), b"2")
        with Producer(registry=registry) as producer:
            producer.send("t", b"x", key=0)
            registry.delete(paths.broker_id_path(1))
            for key in range(8):
                producer.send("t", b"y", key=key)
            producer.flush()
        assert sent_payloads(one) == [b"x"]
        assert len(two.parts()) == 8


def test_an_unreachable_broker_is_chosen_anew_after_reading_the_registry_again(
    registry: InMemoryRegistry, server: ScriptedBroker
) -> None:
    with ScriptedBroker() as gone:
        register(registry, 1, gone)
    register(registry, 2, server)

    class AlwaysLowestFirst(random.Random):
        calls = 0

        def random(self) -> float:
            self.calls += 1
            return 0.0 if self.calls < 3 else 0.999

    with Producer(registry=registry, rng=AlwaysLowestFirst(), connect_timeout_ms=20) as producer:
        producer.send("t", b"x")
        producer.flush()
    assert sent_payloads(server) == [b"x"]


def test_no_broker_at_all(registry: InMemoryRegistry) -> None:
    with Producer(registry=registry) as producer, pytest.raises(BrokerUnavailable, match="no live"):
        producer.send("t", b"x")


def test_a_partitioner_out_of_range_is_refused(
    registry: InMemoryRegistry, server: ScriptedBroker
) -> None:
    register(registry, 1, server)
    with (
        Producer(registry=registry, partitioner=lambda _key, count: count) as producer,
        pytest.raises(InvalidPartition),
    ):
        producer.send("t", b"x", key="k")


def test_parts_for_a_healthy_broker_are_sent_although_another_is_gone(
    registry: InMemoryRegistry, server: ScriptedBroker
) -> None:
    with ScriptedBroker() as gone:
        register(registry, 1, gone)
    register(registry, 2, server)
    with Producer(registry=registry, connect_timeout_ms=20) as producer:
        with pytest.raises(BrokerUnreachable):
            producer.send_parts([Part("t", [b"x"], 0), Part("t", [b"y"], 1)])
        producer.flush()
    assert sent_payloads(server) == [b"y"]


# --- requests above the limits -----------------------------------------------------------------


@pytest.mark.parametrize("codec", ["0", "1"])
def test_a_list_above_the_request_s_limits_goes_in_several_requests_to_one_place(
    server: ScriptedBroker, registry: InMemoryRegistry, codec: str
) -> None:
    register(registry, 2, server)
    messages = [b"%04d" % number * 100 for number in range(50)]
    with Producer(
        registry=registry,
        compression_codec=codec,
        request_bytes_max=5000,
        request_unpacked_bytes_max=5000,
    ) as producer:
        producer.send("t", messages)
        producer.send_parts([Part("t", messages[:10], 0), Part("t", messages[10:], 0)])
        producer.flush()
        assert producer.stats.messages == 100
    assert sent_payloads(server) == messages * 2
    assert all(len(frame) - 4 <= 5000 for frame in server.produce_frames(8))
    keyed = [part for part in server.parts() if part.partition == 0]
    assert sent_payloads(server)[-50:] == messages
    assert keyed


def test_many_parts_go_in_several_requests(server: ScriptedBroker) -> None:
    with new_producer(server, request_parts_max=3) as producer:
        producer.send_parts([Part(f"t{number}", [b"x"]) for number in range(7)])
        producer.flush()
    assert [part.topic for part in server.parts()] == [f"t{number}" for number in range(7)]
    assert len(server.produce_frames(3)) == 3


def test_a_list_goes_on_at_another_broker_where_the_first_one_left_off(
    server: ScriptedBroker, registry: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(registry, 2, server)
    fails = iter([False, True])

    def send(self: Any, frame: bytes, topic: str, size: int, more: Any = ()) -> None:
        if next(fails, False):
            raise BrokerUnreachable("a test says so")
        real_send(self, frame, topic, size, more)

    from kafka2011.producer.connection import BrokerConnection

    real_send = BrokerConnection.send
    monkeypatch.setattr(BrokerConnection, "send", send)
    messages = [b"%04d" % number * 100 for number in range(50)]
    with Producer(registry=registry, request_bytes_max=5000) as producer:
        producer.send("t", messages)
        producer.flush()
    assert sent_payloads(server) == messages


# Every setting of 0.7's producer (ProducerConfig, SyncProducerConfig, AsyncProducerConfig).
NAMES = """
zk.connect broker.list zk.sessiontimeout.ms zk.connectiontimeout.ms zk.synctime.ms producer.type
serializer.class partitioner.class compression.codec compressed.topics buffer.size
connect.timeout.ms socket.timeout.ms reconnect.interval reconnect.time.interval.ms max.message.size
queue.time queue.size queue.enqueueTimeout.ms batch.size num.retries zk.read.num.retries
callback.handler callback.handler.props event.handler event.handler.props host port
"""


def test_every_property_of_the_originals_producer_is_known_and_all_but_one_have_an_effect() -> None:
    settings = settings_of(ProducerConfig)
    assert set(NAMES.split()) <= set(settings)
    without = [name for name in NAMES.split() if not settings[name].metadata["has_effect"]]
    assert without == ["zk.synctime.ms"]
