"""What the demo in containers makes of what the engine says."""

import io
import socket
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from kafka2011.services.containers.demo import (
    ContainerDemo,
    RestartWatch,
    check_input,
    dashboard_port,
    leave,
    moment_of,
)
from kafka2011.services.containers.engine import ComposeProject, ContainerState, EngineError
from kafka2011.services.embedded.supervisor import StartFailed

FRONTENDS = {"frontend-1"}
EXPECTED = {"broker-1", "frontend-1"}


def state(
    service: str, status: str = "running", health: str = "healthy", code: int = 0, run: str = "1"
) -> tuple[str, ContainerState]:
    return service, ContainerState(service, f"id-{service}", status, code, health, run)


def test_all_serve_and_the_frontend_still_sends() -> None:
    moment = moment_of(dict([state("broker-1"), state("frontend-1")]), EXPECTED, FRONTENDS)
    assert moment == (False, ())


def test_a_frontend_that_ended_well_has_sent_everything() -> None:
    states = dict([state("broker-1"), state("frontend-1", "exited", "unhealthy")])
    assert moment_of(states, EXPECTED, FRONTENDS) == (True, ())


def test_a_frontend_that_ended_badly_is_down() -> None:
    states = dict([state("broker-1"), state("frontend-1", "exited", "unhealthy", code=1)])
    assert moment_of(states, EXPECTED, FRONTENDS) == (False, ("frontend-1",))


def test_what_does_not_serve_is_down_whatever_the_reason() -> None:
    for other in (
        state("broker-1", "paused"),
        state("broker-1", health="unhealthy"),
        state("broker-1", "exited"),
        state("another"),
    ):
        states = dict([other, state("frontend-1", "exited")])
        assert moment_of(states, EXPECTED, FRONTENDS) == (True, ("broker-1",)), other


def test_a_restart_is_noticed_once() -> None:
    watch = RestartWatch(clock=lambda: 1000)
    assert not watch.look(dict([state("broker-1", run="1")]))
    assert not watch.look(dict([state("broker-1", "exited", run="1")]))
    assert watch.look(dict([state("broker-1", run="2")]))
    assert not watch.look(dict([state("broker-1", run="2")]))
    assert watch.restarts == [{"name": "broker-1", "time_ms": 1000}]
    assert watch.names == ["broker-1"]


def test_a_first_start_is_no_restart() -> None:
    watch = RestartWatch(clock=lambda: 1000)
    assert not watch.look({})
    assert not watch.look(dict([state("frontend-1")]))
    assert watch.names == []


# --- before anything starts ----------------------------------------------------------------------


def test_an_input_that_a_container_cannot_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    for content, mode, reason in (
        (None, 0, "No such file"),
        ("", 0o644, "is empty"),
        ("line", 0o640, "chmod o\\+r"),
    ):
        if content is not None:
            path.write_text(content, encoding="utf-8")
            path.chmod(mode)
        with pytest.raises(StartFailed, match=reason):
            check_input(str(path))
    with pytest.raises(StartFailed, match="directory"):
        check_input(str(tmp_path))
    path.chmod(0o604)
    check_input(str(path))
    check_input("")


class Engine:
    """A project on an engine where these containers publish ports."""

    name = "kafka2011-demo"

    def __init__(self, asked: str = "", **publishers: str) -> None:
        self.asked = asked
        self.found = publishers

    def setting(self, name: str) -> str:
        assert name == "DASHBOARD_PORT"
        return self.asked

    def publishers(self, port: int) -> dict[str, str]:
        return self.found


def port_of(engine: Engine) -> tuple[int, str]:
    return dashboard_port(cast(ComposeProject, engine))


def test_the_demo_takes_the_port_that_is_asked_for_or_says_who_has_it() -> None:
    assert port_of(Engine("0")) == (0, "")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} .* is taken by another process"):
            port_of(Engine(str(port)))
        with pytest.raises(EngineError, match="is taken by web_1; free it"):
            port_of(Engine(str(port), web_1="kafka2011"))
        # What an earlier demo left is taken down first.
        assert port_of(Engine(str(port), dashboard="kafka2011-demo")) == (port, "")
    assert port_of(Engine(str(port))) == (port, "")
    with pytest.raises(EngineError, match="not a port"):
        port_of(Engine("http"))


def test_without_a_wish_any_free_port_will_do_and_is_said() -> None:
    port, said = port_of(Engine(web_1="kafka2011"))
    assert port not in (0, 8088)
    assert said.startswith("port 8088 of 127.0.0.1 is taken by web_1; ")
    assert said.endswith(f"http://127.0.0.1:{port}")


# --- when it ends badly --------------------------------------------------------------------------


class Project:
    """What a ContainerDemo does to a project of which broker-1 never serves."""

    name = "kafka2011-demo"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_abandoned = False

    def compose(self, *words: str, profiles: str = "", timeout_s: float = 0) -> str:
        self.calls.append(words[0])
        if self.calls.count("down") == 2:
            raise EngineError("compose.sh down: no engine")
        return ""

    def states(self) -> dict[str, ContainerState]:
        return dict([state("broker-1", "exited", "", code=1), state("broker-2")])

    def logs(self, service: str, line_count: int) -> str:
        self.calls.append(f"logs {service}")
        return "no space left\n"

    def abandon(self) -> None:
        self.is_abandoned = True


def demo(project: Project, out: io.StringIO, stop_asked: bool) -> ContainerDemo:
    return ContainerDemo(
        cast(ComposeProject, project),
        Console(file=out, width=200),
        frontends=("frontend-1",),
        report_table="page_view",
        stop_asked=lambda: stop_asked,
    )


def test_who_does_not_serve_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka2011.services.containers.demo.START_TIMEOUT_S", -1.0)
    project, out = Project(), io.StringIO()
    assert demo(project, out, stop_asked=False).run() == 1
    assert project.calls == ["down", "up", "logs broker-1", "down"]
    told = out.getvalue()
    assert "broker-1 (exited), its last lines:\nno space left\n" in told
    assert "COMPOSE_PROJECT_NAME=kafka2011-demo make down removes it" in told


def test_a_demo_that_is_stopped_tells_nothing_of_those_that_were_not_up_yet() -> None:
    project, out = Project(), io.StringIO()
    assert demo(project, out, stop_asked=True).run() == 1
    assert project.calls == ["down", "up", "down"]


def test_a_second_ask_to_stop_says_what_is_left_behind(
    capfd: pytest.CaptureFixture[str],
) -> None:
    project = Project()
    leave(cast(ComposeProject, project))
    assert project.is_abandoned
    assert capfd.readouterr().err.strip() == (
        "kafka2011: the project kafka2011-demo still exists: "
        "COMPOSE_PROJECT_NAME=kafka2011-demo make down removes it"
    )
