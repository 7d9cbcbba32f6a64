"""Each fault really does what it says: measured from outside, through real sockets."""

import asyncio
import contextlib
import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kafka2011.protocol.message_set import encode, payloads
from kafka2011.protocol.requests import ProduceRequest, decode_request, encode_request
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.services.proxy.app import RouteCollector, change_from
from kafka2011.services.proxy.balancing import Target, TargetRing
from kafka2011.services.proxy.config import ProxyConfig, RouteConfig, parse_routes
from kafka2011.services.proxy.faults import Faults
from kafka2011.services.proxy.proxy import Proxy, UnknownRoute
from kafka2011.services.proxy.relay import Connection, Side
from kafka2011.services.proxy.route import CHECK_REQUEST, RESPONSE_HEAD_BYTES
from kafka2011.services.proxy.route import Route as RealRoute
from tests.support.commands import held_port
from tests.support.in_process_broker import in_process_broker
from tests.support.scripted_server import TcpTarget, receive_all, receive_exactly
from tests.support.waiting import DEADLINE_S, wait_until


class Route:
    """A running proxy with one route, and a client connected through it."""

    def __init__(self, *targets: Any, **settings: Any) -> None:
        self.target = targets[0]
        addresses = "|".join(f"127.0.0.1:{target.port}" for target in targets)
        routes = parse_routes(f"r=127.0.0.1:0>{addresses}")
        self.proxy = Proxy(ProxyConfig(routes=routes, **settings))

    def __enter__(self) -> "Route":
        self.proxy.start()
        self.client = self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.proxy.stop()

    @property
    def status(self) -> dict[str, Any]:
        return self.proxy.status()["r"]

    def connect(self) -> socket.socket:
        return socket.create_connection(self.proxy.address("r"), timeout=DEADLINE_S)

    def faults(self, **change: Any) -> None:
        self.proxy.change("r", change)

    def round_trip(self, data: bytes, connection: socket.socket | None = None) -> float:
        """Send through an echo; returns the seconds until all is back."""
        used = connection or self.client
        start_s = time.monotonic()
        used.sendall(data)
        assert receive_exactly(used, len(data)) == data
        return time.monotonic() - start_s

    def check_new_connection(self) -> None:
        with self.connect() as again:
            self.round_trip(b"after", again)

    def send(self, topic: str, *messages: bytes) -> None:
        self.client.sendall(encode_request(ProduceRequest(topic, 0, encode(messages))))

    def check_silence(self) -> None:
        """The client receives nothing."""
        self.client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            self.client.recv(4)
        self.client.settimeout(DEADLINE_S)


@pytest.fixture
def echo() -> Iterator[Route]:
    with TcpTarget(echo=True) as target, Route(target) as route:
        yield route


@pytest.fixture
def sink() -> Iterator[Route]:
    """The target reads and says nothing."""
    with TcpTarget() as target, Route(target) as route:
        yield route


def test_a_target_that_accepts_and_never_answers_gets_no_new_connections(tmp_path: Path) -> None:
    """As a process that was stopped by SIGSTOP: the kernel still accepts for it."""
    checks = {"check_interval_ms": 10, "check_timeout_ms": 100, "retry_min_ms": 10}

    def are_up() -> list[bool]:
        return [target["up"] for target in route.status["targets"]]

    with (
        in_process_broker(tmp_path) as broker,
        TcpTarget() as hanging,
        Route(broker, hanging, **checks) as route,
        route.connect() as kept,
    ):
        wait_until(lambda: are_up() == [True, False], "the broker alone is up")
        for _ in range(4):
            with route.connect() as client:
                client.sendall(CHECK_REQUEST)
                assert len(receive_exactly(client, RESPONSE_HEAD_BYTES)) == RESPONSE_HEAD_BYTES
        assert route.status["targets"][0]["failures_total"] == 0
        kept.settimeout(0.1)
        with pytest.raises(TimeoutError):  # still open
            kept.recv(1)
        hanging.goes_on()
        wait_until(lambda: are_up() == [True, True], "it answers again")


def test_bytes_pass_both_ways_and_each_end_ends_its_direction(echo) -> None:
    data = random.Random(1).randbytes(4_000_000)

    def send() -> None:
        echo.client.sendall(data)
        echo.client.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    assert receive_all(echo.client) == data  # the echo ends only after our end reached it
    sender.join()
    wait_until(lambda: echo.status["connections"] == 0, "the connection is forgotten")
    assert echo.status["to_server"]["bytes"] == echo.status["to_client"]["bytes"] == len(data)


def test_server_that_speaks_first_and_ends_first() -> None:
    with TcpTarget(greeting=b"hello", reads=False) as target, Route(target) as route:
        assert receive_exactly(route.client, 5) == b"hello"
        (server,) = target.connections
        server.shutdown(socket.SHUT_WR)
        assert route.client.recv(1) == b""
        route.client.sendall(b"still heard")
        wait_until(
            lambda: server.recv(100, socket.MSG_PEEK) == b"still heard",
            "the other direction stays open",
        )


def socket_buffers_bytes_max() -> int:
    """What the kernel lets the two ends of a TCP connection hold at most."""
    limits = (Path(f"/proc/sys/net/ipv4/tcp_{kind}mem").read_text().split()[2] for kind in "rw")
    return sum(map(int, limits))


def test_target_that_does_not_read_stops_the_client_not_the_memory() -> None:
    with TcpTarget(reads=False) as target, Route(target) as route:
        route.client.setblocking(False)
        piece = bytes(65536)
        stopped = threading.Event()
        most = 2 * socket_buffers_bytes_max() + 1_000_000  # two connections and the proxy itself
        sent = looks = 0
        while looks < 25 and sent <= most:
            looks += 1
            with contextlib.suppress(BlockingIOError):
                while sent <= most:
                    sent += route.client.send(piece)
                    looks = 0
            stopped.wait(0.02)
        assert sent <= most, "the client was never stopped"


def test_delay_set_at_start_is_added_each_way_and_gone_when_lifted() -> None:
    slow = Faults(delay_ms=100, jitter_ms=20)
    with TcpTarget(echo=True) as target, Route(target, faults=slow) as route:
        assert min(route.round_trip(b"slow") for _ in range(5)) >= 0.16
        route.faults(clear=True)
        wait_until(lambda: route.round_trip(b"fast") < 0.16, "one without the delay")


def test_delay_keeps_order_and_lifting_it_releases_at_once(echo) -> None:
    data = random.Random(2).randbytes(300_000)
    echo.faults(delay_ms=20, jitter_ms=20)
    for start in range(0, len(data), 10_000):
        echo.client.sendall(data[start : start + 10_000])
    assert receive_exactly(echo.client, len(data)) == data
    echo.faults(delay_ms=600_000)
    echo.client.sendall(b"late")
    wait_until(lambda: echo.status["to_server"]["bytes"] == len(data) + 4, "it is under way")
    echo.faults(delay_ms=0, jitter_ms=0)
    assert receive_exactly(echo.client, 4) == b"late"


def test_rate_holds_over_all_connections(echo) -> None:
    rate = 200_000
    with echo.connect() as other:
        echo.faults(rate_bytes_s=rate)
        start_s = time.monotonic()
        for client in (echo.client, other):
            client.sendall(bytes(60_000))
        for client in (echo.client, other):
            receive_exactly(client, 60_000)
        assert time.monotonic() - start_s >= 120_000 / rate * 0.95
    echo.faults(rate_bytes_s=0)
    wait_until(lambda: echo.round_trip(bytes(200_000)) < 200_000 / rate, "one without the rate")


def test_rate_reads_no_more_than_a_little_ahead(sink) -> None:
    sink.faults(rate_bytes_s=10_000)
    sink.client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sink.client.send(bytes(65536))
    wait_until(lambda: len(sink.target.everything) > 3000, "some arrives")
    assert sink.status["to_server"]["bytes"] < 1_000_000


def test_reset_of_a_socket_that_the_loop_has_closed_already_is_no_error(echo) -> None:
    """Between the close by uvloop and connection_lost; it was met once, in `Proxy.stop`."""

    async def run() -> None:
        side = Side(cast(Connection, None))
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, *echo.proxy.address("r")
        )
        side.transport = transport
        assert transport.get_extra_info("socket")  # the transport keeps it, as of connection_made
        transport.abort()
        await asyncio.sleep(0)
        side.reset()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_cut_resets_what_is_open_refuses_what_is_new_and_heals(echo) -> None:
    echo.round_trip(b"before")
    echo.faults(cut=True)
    with pytest.raises(ConnectionResetError):
        echo.client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        echo.connect()
    wait_until(lambda: "ConnectionResetError" in echo.target.ended, "the target sees the reset")
    echo.faults(cut=False)
    echo.check_new_connection()


def test_hold_keeps_the_bytes_and_passes_them_on_when_lifted(echo) -> None:
    echo.round_trip(b"open")
    echo.faults(hold="to_server")
    echo.client.sendall(b"kept")
    echo.check_silence()
    assert echo.target.everything == b"open"
    echo.faults(hold="none")
    assert receive_exactly(echo.client, 4) == b"kept"


def test_blackhole_of_one_direction_only(echo) -> None:
    echo.round_trip(b"open")
    echo.faults(blackhole="to_client")
    echo.client.sendall(b"heard")
    wait_until(lambda: echo.target.everything == b"openheard", "the other direction works")
    wait_until(lambda: echo.status["to_client"]["swallowed_bytes"] == 5, "it is swallowed")
    echo.check_silence()
    echo.faults(blackhole="none")
    with pytest.raises(ConnectionResetError):  # a stream with a hole cannot go on
        echo.client.recv(1)
    echo.check_new_connection()


def test_blackhole_swallows_the_news_that_the_client_left(echo) -> None:
    echo.round_trip(b"open")
    echo.faults(blackhole="to_server")
    echo.client.close()
    wait_until(lambda: echo.status["connections"] == 1, "half open")
    assert echo.target.ended == []
    echo.faults(clear=True)
    wait_until(lambda: echo.target.ended == ["ConnectionResetError"], "the target hears of it then")


def test_flip_changes_exactly_one_byte(echo) -> None:
    data = bytes(range(256)) * 1000
    echo.faults(flip={"direction": "to_client", "after_bytes": 100_000})
    echo.client.sendall(data)
    seen = receive_exactly(echo.client, len(data))
    assert echo.target.everything == data
    assert [at for at in range(len(data)) if seen[at] != data[at]] == [100_000]
    assert echo.status["to_client"]["flipped"] == 1
    echo.round_trip(data)


def test_cut_after_lets_exactly_so_many_bytes_pass(sink) -> None:
    sink.faults(cut_after={"direction": "to_server", "after_bytes": 70_001})
    with contextlib.suppress(OSError):
        sink.client.sendall(bytes(200_000))
    wait_until(lambda: sink.target.ended, "the target sees the end")
    assert len(sink.target.everything) == 70_001
    with sink.connect() as again:
        again.sendall(b"next")
        wait_until(lambda: sink.target.everything.endswith(b"next"), "only one is cut")


def test_exactly_k_messages_are_dropped_on_the_way(sink) -> None:
    sink.send("t", b"0")
    sink.faults(drop_messages={"topic": "t", "count": 25})
    for first in range(1, 101, 10):
        sink.send("t", *[b"%d" % number for number in range(first, first + 10)])
    sink.send("u", b"end")
    wait_until(lambda: sink.target.everything.endswith(b"end"), "everything else arrives")
    stream, arrived = sink.target.everything, []
    while stream:
        size = int.from_bytes(stream[:4], "big")
        request = decode_request(stream[4 : 4 + size])
        assert isinstance(request, ProduceRequest)
        arrived += [int(one) for one in payloads(request.message_set) if request.topic == "t"]
        stream = stream[4 + size :]
    # The first was sent before the drill, but may have been read during it.
    assert len(arrived) == 101 - 25
    assert arrived[-75:] == list(range(26, 101))
    assert sink.status["dropped_messages"] == {"t": 25}


def test_a_one_time_fault_is_there_again_when_it_is_asked_for_again_and_not_before(echo) -> None:
    once = {
        "flip": {"direction": "to_client", "after_bytes": 2},
        "cut_after": {"direction": "to_server", "after_bytes": 1000},
    }
    for turn in (1, 2):
        echo.faults(**once)
        echo.round_trip(b"ab")
        echo.faults(delay_ms=0)  # another fault: the countdown goes on
        left = [(one["flip_after_bytes"], one["cut_after_bytes"]) for one in directions_of(echo)]
        assert left == [(None, 998), (0, None)]
        echo.client.sendall(b"c")
        assert receive_exactly(echo.client, 1) == b"b"
        assert [one["flipped"] for one in directions_of(echo)] == [0, turn]
        assert echo.status["faults"]["flip"] is None
        assert echo.status["faults"]["cut_after"] == once["cut_after"]
        echo.faults(delay_ms=0)
        echo.round_trip(b"not flipped again")
    echo.faults(cut_after=None)
    assert echo.status["faults"]["cut_after"] is None
    for turn in (1, 2):
        with echo.connect() as cut:
            echo.round_trip(b"open", cut)
            echo.faults(cut_after={"direction": "to_server", "after_bytes": 0})
            cut.sendall(b"x")
            assert cut.recv(1) == b""
        assert directions_of(echo)[0]["cut"] == turn
        assert echo.status["faults"]["cut_after"] is None


def test_messages_are_dropped_again_when_it_is_asked_for_again_and_not_before(sink) -> None:
    wanted = {"topic": "t", "count": 2}

    def ask_again(turn: int) -> None:
        sink.faults(drop_messages=wanted)
        assert sink.status["drop_remaining"] == 2
        sink.send("t", b"first")
        wait_until(lambda: sink.status["drop_remaining"] == 1, "one is dropped")
        sink.faults(delay_ms=0)
        assert sink.status["faults"]["drop_messages"] == wanted
        assert sink.status["drop_remaining"] == 1
        sink.send("t", b"second", b"third")
        wait_until(lambda: sink.target.everything.count(b"third") == turn, "the third arrives")
        sink.faults(delay_ms=0)
        assert sink.status["faults"]["drop_messages"] is None
        assert sink.status["drop_remaining"] == 0
        assert sink.status["dropped_messages"] == {"t": 2 * turn}

    for turn in (1, 2, 3):
        ask_again(turn)
    assert b"first" not in sink.target.everything


def directions_of(route: Route) -> list[dict[str, Any]]:
    return [route.status["to_server"], route.status["to_client"]]


def test_connections_are_spread_and_a_dead_target_is_passed_over() -> None:
    with (
        TcpTarget(echo=True) as one,
        TcpTarget(echo=True) as two,
        Route(one, two) as route,
        contextlib.ExitStack() as clients,
    ):

        def visit(count: int) -> None:
            for _ in range(count):
                route.round_trip(b"x", clients.enter_context(route.connect()))

        visit(5)  # one connection is open already
        assert (len(one.received), len(two.received)) == (3, 3)
        one.close()
        visit(4)
        assert len(two.received) == 7
        assert not route.status["targets"][0]["up"]
        with TcpTarget(echo=True, port=one.port) as back:
            wait_until(lambda: route.status["targets"][0]["up"], "it is found again")
            visit(4)
            # The proxy's own look at it sent nothing.
            assert [bytes(one) for one in back.received if one] == [b"x", b"x"]


def check_reset(address: tuple[str, int]) -> None:
    """A new client is not kept waiting."""
    with (
        contextlib.suppress(ConnectionResetError),  # as early as the end of connect()
        socket.create_connection(address, timeout=DEADLINE_S) as client,
    ):
        assert client.recv(1) == b""


def test_no_target_closes_the_client() -> None:
    port = held_port()
    with Proxy(ProxyConfig(routes=parse_routes(f"r=127.0.0.1:0>127.0.0.1:{port}"))) as proxy:
        check_reset(proxy.address("r"))
        assert proxy.status()["r"]["unserved_total"] == 1


def test_clients_without_a_target_are_one_line_until_another_is_served() -> None:
    port = held_port()
    routes = parse_routes(f"r=127.0.0.1:0>127.0.0.1:{port}")

    def is_served() -> bool:
        with (
            contextlib.suppress(ConnectionResetError),
            socket.create_connection(proxy.address("r"), timeout=DEADLINE_S) as client,
        ):
            return client.recv(5) == b"hello"
        return False

    config = ProxyConfig(routes=routes, retry_min_ms=1, retry_max_ms=1)
    with capture_logs() as lines, Proxy(config) as proxy:
        for _ in range(3):
            check_reset(proxy.address("r"))
        assert [one["event"] for one in lines].count("no_target_answering") == 1
        with TcpTarget(greeting=b"hello", port=port):
            wait_until(is_served, "the target")
        for _ in range(3):
            check_reset(proxy.address("r"))
        assert [one["event"] for one in lines].count("no_target_answering") == 2


def with_a_host_that_is_none(*others: TcpTarget, **settings: Any) -> Proxy:
    """A route whose first target no request can be made of; parsed, it would have been refused."""
    targets = (("a..b", 1), *(("127.0.0.1", other.port) for other in others))
    route = RouteConfig("r", ("127.0.0.1", 0), targets)
    return Proxy(ProxyConfig(routes=(route,), **settings))


def test_a_target_whose_name_is_none_is_down_and_keeps_no_client_waiting() -> None:
    with with_a_host_that_is_none() as proxy:
        check_reset(proxy.address("r"))
        assert proxy.status()["r"]["unserved_total"] == 1
        assert proxy.status()["r"]["targets"][0]["up"] is False
    with TcpTarget(greeting=b"hello") as other, with_a_host_that_is_none(other) as proxy:
        for _ in range(2):
            with socket.create_connection(proxy.address("r"), timeout=DEADLINE_S) as client:
                assert receive_exactly(client, 5) == b"hello"
        assert [target["up"] for target in proxy.status()["r"]["targets"]] == [False, True]


def test_a_check_finds_that_the_name_of_a_target_is_none() -> None:
    with with_a_host_that_is_none(check_interval_ms=1, retry_min_ms=1, retry_max_ms=1) as proxy:

        def failures() -> int:
            target = proxy.status()["r"]["targets"][0]
            return 0 if target["up"] else target["failures_total"]

        wait_until(lambda: failures() > 2, "it is down, and tried again")


def test_a_bug_while_a_connection_is_made_resets_the_client_and_is_logged(
    echo: Route, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(ring: TargetRing) -> list[Target]:
        raise RuntimeError("a bug")

    echo.round_trip(b"open")
    with monkeypatch.context() as broken:
        broken.setattr(TargetRing, "candidates", fail)
        check_reset(echo.proxy.address("r"))
    assert echo.status["unserved_total"] == 1
    assert [line for line in caplog.messages if "connecting_failed" in line and "route=r" in line]
    echo.check_new_connection()


def test_a_bug_in_a_check_is_logged_and_the_checks_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = True

    async def serves(route: RealRoute, target: Target) -> bool:
        if is_broken:
            raise RuntimeError("a bug")
        return True

    monkeypatch.setattr(RealRoute, "_serves", serves)
    checks = {"check_interval_ms": 1, "retry_min_ms": 1, "retry_max_ms": 1}
    with TcpTarget() as target, Route(target, **checks) as route:
        wait_until(lambda: route.status["targets"][0]["failures_total"] > 2, "it begins again")
        assert [line for line in caplog.messages if "check_failed" in line and "route=r" in line]
        is_broken = False
        wait_until(lambda: route.status["targets"][0]["up"], "it is up again")


def test_stopping_ends_everything_and_frees_the_port(echo) -> None:
    echo.round_trip(b"open")
    address = echo.proxy.address("r")
    echo.proxy.stop()
    with contextlib.suppress(ConnectionResetError):
        assert echo.client.recv(1) == b""
    with socket.socket() as successor:
        successor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        successor.bind(address)


def test_taken_address_is_an_error_and_leaves_nothing(echo) -> None:
    port = echo.target.port
    routes = parse_routes(f"a=127.0.0.1:0>127.0.0.1:{port},b=127.0.0.1:{port}>x:1")
    with pytest.raises(OSError, match="in use"):
        Proxy(ProxyConfig(routes=routes)).start()


def test_unknown_route_and_bad_change_change_nothing(echo) -> None:
    with pytest.raises(UnknownRoute, match="there are: r"):
        echo.proxy.change("x", {"cut": True})
    with pytest.raises(ValueError, match="unknown fault"):
        echo.proxy.change(None, {"cut": True, "nonsense": 1})
    assert echo.status["faults"]["cut"] is False


def test_changes_at_the_same_time_are_all_made(echo) -> None:
    names = ["delay_ms", "jitter_ms", "rate_bytes_s"]
    together = threading.Barrier(len(names))

    def change(name: str) -> None:
        together.wait()
        echo.faults(**{name: 1})

    for _ in range(20):
        echo.faults(clear=True)
        threads = [threading.Thread(target=change, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [echo.status["faults"][name] for name in names] == [1, 1, 1]


def test_control_over_http(echo) -> None:
    registry = CollectorRegistry()
    registry.register(RouteCollector(echo.proxy))
    actions = {"/faults": lambda body: change_from(echo.proxy, body)}
    server = MetricsServer(registry, lambda: True, actions=actions)
    web = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)

    def post(body: str, kind: str = "application/json") -> tuple[int, bytes]:
        web.request("POST", "/faults", body, {"Content-Type": kind})
        answer = web.getresponse()
        return answer.status, answer.read()

    try:
        status, body = post('{"route": "r", "faults": {"delay_ms": 50}}')
        assert status == 200
        assert json.loads(body)["routes"]["r"]["faults"]["delay_ms"] == 50
        assert echo.round_trip(b"x") >= 0.1
        deep = "[" * 900 + "]" * 900
        for bad in (
            *('{"faults": {"nonsense": 1}}', '{"delay_ms": 1}', "[]", "{", '{"reset": 1}'),
            *(f'{{"reset": {deep}}}', "[" * 60_000, '{"faults":' * 6_000),
        ):
            status, body = post(bad)
            assert (status, list(json.loads(body))) == (400, ["error"])
        assert post("{}", "text/plain")[0] == 415
        assert post('{"reset": true}')[0] == 200
        with pytest.raises(ConnectionResetError):
            echo.client.recv(1)
        web.request("GET", "/metrics")
        page = web.getresponse().read().decode()
        assert 'kafka2011_proxy_bytes_total{direction="to_server",route="r"} 1.0' in page
    finally:
        web.close()
        server.close()
