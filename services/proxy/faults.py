"""The faults of a route, as a value, and the JSON that sets them.

    {"delay_ms": 100, "jitter_ms": 50}          later, each way
    {"rate_bytes_s": 375000}                    a narrow link, shared by all connections of a route
    {"cut": true}                               every connection reset, new ones refused
    {"hold": "to_server"}                       nothing passes; kept back and passed on when lifted
    {"blackhole": "both"}                       discarded; a stream with a gap is then reset
    {"flip": {"direction": "to_client", "after_bytes": 1000}}       one bit, once
    {"cut_after": {"direction": "to_server", "after_bytes": 1000}}  one connection ended, once
    {"drop_messages": {"topic": "page-view", "count": 3}}           exactly 3 messages

A change names only what it changes; `{"clear": true}` lifts everything first.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TO_SERVER = "to_server"
TO_CLIENT = "to_client"
DIRECTIONS = (TO_SERVER, TO_CLIENT)
NUMBER_MAX = 2**53


@dataclass(frozen=True)
class AfterBytes:
    """Something done once, after so many more bytes in that direction over the route."""

    direction: str
    after_bytes: int


@dataclass(frozen=True)
class DropMessages:
    """Remove `count` messages of `topic` from what clients produce, then no more."""

    topic: str
    count: int


@dataclass(frozen=True)
class Faults:
    """All faults of one route. The default is a healthy route."""

    delay_ms: int = 0
    jitter_ms: int = 0  # uniform, either way; never reorders
    rate_bytes_s: int = 0  # each direction; 0: no limit
    cut: bool = False
    hold: tuple[str, ...] = ()
    blackhole: tuple[str, ...] = ()
    flip: AfterBytes | None = None
    cut_after: AfterBytes | None = None
    drop_messages: DropMessages | None = None

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """The JSON that `parse_faults` makes these of: what is not as on a healthy route."""
        healthy = Faults().as_json()
        return json.dumps({name: at for name, at in self.as_json().items() if at != healthy[name]})


def parse_faults(text: str) -> Faults:
    """Faults from JSON text. Raises ValueError with one line."""
    try:
        change = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    return changed(Faults(), change)


def changed(faults: Faults, change: object) -> Faults:
    """`faults` with `change` (decoded JSON, see above) applied. Raises ValueError with one line.

    A fault that the change names is a new object, even if it is equal: so a one-time fault can be
    requested again.
    """
    if not isinstance(change, Mapping):
        raise ValueError("must be a JSON object")
    fields = {str(name): value for name, value in change.items()}
    if _boolean("clear", fields.pop("clear", False)):
        faults = Faults()
    parsed: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("delay_ms", "jitter_ms", "rate_bytes_s"):
            parsed[name] = _number(name, value)
        elif name == "cut":
            parsed[name] = _boolean(name, value)
        elif name in ("hold", "blackhole"):
            parsed[name] = _directions(name, value)
        elif name in ("flip", "cut_after"):
            parsed[name] = _after_bytes(name, value)
        elif name == "drop_messages":
            parsed[name] = _drop_messages(value)
        else:
            raise ValueError(f"unknown fault {name!r}")
    return dataclasses.replace(faults, **parsed)


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{name} must be a whole number, 0 or more")
    return value


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


def _directions(name: str, value: object) -> tuple[str, ...]:
    if value in ("none", None):
        return ()
    if value == "both":
        return DIRECTIONS
    if value in DIRECTIONS:
        return (str(value),)
    if isinstance(value, list | tuple) and all(one in DIRECTIONS for one in value):
        return tuple(one for one in DIRECTIONS if one in value)
    raise ValueError(f"{name} must be to_server, to_client, both or none")


def _members(name: str, value: object, wanted: tuple[str, str]) -> tuple[Any, Any]:
    if not isinstance(value, Mapping) or set(value) != set(wanted):
        raise ValueError(f"{name} must be null or an object of {wanted[0]} and {wanted[1]}")
    return value[wanted[0]], value[wanted[1]]


def _after_bytes(name: str, value: object) -> AfterBytes | None:
    if value is None:
        return None
    direction, after_bytes = _members(name, value, ("direction", "after_bytes"))
    if direction not in DIRECTIONS:
        raise ValueError(f"{name}.direction must be to_server or to_client")
    return AfterBytes(direction, _number(f"{name}.after_bytes", after_bytes))


def _drop_messages(value: object) -> DropMessages | None:
    if value is None:
        return None
    topic, count = _members("drop_messages", value, ("topic", "count"))
    if not isinstance(topic, str) or not topic:
        raise ValueError("drop_messages.topic must be a topic's name")
    return DropMessages(topic, _number("drop_messages.count", count))
