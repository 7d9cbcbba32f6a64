"""The /metrics and /healthz server over a real socket."""

import errno
import itertools
import os
import socket
import socketserver
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from kafka2011.runtime.metrics import (
    ACCEPT_PAUSE_S,
    CONNECTIONS_MAX,
    Answer,
    MetricsServer,
    address_text,
    serve_metrics,
)
from kafka2011.runtime.process_config import ProcessConfig
from tests.support.commands import held_port
from tests.support.waiting import wait_until


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """Is asked for its health twice: it does not serve yet, then it does."""
    registry = CollectorRegistry()
    Counter("messages_in", "messages appended", registry=registry).inc(3)
    health = iter([False, True])
    routes = {"/status": lambda: (200, "application/json", b"{}")}
    with closing(MetricsServer(registry, lambda: next(health), routes=routes)) as running:
        yield running


def get(server: MetricsServer, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and page; with `body` of a POST."""
    url = f"http://127.0.0.1:{server.port}{path}"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/metrics?x=1", 200, b"messages_in_total 3.0"),  # the form of Prometheus
        ("/status", 200, b"{}"),  # an added route
        ("/nothing", 404, b""),
    ],
)
def test_each_page(server: MetricsServer, path: str, status: int, text: bytes) -> None:
    found, body = get(server, path)
    assert found == status
    assert text in body


def test_healthz_is_true_only_when_serving(server: MetricsServer) -> None:
    assert [get(server, "/healthz")[0] for _ in range(2)] == [503, 200]


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_a_process_has_the_server_of_its_settings(bind: str) -> None:
    config = ProcessConfig(metrics_bind=bind, metrics_port=0)
    server = serve_metrics(config, CollectorRegistry(), lambda: True)
    assert server is not None
    with closing(server):
        assert get(server, "/healthz")[0] == 200
        assert address_text(server) == f"{bind}:{server.port}"


def test_a_process_without_a_port_has_no_server() -> None:
    server = serve_metrics(ProcessConfig(), CollectorRegistry(), lambda: True)
    assert server is None
    assert address_text(server) == "none"


def test_a_page_that_cannot_be_made_is_answered_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connection was closed without a word, and nothing was logged."""

    def fails(*_: object) -> Answer:
        raise ZeroDivisionError("a bug")

    pages = {"/page": fails}
    with closing(
        MetricsServer(
            CollectorRegistry(),
            lambda: True,
            routes=pages,
            questions={"/asked": fails},
            actions={"/do": fails},
        )
    ) as server:
        said = (500, b"internal error: ZeroDivisionError\n")
        assert [get(server, path) for path in ("/page", "/asked?x=1")] == [said] * 2
        assert get(server, "/do", b"{}") == said
    assert sum("page_failed" in line for line in caplog.messages) == 3


def connected(stack: ExitStack, server: MetricsServer, sent: bytes) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    stack.enter_context(found)
    found.sendall(sent)
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"",  # idle
        b"GET /healthz HTTP/1.1\r\nX-Slow",  # it sends a byte now and then
        b"GET /nothing HTTP/1.1\r\n\r\n",  # answered, and kept for a next request
        b"POST /do HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_connections_that_ask_nothing_make_way_for_one_that_asks(sent: bytes) -> None:
    """They do not pile up either. All slots taken by slow clients was a process that is down."""
    registry = CollectorRegistry()
    actions = {"/do": lambda _body: (200, "text/plain", b"")}
    with (
        closing(MetricsServer(registry, lambda: True, actions=actions)) as server,
        ExitStack() as stack,
    ):
        connections = [connected(stack, server, sent) for _ in range(CONNECTIONS_MAX)]
        assert [get(server, "/healthz")[0] for _ in range(3)] == [200] * 3
        oldest, newest = connections[0], connections[-1]

        def is_closed() -> bool:
            try:
                return oldest.recv(4096) == b""
            except ConnectionResetError:
                return True

        wait_until(is_closed, "the longest silent connection to close")
        if sent.startswith(b"GET /healthz"):
            newest.sendall(b": 1\r\n\r\n")
            assert b"200 OK" in newest.recv(4096), "the others wait for a request"


@pytest.mark.parametrize(
    ("length", "status"), [(b"3", b"400"), (b"65537", b"413"), (b"9" * 5000, b"413"), (b"", b"413")]
)
def test_a_body_that_is_cut_or_too_large_is_no_request(length: bytes, status: bytes) -> None:
    actions = {"/do": lambda body: pytest.fail(f"called with {body!r}")}
    head = b"POST /do HTTP/1.1\r\nContent-Type: application/json\r\n"
    with (
        closing(MetricsServer(CollectorRegistry(), lambda: True, actions=actions)) as server,
        ExitStack() as stack,
    ):
        asking = connected(stack, server, head + b"Content-Length: " + length + b"\r\n\r\n{}")
        asking.shutdown(socket.SHUT_WR)
        assert asking.recv(4096).startswith(b"HTTP/1.1 " + status)


def test_connections_that_are_all_answered_leave_none_for_another() -> None:
    """Each costs a thread."""
    is_free = threading.Event()
    asked = itertools.count(1)
    all_asked = threading.Event()

    def page() -> Answer:
        if next(asked) == CONNECTIONS_MAX:
            all_asked.set()
        assert is_free.wait(60)
        return 200, "text/plain", b""

    registry = CollectorRegistry()
    with (
        closing(MetricsServer(registry, lambda: True, routes={"/page": page})) as server,
        ExitStack() as stack,
    ):
        stack.callback(is_free.set)
        request = b"GET /page HTTP/1.1\r\n\r\n"
        connections = [connected(stack, server, request) for _ in range(CONNECTIONS_MAX)]
        assert all_asked.wait(60), "not all requests were read"
        assert connected(stack, server, b"").recv(1) == b""
        is_free.set()
        assert all(b"200 OK" in each.recv(4096) for each in connections)


def test_a_head_request_is_answered_as_a_get_without_the_page(server: MetricsServer) -> None:
    with ExitStack() as stack:
        asking = connected(stack, server, b"HEAD /status HTTP/1.0\r\n\r\n")
        head, _, body = asking.makefile("rb").read().partition(b"\r\n\r\n")
    assert b" 200 OK" in head
    assert b"Content-Length: 2" in head
    assert body == b""


@pytest.mark.parametrize("bind", ["::1", "::"])
def test_it_listens_on_ipv6_as_the_other_ports_do(bind: str) -> None:
    with closing(MetricsServer(CollectorRegistry(), lambda: True, bind=bind)) as server:
        url = f"http://[::1]:{server.port}/healthz"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200


def test_the_published_address_can_be_dialled(server: MetricsServer) -> None:
    assert server.address == f"127.0.0.1:{server.port}"
    with closing(MetricsServer(CollectorRegistry(), lambda: True, bind="0.0.0.0")) as everywhere:
        assert everywhere.address == f"{socket.gethostname()}:{everywhere.port}"


def test_without_descriptors_it_pauses_between_attempts_and_then_goes_on(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tried 60,000 times a second, beside what the process has to do."""
    refusals = [errno.EMFILE, errno.ENFILE, errno.EMFILE]
    left = iter(refusals)
    pauses: list[float] = []
    real = socketserver.TCPServer.get_request

    def get_request(listening: socketserver.TCPServer) -> Any:
        if number := next(left, 0):
            raise OSError(number, os.strerror(number))
        return real(listening)

    class Ending(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return False

    get(server, "/status")  # it serves
    monkeypatch.setattr(socketserver.TCPServer, "get_request", get_request)
    monkeypatch.setattr(server._server, "_is_ending", Ending())
    assert get(server, "/status")[0] == 200
    assert pauses == [ACCEPT_PAUSE_S] * len(refusals)


def test_a_closed_server_has_let_its_port_go() -> None:
    port = held_port()
    for _ in range(3):
        server = MetricsServer(CollectorRegistry(), lambda: True, port=port)
        assert get(server, "/healthz")[0] == 200
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
