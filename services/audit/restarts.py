"""Restarts of processes, and the windows in which they excuse redelivered messages.

The running service reads them from a file (`audit.restarts.file`): a JSON list of
`{"name": ..., "time_ms": ...}`; the embedded deployment's supervisor rewrites it whole as
`var/run/restarts.json`. A missing file means that nothing was restarted.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kafka2011.runtime.os_errors import reason_of
from kafka2011.services.audit.verdicts import UNREADABLE_WINDOW

# A redelivery shows up in windows that began before the restart, or while the restarted process
# and its peers were still dividing the partitions; after that nothing excuses an extra message.
REDELIVERY_GRACE_MS = 600_000


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that was started again during the run. `time_ms`: when it was started again."""

    name: str
    time_ms: int


def is_excused(
    window_start_ms: int, restarts: Iterable[Restart], grace_ms: int = REDELIVERY_GRACE_MS
) -> bool:
    """True when a restart explains extras in the window: it began before the restart was over."""
    return UNREADABLE_WINDOW < window_start_ms <= excused_up_to_ms(restarts, grace_ms)


def excused_up_to_ms(restarts: Iterable[Restart], grace_ms: int = REDELIVERY_GRACE_MS) -> int:
    """The latest start of a window that is excused; UNREADABLE_WINDOW for none."""
    return max((restart.time_ms + grace_ms for restart in restarts), default=UNREADABLE_WINDOW)


def read_restarts(path: Path | None) -> list[Restart]:
    """The restarts, oldest first. Raises ValueError (one line) when the file is no such list."""
    if path is None:
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {reason_of(error)}") from None
    try:
        return sorted(
            (Restart(str(entry["name"]), int(entry["time_ms"])) for entry in entries),
            key=lambda restart: restart.time_ms,
        )
    except (TypeError, KeyError, ValueError, OverflowError):
        raise ValueError(f"{path} is not a list of {{name, time_ms}}") from None
