"""The /metrics and /healthz server over a real socket."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry, Counter

from kafka2011.runtime.metrics import (
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


def test_idle_connections_do_not_pile_up_without_bound(server: MetricsServer) -> None:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(CONNECTIONS_MAX + 5)
        ]
        # Those above the limit are closed at once; the others wait for a request.
        for connection in connections[CONNECTIONS_MAX:]:
            wait_until(
                lambda c=connection: c.recv(1) == b"", "a connection above the limit to close"
            )


def test_the_published_address_can_be_dialled(server: MetricsServer) -> None:
    assert server.address == f"127.0.0.1:{server.port}"
    with closing(MetricsServer(CollectorRegistry(), lambda: True, bind="0.0.0.0")) as everywhere:
        assert everywhere.address == f"{socket.gethostname()}:{everywhere.port}"


def test_a_closed_server_has_let_its_port_go() -> None:
    port = held_port()
    for _ in range(3):
        server = MetricsServer(CollectorRegistry(), lambda: True, port=port)
        assert get(server, "/healthz")[0] == 200
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
