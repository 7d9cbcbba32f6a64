"""Kills, pauses and starts processes of the embedded deployment below one directory.

The state files say which process groups belong to it, and its control socket starts a process
again. A name that is not in that deployment is refused.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

from kafka2011.runtime.process_state import is_paused, is_running, read_states
from kafka2011.services.dashboard.faults.actions import SIGNALS, FaultRefused

START_TIMEOUT_S = 90.0


class EmbeddedFaults:
    """The processes of the embedded deployment under `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _state(self, name: str) -> dict[str, Any]:
        for state in read_states(self._root):
            if state["name"] == name:
                return state
        raise FaultRefused(f"no process {name!r} in this deployment")

    def signal(self, action: str, name: str) -> str:
        """Send the action's signal to the process and all that it started."""
        state = self._state(name)
        if state.get("kind") == "dashboard":
            raise FaultRefused("the dashboard does not break itself")
        if not is_running(state):
            raise FaultRefused(f"{name} is not running")
        try:
            os.killpg(state["pid"], SIGNALS[action])
        except OSError:  # it has just ended
            raise FaultRefused(f"{name} is not running") from None
        return f"{SIGNALS[action].name} sent to {name}"

    def start(self, name: str) -> str:
        """Start it again through the supervisor; blocks until it serves."""
        return self._ask("start", name) or f"{name} started"

    def lose_disk(self, name: str) -> str:
        """Have the supervisor kill a replica and delete its disk."""
        return self._ask("lose-disk", name)

    def _ask(self, verb: str, name: str) -> str:
        self._state(name)
        state_file = self._root / "run" / "supervisor.json"
        try:
            supervisor = json.loads(state_file.read_text(encoding="utf-8"))
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(START_TIMEOUT_S)
                connection.connect(supervisor["socket"])
                connection.sendall(json.dumps({"verb": verb, "name": name}).encode() + b"\n")
                answer = connection.makefile(encoding="utf-8").readline().rstrip("\n")
        except (OSError, ValueError, KeyError):
            raise FaultRefused("the supervisor does not answer") from None
        if answer.startswith("error"):
            raise FaultRefused(answer)
        return answer


def paused_below(root: Path) -> list[str]:
    """The names of the deployment's processes that SIGSTOP has paused."""
    return [
        state["name"]
        for state in read_states(root)
        if is_paused(state["pid"]) and is_running(state)
    ]
