"""The containers of a replica set, for the part of the demo in which a leader loses its disk.

A member is a service of deploy/docker/replicated.yml with a container and a volume of its own.
"""

import json
import time
from collections.abc import Callable

from kafka2011.services.containers.engine import ComposeProject, EngineError
from kafka2011.services.embedded.lost_leader import BROKER_ID, SetNow

COMPOSE_FILES = "docker-compose.yml:deploy/docker/replicated.yml"
ASKED_IN = "audit"  # has the command, and is in the live network
ZOOKEEPER = "zookeeper-live:2181"
LOOK_INTERVAL_S = 1.0  # each look starts a program in a container
IN_SYNC = ("leader", "in sync")


class ContainerSet:
    """The `lost_leader.Scene` of a set in containers. Raises EngineError when an act fails."""

    def __init__(
        self, project: ComposeProject, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._project = project
        self._clock = clock
        self._due_s = clock()

    def look(self) -> SetNow | None:
        if self._clock() < self._due_s:
            return None
        words = ("kafka2011", "replicas", "show", str(BROKER_ID), "--json", "-z", ZOOKEEPER)
        try:
            (found,) = json.loads(self._project.execute(ASKED_IN, *words))
        except (EngineError, ValueError):
            return None
        finally:
            self._due_s = self._clock() + LOOK_INTERVAL_S
        members = {member["name"]: member["role"] for member in found["members"]}
        return SetNow(
            tuple(map(service_of, members)),
            frozenset(service_of(name) for name, role in members.items() if role in IN_SYNC),
            service_of(found["leader"]) if found["leader"] in members else "",
        )

    def kill(self, member: str) -> None:
        container = self._project.states()[member].container_id
        self._project.docker("rm", "--force", "--volumes", container)

    def wipe(self, member: str) -> str:
        volume = f"{self._project.name}_{member}"
        self._project.docker("volume", "rm", volume)
        return f"volume {volume}"

    def start(self, member: str) -> None:
        self._project.compose("up", "--detach", "--no-recreate", "--no-deps", member)


def service_of(name: str) -> str:
    """The service of a member: that of `a` has the broker's name alone."""
    return f"broker-{BROKER_ID}" if name == "a" else f"broker-{BROKER_ID}-{name}"
