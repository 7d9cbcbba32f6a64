"""Kills, pauses and starts containers, where the dashboard was given the engine's socket.

Only containers of one Compose project: a name that is not a service of it is refused. The socket's
holder is root on the host, so it is never mounted by default (`make up CHAOS=on` mounts it).
"""

from pathlib import Path

import docker
from docker.errors import APIError, DockerException
from docker.models.containers import Container

from kafka2011.services.dashboard.faults.actions import FaultRefused

TIMEOUT_S = 30
PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"


class ContainerFaults:
    """The containers of the Compose project `project`, at the engine behind `path`.

    A killed container is not started again by its restart policy: the engine takes a kill for the
    user's intention.
    """

    def __init__(self, path: Path, project: str) -> None:
        self._path = path.absolute()
        self._project = project

    def signal(self, action: str, name: str) -> str:
        """Kill, pause or continue the container of service `name`. Raises FaultRefused."""
        if name == "dashboard":
            raise FaultRefused("the dashboard does not break itself")
        self._apply(action, name)
        return f"{action}: container {name}"

    def start(self, name: str) -> str:
        """Start the container again; it serves some seconds later. Raises FaultRefused."""
        self._apply("start", name)
        return f"container {name} started"

    def _apply(self, action: str, name: str) -> None:
        if not self._path.is_socket():
            raise FaultRefused(f"the container engine does not answer: no socket {self._path}")
        try:
            client = docker.DockerClient(f"unix://{self._path}", timeout=TIMEOUT_S)
        except DockerException as error:
            raise FaultRefused(f"the container engine does not answer: {error}") from None
        try:
            container = self._container(client, name)
            match action:
                case "kill":
                    container.kill()
                case "pause":
                    container.pause()
                case "continue":
                    container.unpause()
                case "start":
                    if container.status == "running":
                        raise FaultRefused("it is already running")
                    container.start()
        except APIError as error:
            raise FaultRefused(str(error.explanation or error)[:200]) from None
        except (DockerException, OSError) as error:
            raise FaultRefused(f"the container engine does not answer: {error}") from None
        finally:
            client.close()

    def _container(self, client: docker.DockerClient, name: str) -> Container:
        labels = [f"{PROJECT_LABEL}={self._project}", f"{SERVICE_LABEL}={name}"]
        found = client.containers.list(all=True, sparse=True, filters={"label": labels})
        if not found:
            raise FaultRefused(f"no container {name!r} in project {self._project!r}")
        return found[0]
