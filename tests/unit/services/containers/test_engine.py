"""What `docker inspect` prints, as states; and commands that fail, as one line."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka2011.runtime.process_state import is_alive
from kafka2011.services.containers import engine
from kafka2011.services.containers.engine import ComposeProject, ContainerState, EngineError
from tests.support.waiting import wait_until
from tests.unit.services.containers.conftest import executable

LABELS = {engine.PROJECT_LABEL: "kafka2011", engine.SERVICE_LABEL: "broker-1"}


def inspected(health: str = "", **state: Any) -> dict[str, object]:
    """A container of broker-1 as the engine describes it; without `health` it has no check."""
    state = {"Status": "running", "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z", **state}
    return {
        "Id": "abc123",
        "State": state | ({"Health": {"Status": health}} if health else {}),
        "Config": {"Labels": LABELS},
    }


def test_a_container_serves_when_it_runs_and_its_check_says_so() -> None:
    assert engine.state_of(inspected("healthy")).serves
    assert engine.state_of(inspected()).serves  # it has no check
    for other in (
        inspected("starting"),
        inspected("unhealthy"),
        inspected("healthy", Status="paused"),
        inspected(Status="exited"),
    ):
        assert not engine.state_of(other).serves, other


def test_a_container_is_done_only_with_status_0() -> None:
    assert engine.state_of(inspected(Status="exited")).is_done
    assert not engine.state_of(inspected(Status="exited", ExitCode=137)).is_done
    assert not engine.state_of(inspected()).is_done


def test_a_run_changes_when_the_container_starts_again() -> None:
    first = engine.state_of(inspected())
    run = "abc123@2026-01-01T00:00:00Z"
    assert first == ContainerState("broker-1", "abc123", "running", 0, "", run)
    assert engine.state_of(inspected(StartedAt="2026-01-01T00:00:09Z")).run != first.run


def test_containers_made_by_run_are_not_services() -> None:
    assert not engine.is_one_off(inspected())
    assert engine.is_one_off({"Config": {"Labels": {engine.ONE_OFF_LABEL: "True"}}})
    assert not engine.is_one_off({"Config": {"Labels": None}})


def project(root: Path, *, docker: str = "", compose: str = "") -> ComposeProject:
    """A project on an engine whose commands are these scripts."""
    executable(root / "docker", docker)
    if compose:
        executable(root / "deploy/tools/compose.sh", compose)
    return ComposeProject("kafka2011-x", root, {"PATH": f"{root}:/bin:/usr/bin"})


def test_compose_gets_the_project_and_the_profiles(tmp_path: Path) -> None:
    one = project(tmp_path, compose='echo "$COMPOSE_PROJECT_NAME $COMPOSE_PROFILES $*"')
    said = one.compose("up", "--detach", profiles="jobs,tools")
    assert said == "kafka2011-x jobs,tools up --detach\n"


PORT_TAKEN = "ERROR: for dashboard  Cannot start service dashboard: port is already allocated"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo 'no such service: x' >&2; exit 1", "up: no such service: x$"),
        (f"printf '%s\\n' one '{PORT_TAKEN}' 'Errors.' >&2; exit 1", f"up: {PORT_TAKEN}$"),
        ("exec sleep 60", "up: not finished in"),
        ("", "No such file"),
    ],
    ids=["its last line", "the line with the reason", "it does not end", "it is not there"],
)
def test_a_command_that_fails_is_one_line(tmp_path: Path, script: str, reason: str) -> None:
    timeout_s = 0.2 if "sleep" in script else 60
    with pytest.raises(EngineError, match=rf"^\S*compose\.sh:? {reason}"):
        project(tmp_path, compose=script).compose("up", timeout_s=timeout_s)


def test_a_command_has_a_session_of_its_own(tmp_path: Path) -> None:
    """Ctrl-C, which goes to the terminal's group, must not reach it."""
    session = f"exec {sys.executable} -c 'import os; print(os.getsid(0))'"
    assert int(project(tmp_path, docker=session).docker("ps")) != os.getsid(0)


@pytest.mark.parametrize("is_abandoned", [False, True], ids=["given up", "abandoned"])
def test_a_command_that_is_ended_leaves_no_process(tmp_path: Path, is_abandoned: bool) -> None:
    child = tmp_path / "child"
    one = project(tmp_path, docker=f"sleep 600 & echo $! > {child}; wait")
    one.abandon()  # nothing runs

    def runs() -> bool:
        return child.exists() and child.read_text().strip() != ""

    def call(timeout_s: float, reason: str) -> None:
        with pytest.raises(EngineError, match=f"docker ps: {reason}"):
            one.docker("ps", timeout_s=timeout_s)

    if is_abandoned:
        caller = threading.Thread(target=call, args=(600, "no reason given"))
        caller.start()
        wait_until(runs, "the child runs")

        def is_over() -> bool:  # the child may run before its caller has been given it
            one.abandon()  # as from a signal handler
            return not caller.is_alive()

        wait_until(is_over, "the command is abandoned")
    else:
        timeout_s = 0.25
        while not runs():  # given up before the child ran, on a busy machine
            timeout_s *= 2
            call(timeout_s, "not finished in")
    wait_until(lambda: not is_alive(int(child.read_text())), "the child is gone")


def test_the_log_of_a_service_is_both_its_streams(tmp_path: Path) -> None:
    one = project(
        tmp_path,
        docker=f"""case "$1" in
            ps) echo abc123 ;;
            inspect) echo '{json.dumps([inspected()])}' ;;
            logs) echo "out $*"; echo err >&2 ;;
        esac""",
    )
    assert one.logs("broker-1", 5) == "out logs --tail 5 abc123\nerr\n"
    assert one.logs("broker-9", 5) == ""


def test_a_command_in_a_service_without_container_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no container of audit"):
        project(tmp_path, docker="exit 0").execute("audit", "true")


def test_containers_that_cannot_be_inspected_are_an_error_after_a_few_attempts(
    tmp_path: Path,
) -> None:
    calls = tmp_path / "calls"
    one = project(tmp_path, docker=f'echo "$1" >> {calls}; [ "$1" = ps ] && echo abc || exit 1')
    with pytest.raises(EngineError, match="docker inspect: "):
        one.states()
    assert calls.read_text().split() == ["ps", "inspect"] * engine.STATES_ATTEMPTS


def test_a_container_that_is_removed_meanwhile_is_not_there(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    one = project(
        tmp_path,
        docker=f"""case "$1" in
            ps) [ -e {seen} ] || echo abc ;;
            inspect) touch {seen}; exit 1 ;;
        esac""",
    )
    assert one.states() == {}
