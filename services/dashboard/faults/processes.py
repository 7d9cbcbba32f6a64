"""Breaks things, on purpose and only where that is enabled: signals, a cut link, dropped messages.

`Chaos` works on the embedded deployment below one directory, through what its own commands use:
the state files say which process groups are its own, its control socket starts a process again.
A name that is not in that deployment is refused. Containers: engine.py. Links and drops go through
the proxies' own /faults pages, wherever they run.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

SIGNALS = {
    "kill": signal.SIGKILL,
    "pause": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}
LINK_ACTIONS = ("cut", "mend", "delay", "narrow", "drop")
ACTIONS = (*SIGNALS, "start", *LINK_ACTIONS)
DROP_MAX = 1000
DELAY_MS = 400
NARROW_BYTES_S = 20_000
START_TIMEOUT_S = 90.0


class Breaker(Protocol):
    """What can kill, pause, continue and start a process by its name."""

    def signal(self, action: str, name: str) -> str: ...
    def start(self, name: str) -> str: ...


class ChaosRefused(ValueError):
    """What was asked for cannot be done. One line for the page."""


def action_from(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """(action, process name, details) of a request. Raises ChaosRefused."""
    try:
        asked = json.loads(body)
        action, name = asked["action"], asked["name"]
    except (ValueError, KeyError, TypeError):
        raise ChaosRefused("send {action, name}") from None
    if action not in ACTIONS or not isinstance(name, str):
        raise ChaosRefused(f"action must be one of {', '.join(ACTIONS)}")
    return action, name, asked


def faults_of(action: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The body for the proxy's /faults."""
    if action == "cut":
        return {"faults": {"cut": True}}
    if action == "delay":
        return {"faults": {"delay_ms": DELAY_MS}}
    if action == "narrow":
        return {"faults": {"rate_bytes_s": NARROW_BYTES_S}}
    if action == "mend":
        return {"faults": {"clear": True}}
    count, topic = details.get("count"), details.get("topic")
    if type(count) is not int or not 1 <= count <= DROP_MAX or not isinstance(topic, str):
        raise ChaosRefused(f"drop needs a topic and a count from 1 to {DROP_MAX}")
    return {"faults": {"drop_messages": {"topic": topic, "count": count}}}


class Chaos:
    """The processes of the embedded deployment under `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _state(self, name: str) -> dict[str, Any]:
        for path in (self._root / "run").glob("*.json"):
            try:
                state = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(state, dict) and "command" in state and state.get("name") == name:
                return state
        raise ChaosRefused(f"no process {name!r} in this deployment")

    def signal(self, action: str, name: str) -> str:
        """Send the action's signal to the process and all that it started."""
        state = self._state(name)
        if state.get("kind") == "dashboard":
            raise ChaosRefused("the dashboard does not break itself")
        try:
            os.killpg(int(state["pid"]), SIGNALS[action])
        except (OSError, ValueError, TypeError, KeyError):
            raise ChaosRefused(f"{name} does not run") from None
        return f"{SIGNALS[action].name} sent to {name}"

    def start(self, name: str) -> str:
        """Have the supervisor start it again; blocks until it serves."""
        self._state(name)
        try:
            place = json.loads((self._root / "run" / "supervisor.json").read_text(encoding="utf-8"))
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(START_TIMEOUT_S)
                connection.connect(place["socket"])
                connection.sendall(json.dumps({"verb": "start", "name": name}).encode() + b"\n")
                answer = connection.makefile(encoding="utf-8").readline().rstrip("\n")
        except (OSError, ValueError, KeyError):
            raise ChaosRefused("the supervisor does not answer") from None
        if answer.startswith("error"):
            raise ChaosRefused(answer)
        return answer or f"{name} started"
