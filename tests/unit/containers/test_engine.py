"""What `docker inspect` tells, as states; and commands that fail, as one line."""

from pathlib import Path
from typing import Any

import pytest

from services.containers.engine import (
    ONE_OFF_LABEL,
    PROJECT_LABEL,
    SERVICE_LABEL,
    ComposeProject,
    ContainerState,
    EngineError,
    is_one_off,
    state_of,
)


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


def project(directory: Path) -> ComposeProject:
    return ComposeProject("kafka2011-x", directory, {"PATH": f"{directory}:/bin:/usr/bin"})


def test_compose_gets_the_project_and_the_profiles(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    command(tmp_path / "tools", "compose.sh", 'echo "$COMPOSE_PROJECT_NAME $COMPOSE_PROFILES $*"')
    said = project(tmp_path).compose("up", "--detach", profiles="jobs,tools")
    assert said == "kafka2011-x jobs,tools up --detach\n"


def test_a_command_that_fails_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    command(
        tmp_path / "tools", "compose.sh", "echo first >&2; echo 'no such service: x' >&2; exit 1"
    )
    with pytest.raises(EngineError, match=r"^compose\.sh up: no such service: x$"):
        project(tmp_path).compose("up", "x")


def test_a_command_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    command(tmp_path / "tools", "compose.sh", "exec sleep 60")
    with pytest.raises(EngineError, match="not done in"):
        project(tmp_path).compose("up", timeout_s=0.2)


def test_no_compose_is_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file"):
        project(tmp_path).compose("up")


def test_a_command_in_a_service_without_container_is_refused(tmp_path: Path) -> None:
    # By this name there is no docker command: nothing is listed, as without containers.
    command(tmp_path, "docker", "exit 0")
    with pytest.raises(EngineError, match="no container of audit"):
        project(tmp_path).execute("audit", "true")
