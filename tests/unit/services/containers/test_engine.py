"""What `docker inspect` tells, as states; and commands that fail, as one line."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.containers.engine import (
    ONE_OFF_LABEL,
    PROJECT_LABEL,
    SERVICE_LABEL,
    ComposeProject,
    ContainerState,
    EngineError,
    is_one_off,
    state_of,
)
from tests.support.waiting import wait_until


def told(**state: Any) -> dict[str, object]:
    """A container as the engine tells it."""
    return {
        "Id": "abc123",
        "State": {"Status": "running", "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z", **state},
        "Config": {"Labels": {PROJECT_LABEL: "kafka2011", SERVICE_LABEL: "broker-1"}},
    }


def test_a_container_serves_when_it_runs_and_its_check_says_so() -> None:
    assert state_of(told(Health={"Status": "healthy"})).serves
    assert state_of(told()).serves  # it has no check
    assert not state_of(told(Health={"Status": "starting"})).serves
    assert not state_of(told(Health={"Status": "unhealthy"})).serves
    assert not state_of(told(Status="paused", Health={"Status": "healthy"})).serves
    assert not state_of(told(Status="exited")).serves


def test_a_container_is_done_only_with_status_0() -> None:
    assert state_of(told(Status="exited")).is_done
    assert not state_of(told(Status="exited", ExitCode=137)).is_done
    assert not state_of(told()).is_done


def test_a_run_changes_when_the_container_starts_again() -> None:
    first = state_of(told())
    assert first == ContainerState(
        "broker-1", "abc123", "running", 0, "", "abc123@2026-01-01T00:00:00Z"
    )
    assert state_of(told(StartedAt="2026-01-01T00:00:09Z")).run != first.run


def test_containers_made_by_run_are_not_services() -> None:
    one_off = told()
    assert not is_one_off(one_off)
    one_off["Config"] = {"Labels": {ONE_OFF_LABEL: "True"}}
    assert is_one_off(one_off)
    assert not is_one_off({"Config": {"Labels": None}})


def command(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def compose(root: Path, script: str) -> None:
    """The checkout's script that calls Compose."""
    (root / "deploy/tools").mkdir(parents=True)
    command(root / "deploy/tools", "compose.sh", script)


def project(directory: Path) -> ComposeProject:
    return ComposeProject("kafka2011-x", directory, {"PATH": f"{directory}:/bin:/usr/bin"})


def test_compose_gets_the_project_and_the_profiles(tmp_path: Path) -> None:
    compose(tmp_path, 'echo "$COMPOSE_PROJECT_NAME $COMPOSE_PROFILES $*"')
    said = project(tmp_path).compose("up", "--detach", profiles="jobs,tools")
    assert said == "kafka2011-x jobs,tools up --detach\n"


def test_a_command_that_fails_is_one_line(tmp_path: Path) -> None:
    compose(
        tmp_path,
        "echo first >&2; echo 'no such service: x' >&2; exit 1",
    )
    with pytest.raises(EngineError, match=r"^compose\.sh up: no such service: x$"):
        project(tmp_path).compose("up", "x")


def test_a_command_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    compose(tmp_path, "exec sleep 60")
    with pytest.raises(EngineError, match="not finished in"):
        project(tmp_path).compose("up", timeout_s=0.2)


def test_the_reason_is_not_what_compose_says_last(tmp_path: Path) -> None:
    reason = "ERROR: for dashboard  Cannot start service dashboard: port is already allocated"
    last = "Encountered errors while bringing up the project."
    compose(
        tmp_path,
        f"printf '%s\\n' one '{reason}' '{last}' >&2; exit 1",
    )
    with pytest.raises(EngineError) as caught:
        project(tmp_path).compose("up")
    assert str(caught.value) == f"compose.sh up: {reason}"


def test_a_command_has_a_session_of_its_own(tmp_path: Path) -> None:
    """Ctrl-C, which goes to the terminal's group, must not reach it."""
    command(tmp_path, "docker", f"exec {sys.executable} -c 'import os; print(os.getsid(0))'")
    assert int(project(tmp_path).docker("ps")) != os.getsid(0)


def test_nothing_of_a_command_that_is_given_up_lives_on(tmp_path: Path) -> None:
    command(tmp_path, "docker", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(EngineError, match="not finished in"):
        project(tmp_path).docker("ps", timeout_s=1)
    assert_gone(int((tmp_path / "child").read_text()))


def test_what_runs_can_be_abandoned_from_a_signal_handler(tmp_path: Path) -> None:
    command(tmp_path, "docker", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    found = project(tmp_path)
    found.abandon()  # nothing runs

    def call() -> None:
        with pytest.raises(EngineError):
            found.docker("ps", timeout_s=30)

    caller = threading.Thread(target=call)
    caller.start()
    child = tmp_path / "child"
    wait_until(lambda: child.exists() and child.read_text().strip(), "the child runs", 10)
    found.abandon()
    caller.join(10)
    assert not caller.is_alive()
    assert_gone(int(child.read_text()))


def assert_gone(pid: int) -> None:
    def is_gone() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    wait_until(is_gone, f"process {pid} is gone", 10)


def test_the_log_of_a_service_is_both_its_streams(tmp_path: Path) -> None:
    inspected = json.dumps([told()])
    command(
        tmp_path,
        "docker",
        f"""case "$1" in
            ps) echo abc123 ;;
            inspect) echo '{inspected}' ;;
            logs) echo "out $*"; echo err >&2 ;;
        esac""",
    )
    assert project(tmp_path).logs("broker-1", 5) == "out logs --tail 5 abc123\nerr\n"
    assert project(tmp_path).logs("broker-9", 5) == ""


def test_no_compose_is_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file"):
        project(tmp_path).compose("up")


def test_a_command_in_a_service_without_container_is_refused(tmp_path: Path) -> None:
    # By this name there is no docker command: nothing is listed, as without containers.
    command(tmp_path, "docker", "exit 0")
    with pytest.raises(EngineError, match="no container of audit"):
        project(tmp_path).execute("audit", "true")
