"""Reads which processes were started again during the run: `var/run/restarts.json`.

The file is a JSON list of `{"name": ..., "time_ms": ...}`; the embedded deployment's supervisor
rewrites it whole. A missing file means that nothing was restarted.
"""

import json
from pathlib import Path

from kafka2011.services.audit.verdicts import Restart


def read_restarts(path: Path | None) -> list[Restart]:
    """The restarts, oldest first. Raises ValueError (one line) when the file is no such list."""
    if path is None:
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    try:
        return sorted(
            (Restart(str(entry["name"]), int(entry["time_ms"])) for entry in entries),
            key=lambda restart: restart.time_ms,
        )
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{path} is not a list of {{name, time_ms}}") from None
