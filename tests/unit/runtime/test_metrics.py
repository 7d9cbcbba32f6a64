"""The /metrics and /healthz server over a real socket."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, Counter

from kafka2011.runtime.metrics import CONNECTIONS_MAX, MetricsServer
from tests.support.waiting import wait_until


class Health:
    is_serving = False


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def server(health: Health) -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Counter("messages_in", "messages appended", registry=registry).inc(3)
    running = MetricsServer(
        registry,
        lambda: health.is_serving,
        routes={"/status": lambda: (200, "application/json", b"{}")},
    )
    yield running
    running.close()


def get(server: MetricsServer, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_metrics_are_in_prometheus_form(server: MetricsServer) -> None:
    status, body = get(server, "/metrics?x=1")
    assert status == 200
    assert b"messages_in_total 3.0" in body


def test_healthz_is_true_only_when_serving(server: MetricsServer, health: Health) -> None:
    assert get(server, "/healthz")[0] == 503
    health.is_serving = True
    assert get(server, "/healthz")[0] == 200


def test_added_routes_and_unknown_pages(server: MetricsServer) -> None:
    assert get(server, "/status") == (200, b"{}")
    assert get(server, "/nothing")[0] == 404


def test_idle_connections_do_not_pile_up_without_bound(server: MetricsServer) -> None:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            for _ in range(CONNECTIONS_MAX + 5)
        ]
        # Those above the limit are closed at once; the others wait for a request.
        for connection in connections[CONNECTIONS_MAX:]:
            wait_until(
                lambda c=connection: c.recv(1) == b"", "a connection above the limit to close"
            )


def test_the_address_told_to_others_can_be_dialled(server: MetricsServer) -> None:
    assert server.address == f"127.0.0.1:{server.port}"
    everywhere = MetricsServer(CollectorRegistry(), lambda: True, bind="0.0.0.0")
    try:
        assert everywhere.address == f"{socket.gethostname()}:{everywhere.port}"
    finally:
        everywhere.close()
