"""What is known of another process of this machine: from its deployment's files, and the kernel."""

import json
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


def is_paused(pid: int | None) -> bool:
    """Whether SIGSTOP holds the process."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
