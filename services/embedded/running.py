"""The deployment that runs in the current directory: the addresses of a command that names none.

Reads the records that running supervisors keep (run/supervisor.json, see control.py) in the current
directory and below it: `var`, or what `--dir` named. It has no side effects and does not import
what runs a deployment, since most commands begin with it.
"""

import fcntl
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka2011.runtime.config import environment_name
from kafka2011.runtime.process_state import is_alive
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath, storage_path

RECORD = Path("run", "supervisor.json")
MARK = ".kafka2011"  # the file that marks a directory as made by a deployment, locked while it runs
LIVE, OFFLINE = "live", "offline"


@dataclass(frozen=True)
class Running:
    """A running deployment. `zookeeper`: each datacenter's `host:port`; `registry`: a URL or ""."""

    directory: Path
    zookeeper: Mapping[str, str]
    registry: str


def running_below(directory: Path) -> list[Running]:
    """The deployments whose data is in `directory`, directly below it or directly below its `var`,
    in this order."""
    found = []
    for pattern in (str(RECORD), f"*/{RECORD}", f"var/*/{RECORD}"):
        for path in sorted(directory.glob(pattern)):
            one = _read(path)
            if one is not None:
                found.append(one)
    return found


def _read(path: Path) -> Running | None:
    """The deployment of a record; None if that does not name both ZooKeepers, or its supervisor has
    ended, whose process id another may have since a reboot."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        one = Running(
            path.parent.parent,
            {name: str(record["zookeeper"][name]) for name in (LIVE, OFFLINE)},
            str(record.get("registry") or ""),
        )
        has_mark = (one.directory / MARK).is_file()  # an older version made none
        is_held = runs(one.directory) if has_mark else True
        return one if is_held and is_alive(record["pid"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def runs(root: Path) -> bool:
    """Whether a deployment holds this directory, even one that is still starting or stopping."""
    try:
        with open(root / MARK, "rb") as mark:
            fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def recorded_settings(root: Path, process: str, names: Iterable[str]) -> dict[str, str]:
    """Those of these settings that a process of the deployment in `root` was started with."""
    try:
        state = json.loads((root / "run" / f"{process}.json").read_text(encoding="utf-8"))
        found = {name: state["environment"].get(environment_name(name)) for name in names}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: str(value) for name, value in found.items() if value is not None}


def recorded_tables(root: Path) -> StoragePath | None:
    """Where the loader of the deployment in `root` puts its tables; None where there was none."""
    try:
        found = storage_path(recorded_settings(root, "loader", ["warehouse.dir"])["warehouse.dir"])
    except (ValueError, KeyError):
        return None
    # The directory may have been moved since, with the tables in it.
    return found if isinstance(found, ObjectPath) else root / "warehouse"
