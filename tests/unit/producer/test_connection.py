"""Barriers, broken connections and planned reconnects of synchronous producers."""

import contextlib
import itertools
import random
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka2011.producer import (
    BrokerUnavailable,
    BrokerUnreachable,
    NotDurable,
    Producer,
)
from kafka2011.producer.connection import STREAM_GAP_NS, STREAM_SENDS, BrokerConnection
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import (
    LATEST,
    CopiesRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    encode_request,
)
from tests.support.scripted_server import TcpTarget
from tests.support.waiting import DEADLINE_S, wait_until
from tests.unit.producer.support import async_producer, numbered, sent, sync_producer

CONNECTION = "kafka2011.producer.connection"
LARGE = [b"x" * 900_000] * 20  # more than the kernel takes for a broker that reads nothing


def test_flush_asks_for_the_latest_offset_behind_the_sends(server) -> None:
    with sync_producer(server) as producer:
        producer.send("test", b"one")
        producer.flush()
        produce, barrier = server.requests()
    assert isinstance(produce, ProduceRequest)
    assert barrier == OffsetsRequest("test", 0, LATEST, 1)


@pytest.mark.parametrize(("acks", "replicas"), [(1, 1), (2, 3)])
def test_so_many_replicas_are_asked_for_behind_the_sends_and_once_before(
    server, acks: int, replicas: int
) -> None:
    server.replicas = replicas
    with sync_producer(server, required_acks=acks) as producer:
        producer.send("test", b"one")
        producer.flush()
        asked, produce, barrier = server.requests()
    assert asked == barrier == CopiesRequest(acks)
    assert isinstance(produce, ProduceRequest)


def test_without_acks_nothing_is_asked_and_a_failure_that_is_known_is_named(server) -> None:
    with sync_producer(server, required_acks=0) as producer:
        producer.send("test", b"one")
        producer.flush()
        assert len(server.produce_frames(1)) == len(server.requests()) == 1
        producer.send("test", b"two")
        server.hang_up()
        with pytest.raises(NotDurable):
            for _ in range(1000):
                with contextlib.suppress(BrokerUnavailable):
                    producer.send("test", b"x" * 100_000)
                producer.flush()


def test_a_broker_of_0_7_is_asked_for_the_barrier_instead_of_one_and_refused_for_more(
    server,
) -> None:
    server.replicas = 0
    with sync_producer(server, required_acks=1) as producer:
        producer.send("test", b"one")
        producer.flush()
        assert server.barrier_count() == 1
        assert server.connection_count == 2
    with (
        sync_producer(server, required_acks=2) as producer,
        pytest.raises(BrokerUnreachable, match="does not know it: use -1"),
    ):
        producer.send("test", b"two")
    server.replicas = 1
    with (
        sync_producer(server, required_acks=2) as producer,
        pytest.raises(BrokerUnreachable, match="=2 is more than it has replicas"),
    ):
        producer.send("test", b"three")
    assert sent(server) == [b"one"]


def test_an_async_producer_waits_for_as_many(server) -> None:
    with async_producer(server, required_acks=1) as producer:
        producer.send("test", b"one")
        producer.flush()
        assert [type(request) for request in server.requests()] == [
            *(CopiesRequest, MultiProduceRequest, CopiesRequest)
        ]


def test_flush_is_a_barrier_on_every_connection(server, other) -> None:
    brokers = f"1:127.0.0.1:{server.port},2:127.0.0.1:{other.port}"
    with Producer(broker_list=brokers) as producer:
        producer.send_set("a", encode([b"x"]), broker_id=1)
        producer.send_set("b", encode([b"y"]), broker_id=2)
        producer.flush()
        assert server.barrier_count() == other.barrier_count() == 1


def test_what_another_broker_has_confirmed_is_not_lost_with_the_one_that_hangs(
    server, other
) -> None:
    """Its answer came while the deadline was spent on the other's."""
    brokers = f"1:127.0.0.1:{server.port},2:127.0.0.1:{other.port}"
    with Producer(broker_list=brokers) as producer:
        producer.send_set("a", encode([b"x"]), broker_id=1)
        producer.send_set("b", encode([b"y"]), broker_id=2)
        producer.flush()  # connected to both
        server.is_silent = True
        producer.send_set("a", encode([b"x"]), broker_id=1)
        producer.send_set("b", encode([b"y"]), broker_id=2)
        with pytest.raises(NotDurable) as raised:
            producer.flush(timeout_ms=1000)
        assert [part.topic for part in raised.value.unconfirmed] == ["a"]


def test_a_barrier_without_answer_times_out_and_closes_the_connection(server) -> None:
    server.is_silent = True
    with sync_producer(server) as producer:
        producer.send("a", b"x")
        with pytest.raises(NotDurable, match="before the deadline"):
            producer.flush(timeout_ms=50)
        server.is_silent = False
        producer.send("a", b"x")
        producer.flush()
        assert server.connection_count == 2


@pytest.fixture
def reads_nothing() -> Iterator[TcpTarget]:
    with TcpTarget(reads=False) as target:
        yield target


def producer_of(target: TcpTarget) -> Producer:
    """One that waits for a minute for a broker that takes nothing."""
    broker = f"0:127.0.0.1:{target.port}"
    return Producer(broker_list=broker, send_buffer_bytes=4096, socket_timeout_ms=60_000)


def is_writing(producer: Producer) -> bool:
    """Whether a thread is in the middle of a frame."""
    return any(connection._is_writing for connection in producer._connections._made.values())


def test_a_flush_waits_no_longer_for_the_send_of_another_thread(reads_nothing) -> None:
    producer = producer_of(reads_nothing)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producer.send, "a", LARGE)
        wait_until(lambda: is_writing(producer), "a frame is being written")
        with pytest.raises(NotDurable, match="in flight to each broker"):
            producer.flush(timeout_ms=20)
        assert not sending.done()
        reads_nothing.close()
        assert isinstance(sending.exception(DEADLINE_S), BrokerUnavailable)
    with pytest.raises(NotDurable, match=r"to a on 127.0.0.1"):
        producer.close()


def test_a_barrier_waits_no_longer_for_a_broker_that_takes_nothing(reads_nothing) -> None:
    with producer_of(reads_nothing) as producer:
        producer.send("a", b"x")
        (connection,) = producer._connections._made.values()
        poller = select.poll()
        poller.register(connection._socket, select.POLLOUT)
        while poller.poll(500):  # an acknowledgement, which makes room, comes up to 200 ms late
            connection._socket.send(b"x" * 1000, socket.MSG_DONTWAIT)
        with pytest.raises(NotDurable, match="the broker took nothing before the deadline"):
            producer.flush(timeout_ms=20)


@pytest.mark.parametrize("handler", ["sends", "flushes", "raises"])
def test_a_signal_within_a_send_leaves_no_part_of_a_frame_in_front_of_another(
    reads_nothing, handler
) -> None:
    producer = producer_of(reads_nothing)

    def on_signal(*_: object) -> None:
        if handler == "raises":
            raise KeyboardInterrupt
        producer.send("a", b"within") if handler == "sends" else producer.flush()

    before = signal.signal(signal.SIGUSR1, on_signal)
    interrupting = threading.Thread(target=interrupt, args=(producer,))
    interrupting.start()
    try:
        with pytest.raises((RuntimeError, KeyboardInterrupt)):
            producer.send("a", LARGE)
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(NotDurable, match="a send was interrupted by"):
        producer.flush()
    producer.send("a", b"later")
    wait_until(lambda: reads_nothing.connection_count == 2, "it has connected again")
    reads_nothing.close()
    with pytest.raises(NotDurable):
        producer.close()


@pytest.mark.parametrize("handler", ["sends", "flushes", "raises"])
def test_a_signal_within_a_flush_has_no_answer_taken_for_a_later_barrier(
    server, handler: str
) -> None:
    producer = sync_producer(server)
    producer.send("a", b"first")

    def on_signal(*_: object) -> None:
        try:
            if handler == "raises":
                raise KeyboardInterrupt
            producer.send("a", b"within") if handler == "sends" else producer.flush()
        finally:
            server.lock.release()

    before = signal.signal(signal.SIGUSR1, on_signal)
    interrupting = threading.Thread(target=interrupt, args=(producer, is_reading))
    server.lock.acquire()  # it does not answer
    interrupting.start()
    try:
        with contextlib.suppress(KeyboardInterrupt, RuntimeError):
            producer.flush()
            assert handler == "sends"
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    if handler == "sends":
        assert isinstance(server.requests()[-1], OffsetsRequest)
    producer.send("a", b"last")
    if handler == "sends":
        producer.flush()
    else:
        with pytest.raises(NotDurable, match="was interrupted by"):
            producer.flush()
    assert isinstance(server.requests()[-1], OffsetsRequest)
    producer.close()


def is_reading(producer: Producer) -> bool:
    """Whether a thread awaits an answer."""
    return any(connection._is_reading for connection in producer._connections._made.values())


def interrupt(producer: Producer, is_at: Callable[[Producer], bool] = is_writing) -> None:
    """Send SIGUSR1 to the main thread, which is within a send of `producer`, or where `is_at`."""
    wait_until(lambda: is_at(producer), "a frame is being written, or an answer awaited")
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("00000000", "an answer of 0 bytes"),
        ("7fffffff 0000", "an answer of 2147483647 bytes"),
        ("0000000e 0000 00000002 0000000000000000", "offsets"),
        ("0000000e 0000 00000001 0000000000000000 00", "bytes behind the answer"),
    ],
)
def test_nonsense_as_answer_is_not_durable(server, answer, reason) -> None:
    server.offsets_answer = bytes.fromhex(answer)
    with sync_producer(server) as producer:
        producer.send("a", b"x")
        with pytest.raises(NotDurable, match=reason):
            producer.flush()


def test_a_connection_that_ends_between_send_and_flush_is_named(server) -> None:
    with sync_producer(server) as producer:
        producer.send("a", b"x")
        server.produce_frames(1)
        server.hang_up()
        with pytest.raises(NotDurable, match="1 send of 11 bytes to a"):
            producer.flush()


def test_a_new_connection_does_not_hide_the_loss_on_the_old_one(server) -> None:
    with sync_producer(server) as producer:
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
        producer.flush()  # reported once


def test_an_idle_connection_that_the_broker_closed_is_replaced_before_the_send(
    server, monkeypatch
) -> None:
    monkeypatch.setattr(f"{CONNECTION}.IDLE_CHECK_NS", 0)
    with sync_producer(server) as producer:
        producer.send("a", b"x")
        producer.flush()
        server.hang_up()
        producer.send("a", b"y")
        producer.flush()  # nothing was lost: the first was durable, the second went to the new one
        assert sent(server) == [b"x", b"y"]
        assert server.connection_count == 2


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1", "cannot connect"), ("a..b", "is not a host")]
)
def test_no_broker_at_the_address(gone, host, reason) -> None:
    with (
        Producer(broker_list=f"0:{host}:{gone.port}", connect_timeout_ms=20) as producer,
        pytest.raises(BrokerUnreachable, match=reason) as caught,
    ):
        producer.send("a", b"x")
    assert caught.value.retriable


def test_reconnect_interval_makes_a_barrier_before_it_closes(server) -> None:
    with sync_producer(server, reconnect_interval=3) as producer:
        for payload in numbered(7):
            producer.send("a", payload)
        producer.flush()
        assert producer.stats.reconnects == 2
    assert server.connection_count == 3
    barriers = [isinstance(request, OffsetsRequest) for request in server.requests()]
    assert barriers == [False] * 3 + [True] + [False] * 3 + [True, False, True]
    assert sent(server) == numbered(7)


def test_a_planned_reconnect_whose_barrier_fails_is_reported_by_flush(server) -> None:
    server.close_at_barrier = 1
    with sync_producer(server, reconnect_interval=1) as producer:
        producer.send("a", b"x")
        with pytest.raises(NotDurable):
            producer.flush()


@pytest.mark.parametrize(("interval_ms", "connections"), [(0, 2), (-1, 1)])
def test_reconnect_by_time(server, interval_ms, connections) -> None:
    with sync_producer(server, reconnect_time_interval_ms=interval_ms) as producer:
        producer.send("a", b"x")
        producer.send("a", b"y")
    assert server.connection_count == connections


def test_flush_uses_its_own_barrier_for_a_due_reconnect(server, monkeypatch) -> None:
    clock = itertools.count(10**15, 10**9)  # each look at the clock is a second later
    monkeypatch.setattr(f"{CONNECTION}.time.monotonic_ns", lambda: next(clock))
    with sync_producer(
        server, reconnect_time_interval_ms=20_000, rng=random.Random(0), connect_timeout_ms=60_000
    ) as producer:
        producer.send("a", b"x")
        for _ in range(30):
            producer.flush(10**9)
        assert producer.stats.reconnects == 1
        assert server.barrier_count() == 1


def test_the_kernel_gathers_small_sends_in_a_stream_and_nowhere_else(server, monkeypatch) -> None:
    now_ns, gap_ns = 10**15, STREAM_GAP_NS // 2

    def clock() -> int:
        nonlocal now_ns
        now_ns += gap_ns
        return now_ns

    monkeypatch.setattr(f"{CONNECTION}.time.monotonic_ns", clock)
    connection = BrokerConnection(server.address, connect_timeout_ms=60_000)
    frame = encode_request(ProduceRequest("a", 0, encode([b"x"])))

    def sends_at_once_after(count: int) -> bool:
        for _ in range(count):
            connection.send(frame, "a", 11)
        return bool(connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    assert sends_at_once_after(1)
    assert not sends_at_once_after(2 * STREAM_SENDS)
    gap_ns = 2 * STREAM_GAP_NS
    assert sends_at_once_after(2 * STREAM_SENDS)
    gap_ns = STREAM_GAP_NS // 2
    assert not sends_at_once_after(2 * STREAM_SENDS)
    connection.request_barrier()  # sends what was gathered
    assert sends_at_once_after(0)
    assert connection.await_barrier(now_ns + 10**12)
    connection.disconnect()
