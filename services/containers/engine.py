"""Talks to the container engine through its own commands: docker, and Compose of either generation.

Commands and not a library: what is needed is little, and they are there wherever `make up` works.
Containers are found by the labels that both generations of Compose put on them; their names differ.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
ONE_OFF_LABEL = "com.docker.compose.oneoff"
COMMAND_TIMEOUT_S = 60.0


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
        self._environment = {**environment, "COMPOSE_PROJECT_NAME": name}

    def compose(self, *words: str, profiles: str = "", timeout_s: float = 600.0) -> str:
        """Run Compose; its standard output. Raises EngineError with the last line of its errors."""
        return self._run(
            [str(self._root / "tools" / "compose.sh"), *words],
            {**self._environment, "COMPOSE_PROFILES": profiles},
            timeout_s,
        )

    def bring_up(self, profiles: str = "", timeout_s: float = 1200.0) -> None:
        """As `make up`: what sends messages last; returns when all serves. Raises EngineError."""
        self._run(
            [str(self._root / "tools" / "up.sh"), self.name],
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

    def attached(self, *words: str) -> int:
        """Run a docker command whose output goes straight to the terminal; its exit status."""
        return subprocess.run(
            ["docker", *words], env=self._environment, cwd=self._root, check=False
        ).returncode

    def _run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        stdin: str | None = None,
    ) -> str:
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=self._root,
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"{command[0]} {command[1]}: not done in {timeout_s:.0f} s") from None
        except OSError as error:
            raise EngineError(f"{command[0]}: {error.strerror}") from None
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason given"]
            raise EngineError(f"{Path(command[0]).name} {command[1]}: {lines[-1]}")
        return done.stdout


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
