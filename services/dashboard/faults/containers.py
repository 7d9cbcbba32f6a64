"""Breaks containers, where the container engine's socket was given to the dashboard on purpose.

Speaks the engine's HTTP interface over its Unix socket, and only to the containers of one Compose
project: a name that is not a service of it is refused. Who holds that socket is root on the host,
so it is never there by default (`make up CHAOS=on` gives it).
"""

import http.client
import json
import socket
from pathlib import Path
from urllib.parse import quote

from kafka2011.services.dashboard.faults.processes import ChaosRefused

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
# action -> the engine's word for it. A killed container is not started again by its restart
# policy: the engine takes a kill for a wish.
VERBS = {"kill": "kill", "pause": "pause", "continue": "unpause", "start": "start"}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


class EngineChaos:
    """The containers of the Compose project `project`, at the engine behind `path`."""

    def __init__(self, path: Path, project: str) -> None:
        self._path = path
        self._project = project

    def signal(self, action: str, name: str) -> str:
        """Kill, pause or continue the container of service `name`. Raises ChaosRefused."""
        if name == "dashboard":
            raise ChaosRefused("the dashboard does not break itself")
        self._ask("POST", f"/containers/{self._container_of(name)}/{VERBS[action]}")
        return f"{action}: container {name}"

    def start(self, name: str) -> str:
        """Start the container again; it serves some seconds later. Raises ChaosRefused."""
        self._ask("POST", f"/containers/{self._container_of(name)}/start")
        return f"container {name} started"

    def _container_of(self, name: str) -> str:
        labels = [f"{PROJECT_LABEL}={self._project}", f"{SERVICE_LABEL}={name}"]
        filters = quote(json.dumps({"label": labels}))
        answer = self._ask("GET", f"/containers/json?all=1&filters={filters}")
        try:
            found = json.loads(answer)
            return str(found[0]["Id"])
        except (ValueError, KeyError, TypeError, IndexError):
            raise ChaosRefused(f"no container {name!r} in project {self._project!r}") from None

    def _ask(self, method: str, path: str) -> bytes:
        connection = _UnixConnection(self._path)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise ChaosRefused(f"the container engine does not answer: {error}") from None
        finally:
            connection.close()
        if answer.status == http.HTTPStatus.NOT_MODIFIED:
            raise ChaosRefused("it runs already")
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ChaosRefused(_reason(body) or f"the engine answered {answer.status}")
        return body


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])[:200]
    except (ValueError, KeyError, TypeError):
        return ""
