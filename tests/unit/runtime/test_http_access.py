"""The one rule of every HTTP port, and that every server has it."""

import http.client
import socket
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from kafka2011.runtime.http_access import HttpAccess
from kafka2011.runtime.metrics import MetricsServer

HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "origin", "is_answered"),
    [
        (None, None, True),  # no browser
        ("127.0.0.1:8088", None, True),
        ("[::1]:8088", "http://[::1]:8088", True),
        ("10.1.2.3", None, True),
        ("localhost:1", "http://localhost:1", True),
        ("audit:8080", None, True),  # a container
        (f"{HERE}:9", None, True),
        ("Wall.Example:80", "http://wall.example:80", True),
        ("bound.example", None, True),
        ("evil.example", None, False),  # its name may lead here: DNS rebinding
        ("evil.example:8088", "http://evil.example:8088", False),
        ("127.0.0.1.evil.example", None, False),
        ("localhost.", None, False),
        ("localhost:1", "http://localhost:2", False),  # a page of another server here
        ("localhost:1", "http://evil.example", False),
        ("localhost:1", "null", False),  # a file, or a frame in a sandbox
        (None, "http://evil.example", False),
        ("localhost:1", "http://[", False),  # no address at all
        ("localhost:1", "http://[x]:1", False),
        (None, "http://[", False),
    ],
)
def test_a_request_must_name_this_server_and_come_from_no_foreign_page(
    host: str | None, origin: str | None, is_answered: bool
) -> None:
    access = HttpAccess("bound.example", ["wall.example"])
    assert (access.refusal(host, origin) == "") is is_answered


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 421),
        ({"Host": "wall.example"}, 200),
    ],
)
def test_the_metrics_port_refuses_before_it_acts(
    method: str, headers: dict[str, str], status: int
) -> None:
    done: list[bytes] = []

    def act(body: bytes) -> tuple[int, str, bytes]:
        done.append(body)
        return 200, "text/plain", b""

    server = MetricsServer(
        CollectorRegistry(), lambda: True, hosts=["wall.example"], actions={"/healthz": act}
    )
    with closing(server), closing(http.client.HTTPConnection("127.0.0.1", server.port)) as client:
        client.request(method, "/healthz", "{}", {"Content-Type": "application/json"} | headers)
        answer = client.getresponse()
        assert (answer.status, len(done)) == (status, int(status == 200 and method == "POST"))
        if status == 421:
            assert answer.read().count(b"\n") == 1, "the reason, in one line"
