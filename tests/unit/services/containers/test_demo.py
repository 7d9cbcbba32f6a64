"""What the demo in containers makes of what the engine says."""

import io
import socket
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from kafka2011.services.containers import demo
from kafka2011.services.containers.engine import ComposeProject, ContainerState, EngineError
from kafka2011.services.embedded.supervisor import StartFailed
from kafka2011.services.frontend.input_file import InputRefused
from tests.support.access_lines import known_lines
from tests.support.commands import held_port

States = dict[str, ContainerState]


def container(service: str, state: str = "running healthy", run: str = "1") -> States:
    """A part of the engine's states: one container whose `state` is its status, health and exit
    code."""
    status, health, code = [*state.split(" "), "0"][:3]
    return {service: ContainerState(service, f"id-{service}", status, int(code), health, run)}


@pytest.mark.parametrize(
    ("broker", "frontend", "is_sent", "down"),
    [
        ("running healthy", "running healthy", False, ()),
        ("running healthy", "exited unhealthy", True, ()),
        ("running healthy", "exited unhealthy 1", False, ("frontend-1",)),
        ("running unhealthy", "exited unhealthy", True, ("broker-1",)),
        ("paused healthy", "exited unhealthy", True, ("broker-1",)),
        ("exited healthy", "exited unhealthy", True, ("broker-1",)),
    ],
)
def test_what_does_not_serve_is_down_but_a_frontend_that_has_sent(
    broker: str, frontend: str, is_sent: bool, down: tuple[str, ...]
) -> None:
    states = container("broker-1", broker) | container("frontend-1", frontend)
    expected, frontends = {"broker-1", "frontend-1"}, {"frontend-1"}
    assert demo.moment_of(states, expected, frontends) == (is_sent, down)
    without = container("another") | container("frontend-1", frontend)
    assert "broker-1" in demo.moment_of(without, expected, frontends).down


def test_a_restart_is_noticed_once_and_a_first_start_is_none() -> None:
    watch = demo.RestartWatch(clock=lambda: 1000)
    for states, is_new in (
        ({}, False),
        (container("broker-1", run="1"), False),
        (container("broker-1", "exited healthy", run="1"), False),
        (container("broker-1", run="2"), True),
        (container("broker-1", run="2") | container("online-1", run="1"), False),
        (container("online-1", run="2"), True),  # sends nothing, which could have come twice
    ):
        assert watch.look(states) == is_new
    assert watch.restarts == [{"name": "broker-1", "time_ms": 1000}]
    assert watch.names == {"broker-1", "online-1"}


def test_an_input_that_a_container_cannot_read_is_refused(tmp_path: Path) -> None:
    def refused(path: Path | str, reason: str) -> None:
        with pytest.raises((StartFailed, InputRefused), match=reason):
            demo.check_input(str(path), "auto")

    path = tmp_path / "access.log"
    refused("-", "containers need a file")
    refused(path, "No such file")
    refused(tmp_path, "directory")
    path.touch(0o644)
    refused(path, "is empty")
    path.write_bytes(known_lines(1, seed=1)[0].line)
    path.chmod(0o640)
    refused(path, "chmod o\\+r")
    path.chmod(0o604)
    assert "1 of the first 1 lines can be read" in demo.check_input(str(path), "auto")
    assert demo.check_input("", "auto") == ""


class FakeProject:
    """A project with a setting of the port, on an engine where these containers publish it; its
    broker-1 never serves, and it cannot be taken down a second time."""

    name = "kafka2011-demo"

    def __init__(self, asked_port: str = "", **publishers: str) -> None:
        self.asked_port = asked_port
        self.found = publishers
        self.calls: list[str] = []

    def setting(self, name: str) -> str:
        assert name == "DASHBOARD_PORT"
        return self.asked_port

    def publishers(self, port: int) -> dict[str, str]:
        return self.found

    def compose(self, *words: str, profiles: str = "", timeout_s: float = 0) -> str:
        self.calls.append(words[0])
        if self.calls.count("down") == 2:
            raise EngineError("compose.sh down: no engine")
        return ""

    def states(self) -> States:
        return container("broker-1", "exited  1") | container("broker-2")

    def logs(self, service: str, line_count: int) -> str:
        self.calls.append(f"logs {service}")
        return "no space left\n"

    def abandon(self) -> None:
        self.calls.append("abandon")


def port_of(asked_port: object, **publishers: str) -> tuple[int, str]:
    return demo.dashboard_port(cast(ComposeProject, FakeProject(str(asked_port), **publishers)))


def test_the_demo_takes_the_port_that_is_asked_for_or_says_which_process_has_it() -> None:
    assert port_of("0") == (0, "")
    port = held_port()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(EngineError, match=f"port {port} .* is taken by another process"):
            port_of(port)
        with pytest.raises(EngineError, match="is taken by web_1; free it"):
            port_of(port, web_1="kafka2011")
        # What an earlier demo left is taken down first.
        assert port_of(port, dashboard="kafka2011-demo") == (port, "")
    assert port_of(port) == (port, "")
    with pytest.raises(EngineError, match="not a port"):
        port_of("http")


def test_without_a_wish_any_free_port_will_do_and_is_said() -> None:
    port, said = port_of("", web_1="kafka2011")
    assert port not in (0, 8088)
    assert said.startswith("port 8088 of 127.0.0.1 is taken by web_1; ")
    assert said.endswith(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_does_not_serve_has_the_last_word_unless_the_demo_is_stopped(
    monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.setattr(demo, "START_TIMEOUT_S", -1.0)
    project, out = FakeProject(), io.StringIO()
    run = demo.ContainerDemo(
        cast(ComposeProject, project),
        Console(file=out, width=200),
        frontends=("frontend-1",),
        report_table="page_view",
        stop_asked=lambda: is_stopped,
    )
    assert run.run() == (130 if is_stopped else 1)
    assert project.calls == ["down", "up", *([] if is_stopped else ["logs broker-1"]), "down"]
    last_lines = "broker-1 (exited), its last lines:\nno space left\n"
    assert (last_lines in out.getvalue()) != is_stopped
    assert "COMPOSE_PROJECT_NAME=kafka2011-demo make down removes it" in out.getvalue()


def test_what_was_sent_is_what_the_audit_says_was_produced() -> None:
    topics = {"access-log": {"produced": 7, "tiers": {}}}
    assert demo.sent_of({"topics": topics}) == {"access-log": 7}
    assert demo.sent_of({}) == {}


def test_a_second_ask_to_stop_says_what_is_left_behind(capfd: pytest.CaptureFixture[str]) -> None:
    project = FakeProject()
    demo.leave(cast(ComposeProject, project))
    assert project.calls == ["abandon"]
    assert capfd.readouterr().err.strip() == (
        "kafka2011: the project kafka2011-demo still exists: "
        "COMPOSE_PROJECT_NAME=kafka2011-demo make down removes it"
    )
