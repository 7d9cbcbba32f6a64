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


class Handler(BaseHTTPRequestHandler):
    """The engine of project `demo` with `CONTAINERS`; keeps the requests that change something."""

    requests: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, value: object = None) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:  # a client closes once it has the whole response
            self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/version":
            return self.answer(200, {"ApiVersion": VERSION})
        filters = json.loads(parse_qs(urlparse(self.path).query)["filters"][0])
        project, service = (label.partition("=")[2] for label in sorted(filters["label"]))
        container, state = CONTAINERS.get(service, ("", "")) if project == "demo" else ("", "")
        return self.answer(200, [{"Id": container, "State": state}] if container else [])

    def do_POST(self) -> None:
        self.requests.append(self.path.removeprefix(f"/v{VERSION}/containers/"))
        if self.path.endswith("/unpause"):
            self.answer(500, {"message": "Container c1 is not paused"})
        else:
            self.answer(204)


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[ContainerFaults]:
    path = tmp_path / "engine.sock"
    Handler.requests = []
    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield ContainerFaults(path, "demo")
        server.shutdown()
        serving.join()


def test_containers_of_the_project_are_killed_paused_and_started(faults: ContainerFaults) -> None:
    assert faults.signal("kill", "broker-1") == "kill: container broker-1"
    faults.signal("pause", "broker-1")
    assert faults.start("broker-2") == "container broker-2 started"
    assert Handler.requests == ["c1/kill", "c1/pause", "c2/start"]


def test_what_is_not_of_the_project_is_refused_and_the_dashboard_too(
    faults: ContainerFaults,
) -> None:
    for name in ("broker-9", "dashboard"):
        with pytest.raises(FaultRefused):
            faults.signal("kill", name)
    assert Handler.requests == []


def test_the_engine_s_refusal_is_passed_on(faults: ContainerFaults) -> None:
    with pytest.raises(FaultRefused, match="not paused"):
        faults.signal("continue", "broker-1")
    with pytest.raises(FaultRefused, match="already running"):
        faults.start("broker-1")


def test_an_engine_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FaultRefused, match="does not answer"):
        ContainerFaults(tmp_path / "none.sock", "demo").start("broker-1")
