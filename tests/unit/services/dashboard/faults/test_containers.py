"""Containers broken through the engine's socket: against a server that speaks its interface."""

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from kafka2011.services.dashboard.faults.actions import FaultRefused
from kafka2011.services.dashboard.faults.containers import ContainerFaults


class Engine(socketserver.ThreadingUnixStreamServer):
    """One container, `broker-1` of project `demo`, that runs."""

    daemon_threads = True
    requests: list[str]


class Handler(BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, value: object) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:  # a client closes once it has the whole response
            self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/version":
            self.answer(200, {"ApiVersion": "1.44"})
            return
        labels = json.loads(parse_qs(urlparse(self.path).query)["filters"][0])["label"]
        wanted = {
            "com.docker.compose.project=demo",
            "com.docker.compose.service=broker-1",
        }
        self.answer(200, [{"Id": "c1", "State": "running"}] if set(labels) == wanted else [])

    def do_POST(self) -> None:
        assert isinstance(self.server, Engine)
        self.server.requests.append(self.path.removeprefix("/v1.44"))
        if self.path.endswith("/unpause"):
            self.answer(500, {"message": "Container c1 is not paused"})
        else:
            self.answer(204, None)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    server = Engine(str(tmp_path / "engine.sock"), Handler)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def faults(engine: Engine) -> ContainerFaults:
    return ContainerFaults(Path(str(engine.server_address)), "demo")


def test_container_of_the_project_is_killed_and_paused(engine: Engine) -> None:
    assert faults(engine).signal("kill", "broker-1") == "kill: container broker-1"
    faults(engine).signal("pause", "broker-1")
    assert engine.requests == ["/containers/c1/kill", "/containers/c1/pause"]


def test_what_is_not_of_the_project_is_refused_and_the_dashboard_too(engine: Engine) -> None:
    for name in ("broker-9", "dashboard"):
        with pytest.raises(FaultRefused):
            faults(engine).signal("kill", name)
    assert engine.requests == []


def test_what_the_engine_refuses_is_said_in_its_words(engine: Engine) -> None:
    with pytest.raises(FaultRefused, match="not paused"):
        faults(engine).signal("continue", "broker-1")
    with pytest.raises(FaultRefused, match="runs already"):
        faults(engine).start("broker-1")


def test_engine_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FaultRefused, match="does not answer"):
        ContainerFaults(tmp_path / "none.sock", "demo").start("broker-1")
