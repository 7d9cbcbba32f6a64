"""Talks to the container engine through its own commands: docker, and Compose of either generation.

Commands and not a library: what is needed is little, and they are there wherever `make up` works.
Containers are found by the labels that both generations of Compose put on them; their names differ.
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
# Compose 1.29 ends its errors with a line that says nothing; these are in the one that does.
REASONS = ("ERROR: for", "Cannot", "Error response")


class EngineError(RuntimeError):
    """A command of the engine failed. The text is one line."""


@dataclass(frozen=True)
class ContainerState:
    """One service's container. `run` changes whenever it starts anew, by itself or by hand."""

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
    """One project of docker-compose.yml. `environment` is what its variables are read from."""

    def __init__(self, name: str, root: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._root = root
        self._tools = root / "deploy" / "tools"
        self._environment = {**environment, "COMPOSE_PROJECT_NAME": name}
        self._running: subprocess.Popen[str] | None = None

    def setting(self, name: str) -> str:
        """What Compose would take for a variable (environment, then .env); empty when unset."""
        return self._run(
            [str(self._tools / "setting.sh"), name],
            self._environment,
            COMMAND_TIMEOUT_S,
        ).strip()

    def compose(self, *words: str, profiles: str = "", timeout_s: float = 600.0) -> str:
        """Run Compose; its standard output. Raises EngineError with the reason that it gives."""
        return self._run(
            [str(self._tools / "compose.sh"), *words],
            {**self._environment, "COMPOSE_PROFILES": profiles},
            timeout_s,
        )

    def bring_up(self, profiles: str = "", timeout_s: float = 1200.0) -> None:
        """As `make up`: what sends messages last; returns when all serves. Raises EngineError."""
        self._run(
            [str(self._tools / "up.sh"), self.name],
            {**self._environment, "COMPOSE_PROFILES": profiles},
            timeout_s,
        )

    def states(self) -> dict[str, ContainerState]:
        """The containers of this project's services, by service."""
        listed = self.docker(
            "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={PROJECT_LABEL}={self.name}"
        ).split()
        if not listed:
            return {}
        try:
            told = json.loads(self.docker("inspect", *listed))
        except EngineError:
            return self.states()  # one of them went away between the two commands
        found = [state_of(one) for one in told if not is_one_off(one)]
        return {state.service: state for state in found}

    def execute(
        self,
        service: str,
        *words: str,
        stdin: str | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> str:
        """Run a command in a service's container; its standard output. Raises EngineError, also
        when it is not done after `timeout_s`."""
        state = self.states().get(service)
        if state is None:
            raise EngineError(f"no container of {service}")
        words = ("exec", "--interactive", state.container_id, *words)
        return self.docker(*words, stdin=stdin, timeout_s=timeout_s)

    def docker(
        self, *words: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        """Run a docker command; its standard output. Raises EngineError."""
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
        """Run a docker command whose output goes straight to the terminal; its exit status. Ctrl-C
        ends it."""
        return subprocess.run(
            ["docker", *words], env=self._environment, cwd=self._root, check=False
        ).returncode

    def abandon(self) -> None:
        """Kill the command that runs, with all that it started. For a process that ends now."""
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
                # Ctrl-C is for us, who then end what runs in our own way.
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"{command[0]}: {error.strerror}") from None
        with process:
            self._running = process
            try:
                out, err = process.communicate(stdin, timeout_s)
            except subprocess.TimeoutExpired:
                told = f"{command[0]} {command[1]}: not done in {timeout_s:.0f} s"
                kill_group(process)
                raise EngineError(told) from None
            except BaseException:  # it must not go on when nobody waits for it
                kill_group(process)
                raise
            finally:
                self._running = None
        if process.returncode:
            raise EngineError(f"{Path(command[0]).name} {command[1]}: {reason_in(err or out)}")
        return out


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a command that has a session of its own, with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def reason_in(said: str) -> str:
    """The line that tells what went wrong, of all that a command said."""
    lines = said.strip().splitlines() or ["no reason given"]
    telling = [line for line in lines if any(word in line for word in REASONS)]
    return (telling or lines)[-1].strip()


def is_one_off(told: Mapping[str, object]) -> bool:
    """A container made by `compose run` beside the services."""
    return _labels(told).get(ONE_OFF_LABEL) == "True"


def state_of(told: dict[str, object]) -> ContainerState:
    """A container as `docker inspect` tells it."""
    state = told["State"]
    assert isinstance(state, dict)
    health = state.get("Health") or {}
    return ContainerState(
        service=_labels(told).get(SERVICE_LABEL, ""),
        container_id=str(told["Id"]),
        status=str(state["Status"]),
        exit_code=int(state["ExitCode"]),
        health="" if health.get("Status") in (None, "none") else str(health["Status"]),
        run=f"{told['Id']}@{state['StartedAt']}",
    )


def _labels(told: Mapping[str, object]) -> dict[str, str]:
    config = told["Config"]
    assert isinstance(config, dict)
    return dict(config.get("Labels") or {})
