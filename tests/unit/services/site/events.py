"""Events as the uses get them."""

import itertools
import math
import random
from typing import Any

from kafka2011.events import codec
from kafka2011.events.schemas import physical_schema
from kafka2011.events.topics import schema_name

NOW_MS = 1_320_000_000_000
# The values of the fields of `odd_event`: few, so that they meet, and the edges of their types.
_LONGS = (0, 1, 2, 3, 7, -1, 2**63 - 1, -(2**63), NOW_MS - 60_000)
_VALUES: dict[str, tuple[Any, ...]] = {
    "null": (None,),
    "boolean": (False, True),
    "int": (0, 1, 2, 9, 10, -1, 2**31 - 1, -(2**31)),
    "long": _LONGS,
    "double": (0.0, 1.0, -1.0, 0.95, 600.0, math.inf, -math.inf, math.nan, 1e308, 5e-324),
    "string": (
        *("", "a", "a\nb", "é|b", "x" * 900, "/", "/home", "/in/1", "/in/2?x", "answers"),
        *("cpu", "cpu.max", "memory", "memory.max", "disk.free", "disk.max"),
    ),
}

_numbers = itertools.count(1)


def event(time_ms: int = NOW_MS, **fields: Any) -> dict[str, Any]:
    """An event of its own guid, at `time_ms`."""
    guid = next(_numbers).to_bytes(16, "big")
    header = {"guid": guid, "time": time_ms, "server": "frontend-1", "service": "site"}
    return {"header": header, "event_time": time_ms, **fields}


def view(path: str, time_ms: int = NOW_MS, member: int = 1, host: str = "10.0.0.1") -> Any:
    return event(time_ms, member_id=member, path=path, host=host, agent="Mozilla")


def odd_event(topic: str, rng: random.Random, now_ms: int) -> dict[str, Any]:
    """An event that the topic's schema allows, of odd values, as a member hands it to a use."""
    named: dict[str, Any] = {}

    def value(kind: Any) -> Any:
        if isinstance(kind, list):
            return value(rng.choice(kind))
        kind = named.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, str):
            return rng.choice(_VALUES[kind])
        named[kind.get("name", "")] = kind
        if kind["type"] == "record":
            return {field["name"]: value(field["type"]) for field in kind["fields"]}
        if kind["type"] == "fixed":
            return rng.choice((0, rng.randrange(12), rng.getrandbits(64))).to_bytes(kind["size"])
        return value(kind["type"])

    found = value(physical_schema(schema_name(topic)))
    time_ms = rng.choice((now_ms, now_ms - rng.randrange(100_000), rng.choice(_LONGS)))
    found["header"]["time"] = min(time_ms, now_ms)
    return codec.decode_as(topic, codec.encode(topic, found))
