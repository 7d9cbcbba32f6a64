"""Runs the container engine's commands: docker, and Compose of either generation.

Not the docker library, which the dashboard uses: it cannot run Compose, and it is an optional
dependency, while these commands exist wherever `make up` works. Containers are found by the labels
that both generations of Compose set; their names differ.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
ONE_OFF_LABEL = "com.docker.compose.oneoff"
COMMAND_TIMEOUT_S = 60.0
STATES_ATTEMPTS = 3  # a container may be removed between the two commands of an attempt
# Compose 1.29 ends its errors with an empty phrase; the line with the reason has one of these.
REASONS = ("ERROR: for", "Cannot", "Error response")


class EngineError(RuntimeError):
    """A command of the engine failed. The text is one line."""


@dataclass(frozen=True)
class ContainerState:
    """One service's container. `run` changes at every start."""

    service: str
    container_id: str
    status: str  # created, running, paused, restarting, exited, dead
    exit_code: int
    health: str  # starting, healthy, unhealthy; "" when it has no check
    run: str

    @property
    def serves(self) -> bool:
        return self.status == "running" and self.health in ("healthy", "")

    @property
    def is_done(self) -> bool:
        return self.status == "exited" and self.exit_code == 0


class ComposeProject:
    """One project of docker-compose.yml, with `environment` for its variables."""

    def __init__(self, name: str, root: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._root = root
        self._tools = root / "deploy" / "tools"
        self._environment = {**environment, "COMPOSE_PROJECT_NAME": name}
        self._running: subprocess.Popen[str] | None = None

    def setting(self, name: str) -> str:
        """A variable as Compose reads it (environment, then .env); empty when unset."""
        return self._run(
            [str(self._tools / "setting.sh"), name],
            self._environment,
            COMMAND_TIMEOUT_S,
        ).strip()

    def compose(self, *words: str, profiles: str = "", timeout_s: float = 600.0) -> str:
        """Run Compose. Returns its standard output. Raises EngineError with its reason."""
        return self._run(
            [str(self._tools / "compose.sh"), *words],
            {**self._environment, "COMPOSE_PROFILES": profiles},
            timeout_s,
        )

    def states(self) -> dict[str, ContainerState]:
        """The containers of this project's services, by service. Raises EngineError."""
        label = f"label={PROJECT_LABEL}={self.name}"
        attempts_left = STATES_ATTEMPTS
        while True:
            attempts_left -= 1
            listed = self.docker("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
            if not listed:
                return {}
            try:
                inspected = json.loads(self.docker("inspect", *listed))
            except EngineError:
                if not attempts_left:
                    raise
                continue
            found = [state_of(one) for one in inspected if not is_one_off(one)]
            return {state.service: state for state in found}

    def execute(
        self,
        service: str,
        *words: str,
        stdin: str | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> str:
        """Run a command in a service's container. Returns its standard output. Raises EngineError,
        also after `timeout_s`."""
        state = self.states().get(service)
        if state is None:
            raise EngineError(f"no container of {service}")
        words = ("exec", "--interactive", state.container_id, *words)
        return self.docker(*words, stdin=stdin, timeout_s=timeout_s)

    def docker(
        self, *words: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        """Run a docker command. Returns its standard output. Raises EngineError."""
        return self._run(["docker", *words], self._environment, timeout_s, stdin)

    def logs(self, service: str, line_count: int) -> str:
        """A service's last lines, of both its streams; empty when it has no container."""
        state = self.states().get(service)
        if state is None:
            return ""
        script = 'exec docker logs --tail "$1" "$2" 2>&1'
        words = ["sh", "-c", script, "sh", str(line_count), state.container_id]
        return self._run(words, self._environment, COMMAND_TIMEOUT_S)

    def publishers(self, port: int) -> dict[str, str]:
        """The running containers that publish a port of this host, each with its project."""
        form = f'{{{{.Names}}}} {{{{.Label "{PROJECT_LABEL}"}}}}'
        listed = self.docker("ps", "--filter", f"publish={port}", "--format", form)
        found = [line.partition(" ") for line in listed.splitlines()]
        return {name: project for name, _, project in found}

    def attached(self, *words: str) -> int:
        """Run a docker command with its output on the terminal; Ctrl-C ends it. Returns its exit
        status."""
        return subprocess.run(
            ["docker", *words], env=self._environment, cwd=self._root, check=False
        ).returncode

    def abandon(self) -> None:
        """Kill the running command and its children, as this process is about to end."""
        if self._running is not None:
            kill_group(self._running)

    def _run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        stdin: str | None = None,
    ) -> str:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=self._root,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # Ctrl-C must reach only this process, which then ends the command itself.
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"{command[0]}: {error.strerror}") from None
        with process:
            self._running = process
            try:
                out, err = process.communicate(stdin, timeout_s)
            except subprocess.TimeoutExpired:
                kill_group(process)
                text = f"{command[0]} {command[1]}: not finished in {timeout_s:.0f} s"
                raise EngineError(text) from None
            except BaseException:  # it must not continue without this process
                kill_group(process)
                raise
            finally:
                self._running = None
        if process.returncode:
            raise EngineError(f"{Path(command[0]).name} {command[1]}: {reason_in(err or out)}")
        return out


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a command that leads its own session, and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def reason_in(output: str) -> str:
    """The line of a command's output that has the reason of its failure."""
    lines = output.strip().splitlines() or ["no reason given"]
    with_reason = [line for line in lines if any(word in line for word in REASONS)]
    return (with_reason or lines)[-1].strip()


def is_one_off(inspected: Mapping[str, object]) -> bool:
    """Whether `compose run` made the container: it is not one of the services'."""
    return _labels(inspected).get(ONE_OFF_LABEL) == "True"


def state_of(inspected: dict[str, object]) -> ContainerState:
    """A container from its part of `docker inspect`."""
    state = inspected["State"]
    assert isinstance(state, dict)
    health = state.get("Health") or {}
    return ContainerState(
        service=_labels(inspected).get(SERVICE_LABEL, ""),
        container_id=str(inspected["Id"]),
        status=str(state["Status"]),
        exit_code=int(state["ExitCode"]),
        health="" if health.get("Status") in (None, "none") else str(health["Status"]),
        run=f"{inspected['Id']}@{state['StartedAt']}",
    )


def _labels(inspected: Mapping[str, object]) -> dict[str, str]:
    config = inspected["Config"]
    assert isinstance(config, dict)
    return dict(config.get("Labels") or {})
