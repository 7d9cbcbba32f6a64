"""When batches go, a full queue, and what happens to messages that could not be sent."""

import random
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka2011.producer import (
    BrokerUnavailable,
    NotDurable,
    Part,
    Producer,
    QueueFull,
    SenderFailed,
)
from kafka2011.producer.asynchronous.callbacks import Event, ProducerCallbacks
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.errors import IN_FLIGHT
from kafka2011.protocol.errors import LocalProtocolError
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import ANY_PARTITION
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import DEADLINE_S, wait_until
from tests.unit.producer.support import async_producer, numbered, sent


def test_nothing_goes_before_there_is_a_batch_and_flush_sends_the_rest(server) -> None:
    with async_producer(server, batch_size=10) as producer:
        for payload in numbered(9):
            producer.send("a", payload)
        assert server.connection_count == 0
        producer.flush()
        assert sent(server) == numbered(9)


@pytest.mark.parametrize("queue_time_ms", [0, 20])
def test_queue_time_sends_what_is_there(server, queue_time_ms) -> None:
    with async_producer(server, queue_time_ms=queue_time_ms, batch_size=1000) as producer:
        for count in (1, 2, 3):
            producer.send("a", b"x")
            server.produce_frames(count)


def test_order_is_kept_within_a_partition_over_many_batches(server) -> None:
    with async_producer(server, batch_size=7, enqueue_timeout_ms=-1, queue_size=50) as producer:
        for payload in numbered(2000):
            producer.send("a", payload)
        producer.flush()
        stats = producer.stats
    assert sent(server) == numbered(2000)
    # Ten bytes more than its payload for each message.
    assert stats.set_bytes == sum(len(payload) + 10 for payload in numbered(2000))
    assert 2000 / 7 <= stats.sends <= 2000


def test_several_threads_lose_nothing(server) -> None:
    with async_producer(server, batch_size=13, enqueue_timeout_ms=-1, queue_size=40) as producer:

        def send_as(name: bytes) -> None:
            for payload in numbered(500):
                producer.send("a", name + payload)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send_as, [b"a", b"b", b"c", b"d"]))
        producer.flush()
        assert producer.stats.messages == 2000
    found = sent(server)
    assert len(found) == 2000
    for name in (b"a", b"b", b"c", b"d"):
        assert [one[1:] for one in found if one.startswith(name)] == numbered(500)


class Held(ProducerCallbacks):
    """Holds the sender's thread until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.holds = threading.Event()

    def after_dequeuing(self, events: Sequence[Event]) -> Sequence[Event]:
        self.holds.set()
        self.go.wait(DEADLINE_S)
        return events


def held_producer(server: ScriptedBroker, **settings: Any) -> tuple[Producer, threading.Event]:
    """A producer whose queue has room for 3, while `taken` waits to be sent until the event."""
    held = Held()
    producer = async_producer(server, batch_size=1, queue_size=3, callbacks=held, **settings)
    producer.send("a", b"taken")
    held.holds.wait(DEADLINE_S)
    return producer, held.go


@pytest.mark.parametrize("timeout_ms", [0, 20])
def test_what_finds_no_room_at_once_or_within_the_timeout_is_dropped_and_counted(
    server, timeout_ms
) -> None:
    producer, go = held_producer(server, enqueue_timeout_ms=timeout_ms)
    for payload, dropped in ((numbered(5), 2), (b"5", 3)):  # part of a list, then a message
        with pytest.raises(QueueFull) as caught:
            producer.send("a", payload)
        assert caught.value.retriable
        assert (producer.stats.messages, producer.stats.dropped) == (4, dropped)
    go.set()
    producer.close()
    assert sent(server) == [b"taken", b"0", b"1", b"2"]


def test_a_negative_timeout_waits_for_room(server) -> None:
    producer, go = held_producer(server, enqueue_timeout_ms=-1)
    producer.send("a", [b"1", b"2", b"3"])
    waiting = threading.Thread(target=producer.send, args=("a", b"4"))
    waiting.start()
    go.set()
    waiting.join(DEADLINE_S)
    producer.close()
    assert sent(server) == [b"taken", b"1", b"2", b"3", b"4"]
    assert producer.stats.dropped == 0


class Leaves(Held):
    """Ends the sender's thread: `sys.exit` in a hook."""

    def after_dequeuing(self, events: Sequence[Event]) -> Sequence[Event]:
        super().after_dequeuing(events)
        raise SystemExit("from a hook")


def test_a_sender_whose_thread_ends_names_all_it_had_and_refuses_more_with_the_cause(
    server,
) -> None:
    hook = Leaves()
    producer = async_producer(
        server, batch_size=1, queue_size=3, enqueue_timeout_ms=-1, callbacks=hook
    )
    producer.send("a", b"taken")
    hook.holds.wait(DEADLINE_S)
    producer.send("a", [b"1", b"2", b"3"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(producer.send, "a", b"finds no room")
        hook.go.set()
        assert isinstance(waiting.exception(DEADLINE_S), SenderFailed)
    with pytest.raises(NotDurable, match="SystemExit") as caught:
        producer.flush()
    assert sum(part.set_bytes for part in caught.value.unconfirmed) == len(b"taken123")
    assert producer.stats.failed == 4
    with pytest.raises(SenderFailed) as refused:
        producer.send("a", b"5")
    assert isinstance(refused.value.__cause__, SystemExit)
    producer.close()  # all was named before


def test_a_flush_that_waits_while_the_thread_ends_is_answered(server) -> None:
    hook = Leaves()
    producer = async_producer(server, batch_size=1, callbacks=hook)
    producer.send("a", b"taken")
    hook.holds.wait(DEADLINE_S)
    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(producer.flush, 3_600_000)
        hook.go.set()
        assert isinstance(flushing.exception(DEADLINE_S), NotDurable)


def test_flush_that_runs_out_of_time_says_what_is_still_queued(server) -> None:
    producer, go = held_producer(server)
    producer.send("a", [b"1", b"2", b"3"])
    with pytest.raises(NotDurable, match="before the deadline") as caught:
        producer.flush(timeout_ms=20)
    named = [(part.topic, part.sends) for part in caught.value.unconfirmed]
    assert named == [("a", 3), (IN_FLIGHT, 0)]  # `taken` is in the sender's hand
    assert "what is in flight to 127.0.0.1" in str(caught.value)
    go.set()
    producer.close()
    assert len(sent(server)) == 4


def test_messages_for_a_broker_that_is_away_are_counted_and_reported_by_flush(gone) -> None:
    producer = async_producer(gone, batch_size=2, connect_timeout_ms=10)
    producer.send_parts([Part("a", [b"1", b"2"]), Part("b", [b"3", b"4"])])
    with pytest.raises(NotDurable, match="cannot connect") as caught:
        producer.flush()
    assert {part.topic for part in caught.value.unconfirmed} == {"a", "b"}
    assert producer.stats.failed == 4
    producer.flush()  # reported once
    producer.send("a", b"5")
    with pytest.raises(NotDurable):
        producer.close()
    assert producer.stats.failed == 5


def test_num_retries_sends_the_same_bytes_again(server, monkeypatch) -> None:
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.RETRY_PAUSE_S", 0)
    fails = iter([True, True, False])
    real_send = BrokerConnection.send

    def send(connection: BrokerConnection, *given: Any) -> None:
        real_send(connection, *given)
        if next(fails, False):
            connection._break("a test says so")
            raise BrokerUnavailable("a test says so")

    monkeypatch.setattr(BrokerConnection, "send", send)
    with async_producer(server, batch_size=2, num_retries=2) as producer:
        producer.send("a", [b"1", b"2"])
        producer.flush()  # durable in the end: what the first attempts left unknown was sent again
        assert producer.stats.failed == 0
    first, second, third = server.produce_frames(3)
    assert first == second == third


class TwoBadConnections(ScriptedBroker):
    """Reads one request of its first connection and closes it; resets the second one in a send."""

    def serve(self, connection: socket.socket) -> None:
        number = self.connection_count
        if number == 1:
            self.hang_ups = 1
        elif number == 2:
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        super().serve(connection)


def test_what_an_ended_connection_left_unconfirmed_is_named_although_a_later_batch_arrives(
    monkeypatch,
) -> None:
    monkeypatch.setattr("kafka2011.producer.connection.IDLE_CHECK_NS", -1)
    long = bytes(900_000)  # more than the kernel takes of a send that the peer does not read
    with TwoBadConnections() as server:
        producer = async_producer(server, batch_size=1, num_retries=1)
        for payload in (b"gone", long):
            producer.send("a", payload)
            server.produce_frames(1)
            wait_until(lambda: server.connections[0].fileno() == -1, "the first connection's end")
        with pytest.raises(NotDurable) as caught:
            producer.flush()
        assert [(part.topic, part.sends) for part in caught.value.unconfirmed] == [("a", 1)]
        producer.close()  # named once
        assert server.log("a", ANY_PARTITION) == encode([long])


class Ticking:
    """Time in which each look at the clock takes 15 ms, so that 20 ms are over between two."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 0.015
        return self._now_s

    monotonic_ns = staticmethod(time.monotonic_ns)
    sleep = staticmethod(time.sleep)


def test_a_batch_that_comes_due_while_the_sender_decides_to_sleep_is_sent(
    server, monkeypatch
) -> None:
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.IDLE_WAIT_S", 3600)
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.time", Ticking())
    with async_producer(server, queue_time_ms=20, batch_size=1000) as producer:
        producer.send("a", b"x")
        server.produce_frames(1)


def test_a_batch_that_compresses_to_too_much_is_cut(server) -> None:
    noise = [random.Random(n).randbytes(400) for n in range(20)]
    with async_producer(
        server, max_message_bytes=1000, batch_size=20, compression_codec="1"
    ) as producer:
        producer.send("a", noise)
    assert sent(server) == noise
    assert all(len(part.message_set) <= 1010 for part in server.parts())


def test_what_is_no_bytes_is_refused_at_once_and_harms_no_other_message(server) -> None:
    with async_producer(server) as producer:
        producer.send("a", b"1")
        for bad in ("text", 5, None, ["text"], [b"not sent", "text"]):
            with pytest.raises(TypeError, match="must be bytes"):
                producer.send("a", bad)
        with pytest.raises(TypeError, match="must be bytes"):
            producer.send_parts([Part("a", ["text"])])
        producer.send("a", b"2")
    assert sent(server) == [b"1", b"2"]


def test_something_like_bytes_is_copied_when_it_is_sent(server) -> None:
    class Mutable(ProducerCallbacks):
        def before_enqueue(self, event: Event) -> Event:
            return event._replace(payload=bytearray(event.payload))

    for callbacks in (None, Mutable()):
        with async_producer(server, callbacks=callbacks) as producer:
            buffer = bytearray(b"before")
            producer.send("a", buffer)
            producer.send("a", [memoryview(buffer)])
            buffer[:] = b"after!"
    assert sent(server) == [b"before"] * 4


def test_encoded_sets_are_for_the_synchronous_kind(server) -> None:
    with async_producer(server) as producer, pytest.raises(LocalProtocolError):
        producer.send_set("a", encode([b"x"]))
