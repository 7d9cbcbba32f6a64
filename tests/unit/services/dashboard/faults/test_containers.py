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

CONTAINERS = {"broker-1": ("c1", "running"), "broker-2": ("c2", "exited")}
VERSION = "1.44"


class Engine(socketserver.ThreadingUnixStreamServer):
    """The engine of project `demo` with `CONTAINERS`; keeps the requests that change something."""

    daemon_threads = True
    requests: list[str]


class Handler(BaseHTTPRequestHandler):
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
            self.answer(200, {"ApiVersion": VERSION})
            return
        labels = json.loads(parse_qs(urlparse(self.path).query)["filters"][0])["label"]
        found = [
            {"Id": container, "State": state}
            for name, (container, state) in CONTAINERS.items()
            if set(labels)
            == {"com.docker.compose.project=demo", f"com.docker.compose.service={name}"}
        ]
        self.answer(200, found)

    def do_POST(self) -> None:
        assert isinstance(self.server, Engine)
        self.server.requests.append(self.path.removeprefix(f"/v{VERSION}/containers/"))
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


@pytest.fixture
def faults(engine: Engine) -> ContainerFaults:
    return ContainerFaults(Path(str(engine.server_address)), "demo")


def test_containers_of_the_project_are_killed_paused_and_started(
    engine: Engine, faults: ContainerFaults
) -> None:
    assert faults.signal("kill", "broker-1") == "kill: container broker-1"
    faults.signal("pause", "broker-1")
    assert faults.start("broker-2") == "container broker-2 started"
    assert engine.requests == ["c1/kill", "c1/pause", "c2/start"]


@pytest.mark.parametrize("name", ["broker-9", "dashboard"])
def test_what_is_not_of_the_project_is_refused_and_the_dashboard_too(
    engine: Engine, faults: ContainerFaults, name: str
) -> None:
    with pytest.raises(FaultRefused):
        faults.signal("kill", name)
    assert engine.requests == []


def test_the_engine_s_refusal_is_passed_on(faults: ContainerFaults) -> None:
    with pytest.raises(FaultRefused, match="not paused"):
        faults.signal("continue", "broker-1")
    with pytest.raises(FaultRefused, match="runs already"):
        faults.start("broker-1")


def test_an_engine_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FaultRefused, match="does not answer"):
        ContainerFaults(tmp_path / "none.sock", "demo").start("broker-1")
