"""Actions that the dashboard may apply: requests checked, and translated for the proxies. Pure.

Killing, pausing and starting go to a `FaultInjector`: processes.py for the embedded deployment,
containers.py for containers. Faults of links go to the proxies' own /faults, wherever they run.
"""

import json
import signal
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kafka2011.services.dashboard.rows.replica_sets import WHOLE

SIGNALS = {
    "kill": signal.SIGKILL,
    "pause": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}
LINK_ACTIONS = ("cut", "mend", "delay", "narrow", "drop")
LOSE_DISK = "lose-disk"  # killed, and all that it has stored deleted
ACTIONS = (*SIGNALS, "start", LOSE_DISK, *LINK_ACTIONS)
DROP_MAX = 1000
DELAY_MS = 400
NARROW_BYTES_S = 20_000


class FaultInjector(Protocol):
    """Kills, pauses, continues and starts a process by its name. Raises FaultRefused."""

    def signal(self, action: str, name: str) -> str: ...
    def start(self, name: str) -> str: ...


class FaultRefused(ValueError):
    """The action cannot be applied. One line for the user."""


def parse_action(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """(action, process name, details) of a request. Raises FaultRefused."""
    try:
        request = json.loads(body)
        action, name = request["action"], request["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FaultRefused("send {action, name}") from None
    if action not in ACTIONS or not isinstance(name, str):
        raise FaultRefused(f"action must be one of {', '.join(ACTIONS)}")
    return action, name, request


def check_expendable(sets: Iterable[Mapping[str, Any]], name: str) -> None:
    """Raise FaultRefused unless the process leads a replica set whose members are all in sync: any
    other disk could be the last with a confirmed message. `sets` are rows of the section `sets`."""
    led = [row for row in sets if row["leader"] == name]
    if not led:
        raise FaultRefused(f"{name} does not lead a replica set")
    row = led[0]
    if len(row["members"]) == 1:
        raise FaultRefused(f"{name} has the only copy")
    if row["state"] != WHOLE or row["is_old"]:
        raise FaultRefused(
            f"not now: {'ZooKeeper does not answer' if row['is_old'] else row['text']}"
        )


def proxy_faults(action: str, details: Mapping[str, Any]) -> dict[str, Any]:
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
        raise FaultRefused(f"drop needs a topic and a count from 1 to {DROP_MAX}")
    return {"faults": {"drop_messages": {"topic": topic, "count": count}}}
