"""The audit's service and its command, for tests that let messages disappear."""

import json
from pathlib import Path
from typing import Any

from tests.support.commands import RunningProcess, run, start_command
from tests.unit.services.audit.samples import WINDOW_MS


def start_audit(root: Path, zk: dict[str, str], name: str = "audit", **more: Any) -> RunningProcess:
    """The service over the tiers of `zk` (tier -> connect string), with its data in `root/name`."""
    settings = {
        **{f"{tier}.zk.connect": connect for tier, connect in zk.items()},
        "data.dir": root / name,
        "audit.window.ms": WINDOW_MS,
        "audit.refresh.ms": 100,
        "metrics.port": 0,
        "process.name": name,
        **more,
    }
    return start_command("audit serve", settings, root / f"{name}.log")


def summary(audit: RunningProcess) -> dict[str, Any]:
    found: dict[str, Any] = audit.get_json("/audit/summary")
    return found


def report(*words: object) -> tuple[int, dict[str, Any]]:
    """`kafka2011 audit --json ...`: status and report."""
    done = run("audit", "--json", "--forms", "*:2011", *words, status=None)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)
