"""Both twins of the synchronous producer's single messages, against the same claims."""

import select
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka2011.producer import BrokerUnavailable, NotDurable, ProducerClosed, _single_sends_pure
from kafka2011.producer import connection as producer_connection
from kafka2011.producer import producer as producer_module
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import ANY_PARTITION, ProduceRequest, encode_request
from tests.support.scripted_server import TcpTarget
from tests.support.waiting import wait_until
from tests.unit.producer.support import numbered, sent, sync_producer

try:
    from kafka2011.producer import _single_sends_compiled
except ImportError:
    TWINS = [_single_sends_pure]
else:
    TWINS = [_single_sends_pure, _single_sends_compiled]


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rpartition("_")[2])
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def single_sends(twin: Any, connection: BrokerConnection, topic: str = "a") -> Any:
    return twin.SingleSends(connection, threading.RLock(), topic.encode(), lambda _: None)


def frame(topic: str, payload: bytes) -> bytes:
    return encode_request(ProduceRequest(topic, ANY_PARTITION, encode([payload])))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Accepts what a test accepts."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def test_the_frames_are_those_of_a_list_of_one(twin: Any) -> None:
    payloads = [bytes(size) for size in (200, 0, 1, 16_384, 16_385, 70_000)] + numbered(200)
    with TcpTarget() as target:
        connection = BrokerConnection(target.address)
        lanes = [(topic, single_sends(twin, connection, topic)) for topic in ("a", "topic-2")]
        expected = b""
        for topic, lane in [*lanes, lanes[0]]:
            for payload in payloads:
                lane.put_one(topic, ANY_PARTITION, payload, None)
                expected += frame(topic, payload)
        wait_until(lambda: len(target.everything) >= len(expected), "everything to arrive")
        assert target.everything == expected
        assert [lane.sends for _, lane in lanes] == [2 * len(payloads), len(payloads)]
        assert lanes[1][1].set_bytes == sum(10 + len(payload) for payload in payloads)
        connection.disconnect()
        assert [(part.topic, part.sends) for part in connection.take_lost()] == [
            ("a", 2 * len(payloads)),
            ("topic-2", len(payloads)),
        ]


def test_a_frame_that_the_kernel_has_no_room_for_arrives_whole(
    twin: Any, listener: socket.socket
) -> None:
    connection = BrokerConnection(listener.getsockname())
    lane = single_sends(twin, connection)
    frames = [frame("a", b"%05d" % number + bytes(1000)) for number in range(20_000)]
    expected = b"".join(frames)

    def send() -> None:
        for number in range(len(frames)):
            lane.put_one("a", ANY_PARTITION, b"%05d" % number + bytes(1000), None)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        with listener.accept()[0] as peer:
            wait_until(lambda: connection.is_connected, "the connection")
            sock = connection._socket
            wait_until(lambda: not select.select([], [sock], [], 0)[1], "the buffers to be full")
            received = bytearray()
            while len(received) < len(expected):
                received += peer.recv(1 << 20)
            sending.result(60)
    assert received == expected
    connection.disconnect()


def test_a_peer_that_takes_nothing_times_out_and_all_is_lost(twin: Any) -> None:
    with TcpTarget(reads=False) as target:
        connection = BrokerConnection(target.address, socket_timeout_ms=50)
        lane = single_sends(twin, connection)
        with pytest.raises(BrokerUnavailable, match="send failed: "):
            while True:
                lane.put_one("a", ANY_PARTITION, bytes(10_000), None)
        (lost,) = connection.take_lost()
        assert (lost.topic, lost.sends) == ("a", lane.sends + 1)
        assert lost.set_bytes == lane.set_bytes + 10_010


def test_a_reset_is_named(
    twin: Any, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After a pause of this process the look for a closed connection would find it first.
    monkeypatch.setattr(producer_connection, "IDLE_CHECK_NS", 2**62)
    connection = BrokerConnection(listener.getsockname())
    lane = single_sends(twin, connection)
    lane.put_one("a", ANY_PARTITION, b"x", None)
    lane.put_one("a", ANY_PARTITION, b"x", None)
    peer, _ = listener.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(BrokerUnavailable, match=r"send failed: Connection reset"):
        while True:
            lane.put_one("a", ANY_PARTITION, b"x", None)
    assert [part.sends for part in connection.take_lost()] == [lane.sends + 1]


def test_a_broker_that_takes_nothing_is_named(twin: Any, listener: socket.socket) -> None:
    connection = BrokerConnection(
        listener.getsockname(), socket_timeout_ms=100, send_buffer_bytes=4096
    )
    lane = single_sends(twin, connection)
    with pytest.raises(BrokerUnavailable, match="send failed: the broker took nothing for 100 ms"):
        while True:
            lane.put_one("a", ANY_PARTITION, bytes(16_384), None)


def test_threads_do_not_mix_their_frames(twin: Any) -> None:
    with TcpTarget() as target:
        connection = BrokerConnection(target.address, send_buffer_bytes=4096)
        lane = single_sends(twin, connection)

        def send(name: bytes) -> None:
            for _ in range(1000):
                lane.put_one("a", ANY_PARTITION, name * 500, None)

        with ThreadPoolExecutor(4) as pool:
            for sending in [pool.submit(send, name) for name in (b"a", b"b", b"c", b"d")]:
                sending.result(60)
        size = len(frame("a", bytes(500)))
        wait_until(lambda: len(target.everything) >= 4000 * size, "everything to arrive")
        data = target.everything
        frames = sorted(data[start : start + size] for start in range(0, len(data), size))
        names = (b"a", b"b", b"c", b"d")
        assert frames == sorted([frame("a", name * 500) for name in names] * 1000)
        assert lane.sends == 4000
        connection.disconnect()


def test_a_producer_names_all_that_a_silent_broker_did_not_confirm(server) -> None:
    server.is_silent = True
    with sync_producer(server) as producer:
        for payload in numbered(500):
            producer.send("a", payload)
        with pytest.raises(NotDurable) as caught:
            producer.flush(timeout_ms=50)
        stats = producer.stats
        assert (stats.sends, stats.messages) == (500, 500)
        (unconfirmed,) = caught.value.unconfirmed
        assert (unconfirmed.sends, unconfirmed.set_bytes) == (500, stats.set_bytes)
        server.is_silent = False


def test_a_single_message_after_close_is_refused(server) -> None:
    with sync_producer(server) as producer:
        for payload in numbered(3):
            producer.send("a", payload)
    with pytest.raises(ProducerClosed):
        producer.send("a", b"3")
    assert sent(server) == numbered(3)
    stats = producer.stats
    assert (stats.sends, stats.messages, stats.set_bytes) == (3, 3, 33)


def test_a_topic_has_one_short_way_whatever_is_sent_to_it(server, monkeypatch) -> None:
    made = []
    real = producer_module.SingleSends

    def counted(*given: Any) -> Any:
        made.append(given)
        return real(*given)

    monkeypatch.setattr(producer_module, "SingleSends", counted)
    with sync_producer(server) as producer:
        for _ in range(3):
            producer.send("a", [b"0", b"1"])
            producer.send("a", b"2")
        producer.flush()
        assert producer.stats.messages == 9
    assert len(made) == 1
    assert sent(server) == numbered(3) * 3
