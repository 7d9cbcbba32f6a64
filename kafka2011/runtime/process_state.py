"""What is known of another process of this machine: from its deployment's files, and the kernel."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_states(root: Path) -> list[dict[str, Any]]:
    """The state files of the processes below `root`, by name. Other files are left out."""
    states = []
    for path in sorted((root / "run").glob("*.json")):
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(state, dict) and {"name", "pid", "command"} <= state.keys():
            states.append(state)
    return states


def is_alive(pid: int | None) -> bool:
    """Whether a process of this id runs (a zombie does not)."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def is_hidden(pid: int | None) -> bool:
    """Whether a process of this id runs and cannot be looked at, since it is another user's."""
    return is_alive(pid) and not os.access(f"/proc/{pid}/environ", os.R_OK)


def is_ours(pid: int | None, name: str, settings: Mapping[str, str] | None = None) -> bool:
    """Whether `pid` is the process that was started as `name`, with these `settings`, which tell it
    from another deployment's. A reused pid belongs to another process, which must not be signalled.
    """
    if not is_alive(pid):
        return False
    try:
        variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = {**(settings or {}), "KAFKA2011_PROCESS_NAME": name}
    return {os.fsencode(f"{key}={value}") for key, value in wanted.items()} <= set(variables)


def is_running(state: Mapping[str, Any]) -> bool:
    """Whether the process of a state file is still there, and not another one with its pid: neither
    a stranger's nor that of the same name in another deployment."""
    return is_ours(state.get("pid"), str(state.get("name")), state.get("environment"))


def is_paused(pid: int | None) -> bool:
    """Whether SIGSTOP holds the process."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
