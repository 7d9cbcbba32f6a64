"""Events as the uses get them."""

import itertools
from typing import Any

NOW_MS = 1_320_000_000_000

_numbers = itertools.count(1)


def event(time_ms: int = NOW_MS, **fields: Any) -> dict[str, Any]:
    """An event of its own guid, at `time_ms`."""
    guid = next(_numbers).to_bytes(16, "big")
    header = {"guid": guid, "time": time_ms, "server": "frontend-1", "service": "site"}
    return {"header": header, "event_time": time_ms, **fields}


def view(path: str, time_ms: int = NOW_MS, member: int = 1, host: str = "10.0.0.1") -> Any:
    return event(time_ms, member_id=member, path=path, host=host, agent="Mozilla")
