"""Each fault really does what it says: measured from outside, through real sockets."""

import contextlib
import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.protocol.message_set import encode, payloads
from kafka2011.protocol.requests import ProduceRequest, decode_request, encode_request
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.services.proxy.app import RouteCollector, change_from
from kafka2011.services.proxy.config import ProxyConfig, parse_routes
from kafka2011.services.proxy.proxy import Proxy, UnknownRoute
from tests.support.scripted_server import TcpTarget, receive_all, receive_exactly
from tests.support.waiting import wait_until


def proxy_to(*ports: int, **settings: Any) -> Proxy:
    targets = "|".join(f"127.0.0.1:{port}" for port in ports)
    routes = parse_routes(f"r=127.0.0.1:0>{targets}")
    return Proxy(ProxyConfig(routes=routes, **settings))


def connect(proxy: Proxy, timeout_s: float = 20) -> socket.socket:
    return socket.create_connection(proxy.address("r"), timeout=timeout_s)


def faults(proxy: Proxy, **change: Any) -> None:
    proxy.change("r", change)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that refuses connections and that nobody else takes meanwhile."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def echo() -> Iterator[TcpTarget]:
    with TcpTarget(echo=True) as target:
        yield target


def seconds_for_round_trip(connection: socket.socket, data: bytes) -> float:
    start_s = time.monotonic()
    connection.sendall(data)
    assert receive_exactly(connection, len(data)) == data
    return time.monotonic() - start_s


def test_bytes_pass_both_ways_and_each_end_ends_its_direction(echo: TcpTarget) -> None:
    data = random.Random(1).randbytes(4_000_000)
    with proxy_to(echo.port) as proxy, connect(proxy) as client:

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert receive_all(client) == data  # the echo ends only after our end reached it
        sender.join()
        wait_until(lambda: proxy.status()["r"]["connections"] == 0, "the connection is forgotten")
        status = proxy.status()["r"]
        assert status["to_server"]["bytes"] == status["to_client"]["bytes"] == len(data)


def test_server_that_speaks_first_and_ends_first() -> None:
    with (
        TcpTarget(greeting=b"hello", reads=False) as target,
        proxy_to(target.port) as proxy,
        connect(proxy) as client,
    ):
        assert receive_exactly(client, 5) == b"hello"
        target.connections[0].shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        client.sendall(b"still heard")
        wait_until(
            lambda: target.connections[0].recv(100, socket.MSG_PEEK) == b"still heard",
            "the other direction stays open",
        )


def test_target_that_does_not_read_stops_the_client_not_the_memory() -> None:
    with TcpTarget(reads=False) as target, proxy_to(target.port) as proxy, connect(proxy) as client:
        client.setblocking(False)
        piece = bytes(65536)
        idle_since_s = time.monotonic()
        sent = 0
        while time.monotonic() - idle_since_s < 0.5 and sent < 200_000_000:
            with contextlib.suppress(BlockingIOError):
                sent += client.send(piece)
                idle_since_s = time.monotonic()
        assert sent < 50_000_000, "the client was never stopped"
        assert proxy.status()["r"]["to_server"]["bytes"] < 20_000_000


def test_delay_is_added_each_way_and_gone_when_lifted(echo: TcpTarget) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        faults(proxy, delay_ms=100, jitter_ms=20)
        slow = [seconds_for_round_trip(client, b"slow") for _ in range(5)]
        assert min(slow) >= 0.16
        faults(proxy, clear=True)
        assert min(seconds_for_round_trip(client, b"fast") for _ in range(20)) < 0.16


def test_delay_keeps_order_and_lifting_it_releases_at_once(echo: TcpTarget) -> None:
    data = random.Random(2).randbytes(300_000)
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        faults(proxy, delay_ms=20, jitter_ms=20)
        for start in range(0, len(data), 10_000):
            client.sendall(data[start : start + 10_000])
        assert receive_exactly(client, len(data)) == data
        faults(proxy, delay_ms=600_000)
        client.sendall(b"late")
        wait_until(
            lambda: proxy.status()["r"]["to_server"]["bytes"] == len(data) + 4, "it is under way"
        )
        faults(proxy, delay_ms=0, jitter_ms=0)
        assert receive_exactly(client, 4) == b"late"


def test_rate_holds_over_all_connections(echo: TcpTarget) -> None:
    rate = 200_000
    with proxy_to(echo.port) as proxy, connect(proxy) as one, connect(proxy) as two:
        faults(proxy, rate_bytes_s=rate)
        start_s = time.monotonic()
        for client in (one, two):
            client.sendall(bytes(60_000))
        for client in (one, two):
            receive_exactly(client, 60_000)
        assert time.monotonic() - start_s >= 120_000 / rate * 0.95
        faults(proxy, rate_bytes_s=0)
        times_s = (seconds_for_round_trip(one, bytes(200_000)) for _ in range(20))
        assert min(times_s) < 200_000 / rate


def test_rate_reads_no_more_than_a_little_ahead() -> None:
    with TcpTarget() as target, proxy_to(target.port) as proxy, connect(proxy) as client:
        faults(proxy, rate_bytes_s=10_000)
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(bytes(65536))
        wait_until(lambda: len(target.everything) > 3000, "some arrives")
        assert proxy.status()["r"]["to_server"]["bytes"] < 1_000_000


def test_cut_resets_what_is_open_refuses_what_is_new_and_heals(echo: TcpTarget) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        seconds_for_round_trip(client, b"before")
        faults(proxy, cut=True)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        wait_until(lambda: "ConnectionResetError" in echo.ended, "the target sees the reset")
        faults(proxy, cut=False)
        with connect(proxy) as again:
            seconds_for_round_trip(again, b"after")


def test_hold_keeps_the_bytes_and_passes_them_on_when_lifted(echo: TcpTarget) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        seconds_for_round_trip(client, b"open")
        faults(proxy, hold="to_server")
        client.sendall(b"kept")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(4)
        assert echo.everything == b"open"
        faults(proxy, hold="none")
        client.settimeout(20)
        assert receive_exactly(client, 4) == b"kept"


def test_blackhole_of_one_direction_only(echo: TcpTarget) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        seconds_for_round_trip(client, b"open")
        faults(proxy, blackhole="to_client")
        client.sendall(b"heard")
        wait_until(lambda: echo.everything == b"openheard", "the other direction works")
        wait_until(
            lambda: proxy.status()["r"]["to_client"]["swallowed_bytes"] == 5, "it is swallowed"
        )
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(20)
        faults(proxy, blackhole="none")
        with pytest.raises(ConnectionResetError):  # a stream with a hole cannot go on
            client.recv(1)
        with connect(proxy) as again:
            seconds_for_round_trip(again, b"after")


def test_blackhole_swallows_the_news_that_the_client_left(echo: TcpTarget) -> None:
    with proxy_to(echo.port) as proxy:
        with connect(proxy) as client:
            seconds_for_round_trip(client, b"open")
            faults(proxy, blackhole="to_server")
        wait_until(lambda: proxy.status()["r"]["connections"] == 1, "half open")
        assert echo.ended == []
        faults(proxy, clear=True)
        wait_until(lambda: echo.ended == ["ConnectionResetError"], "the target hears of it then")


def test_flip_changes_exactly_one_byte(echo: TcpTarget) -> None:
    data = bytes(range(256)) * 1000
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        faults(proxy, flip={"direction": "to_client", "after_bytes": 100_000})
        client.sendall(data)
        seen = receive_exactly(client, len(data))
        assert echo.everything == data
        assert [at for at in range(len(data)) if seen[at] != data[at]] == [100_000]
        assert proxy.status()["r"]["to_client"]["flipped"] == 1
        assert seconds_for_round_trip(client, data) < 20


def test_cut_after_lets_exactly_so_many_bytes_pass() -> None:
    with TcpTarget() as target, proxy_to(target.port) as proxy, connect(proxy) as client:
        faults(proxy, cut_after={"direction": "to_server", "after_bytes": 70_001})
        with contextlib.suppress(OSError):
            client.sendall(bytes(200_000))
        wait_until(lambda: target.ended, "the target sees the end")
        assert len(target.everything) == 70_001
        with connect(proxy) as again:
            again.sendall(b"next")
            wait_until(lambda: target.everything.endswith(b"next"), "only one is cut")


def test_exactly_k_messages_are_dropped_on_the_way() -> None:
    with TcpTarget() as target, proxy_to(target.port) as proxy, connect(proxy) as client:
        client.sendall(encode_request(ProduceRequest("t", 0, encode([b"0"]))))
        faults(proxy, drop_messages={"topic": "t", "count": 25})
        for first in range(1, 101, 10):
            batch = [str(number).encode() for number in range(first, first + 10)]
            client.sendall(encode_request(ProduceRequest("t", 0, encode(batch))))
        client.sendall(encode_request(ProduceRequest("u", 0, encode([b"end"]))))
        wait_until(lambda: target.everything.endswith(b"end"), "everything else arrives")
        stream, arrived = target.everything, []
        while stream:
            size = int.from_bytes(stream[:4], "big")
            request = decode_request(stream[4 : 4 + size])
            assert isinstance(request, ProduceRequest)
            arrived += [int(one) for one in payloads(request.message_set) if request.topic == "t"]
            stream = stream[4 + size :]
        # The first was sent before the drill, but may have been read during it.
        assert len(arrived) == 101 - 25
        assert arrived[-75:] == list(range(26, 101))
        assert proxy.status()["r"]["dropped_messages"] == {"t": 25}


def test_connections_are_spread_and_a_dead_target_is_passed_over() -> None:
    with (
        reserved_port() as port,
        TcpTarget(echo=True, port=port) as one,
        TcpTarget(echo=True) as two,
        proxy_to(one.port, two.port) as proxy,
        contextlib.ExitStack() as clients,
    ):

        def visit(count: int) -> None:
            for _ in range(count):
                seconds_for_round_trip(clients.enter_context(connect(proxy)), b"x")

        visit(6)
        assert (len(one.received), len(two.received)) == (3, 3)
        one.close()
        visit(4)
        assert len(two.received) == 7
        down = proxy.status()["r"]["targets"][0]
        assert not down["up"]
        with TcpTarget(echo=True, port=port) as back:
            wait_until(lambda: proxy.status()["r"]["targets"][0]["up"], "it is found again")
            visit(4)
            # The proxy's own look at it sent nothing.
            assert [bytes(one) for one in back.received if one] == [b"x", b"x"]


def test_no_target_closes_the_client() -> None:
    with reserved_port() as port, proxy_to(port) as proxy:
        # The reset may come as early as the end of connect().
        with contextlib.suppress(ConnectionResetError), connect(proxy) as client:
            assert client.recv(1) == b""
        assert proxy.status()["r"]["unserved_total"] == 1


def test_stopping_ends_everything_and_frees_the_port(echo: TcpTarget) -> None:
    proxy = proxy_to(echo.port)
    with proxy, connect(proxy) as client:
        seconds_for_round_trip(client, b"open")
        address = proxy.address("r")
        proxy.stop()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    with socket.socket() as successor:
        successor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        successor.bind(address)


def test_taken_address_is_an_error_and_leaves_nothing(echo: TcpTarget) -> None:
    routes = parse_routes(f"a=127.0.0.1:0>127.0.0.1:{echo.port},b=127.0.0.1:{echo.port}>x:1")
    proxy = Proxy(ProxyConfig(routes=routes))
    with pytest.raises(OSError, match="in use"):
        proxy.start()


def test_faults_set_at_start_hold_from_the_first_byte(echo: TcpTarget) -> None:
    config = ProxyConfig(
        routes=parse_routes(f"r=127.0.0.1:0>127.0.0.1:{echo.port}"),
        faults=ProxyConfig(routes=()).faults.__class__(delay_ms=100),
    )
    with Proxy(config) as proxy, connect(proxy) as client:
        assert seconds_for_round_trip(client, b"x") >= 0.2


def test_unknown_route_and_bad_change_change_nothing(echo: TcpTarget) -> None:
    with proxy_to(echo.port) as proxy:
        with pytest.raises(UnknownRoute, match="there are: r"):
            proxy.change("x", {"cut": True})
        with pytest.raises(ValueError, match="unknown fault"):
            proxy.change(None, {"cut": True, "nonsense": 1})
        assert proxy.status()["r"]["faults"]["cut"] is False


def test_control_over_http(echo: TcpTarget) -> None:
    from prometheus_client import CollectorRegistry

    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        registry = CollectorRegistry()
        registry.register(RouteCollector(proxy))
        server = MetricsServer(
            registry, lambda: True, actions={"/faults": lambda body: change_from(proxy, body)}
        )
        web = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)

        def post(body: str, kind: str = "application/json") -> tuple[int, bytes]:
            web.request("POST", "/faults", body, {"Content-Type": kind})
            answer = web.getresponse()
            return answer.status, answer.read()

        try:
            status, body = post('{"route": "r", "faults": {"delay_ms": 50}}')
            assert status == 200
            assert json.loads(body)["routes"]["r"]["faults"]["delay_ms"] == 50
            assert seconds_for_round_trip(client, b"x") >= 0.1
            assert post('{"faults": {"nonsense": 1}}')[0] == 400
            assert post('{"delay_ms": 1}')[0] == 400
            assert post("[]")[0] == 400
            assert post("{}", "text/plain")[0] == 415
            assert post('{"reset": true}')[0] == 200
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            web.request("GET", "/metrics")
            page = web.getresponse().read().decode()
            assert 'kafka2011_proxy_bytes_total{direction="to_server",route="r"} 1.0' in page
        finally:
            web.close()
            server.close()
