"""A replica set as seen from outside: its leader, its in-sync members, and what was lost.

Its own processes read the same node in `broker.replica.set_node`, with everything they need.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.registry import Registry
from kafka2011.runtime.clock import TIME_MS_MAX
from kafka2011.runtime.logs import get_logger

_log = get_logger(__name__)

VERSION = 1
Role = str  # leader, in sync, eligible, behind (alive, but not in sync), joining, away, ...
STRANGERS_MAX = 16  # live directories of no member, whose names are read


def role_of(
    directory: str,
    *,
    leader: str | None,
    isr: frozenset[str],
    eligible: frozenset[str],
    is_live: bool,
) -> Role:
    """A member's role in its set, by its directory, in a few words."""
    if not is_live:
        return "away, in sync" if directory in isr else "away"
    if directory == leader:
        return "leader"
    if directory in isr:
        return "in sync"
    return "eligible" if directory in eligible else "behind"


@dataclass(frozen=True, slots=True)
class SetMember:
    """A member; `directory` is "" before its first start."""

    name: str
    directory: str
    role: Role

    @property
    def is_whole(self) -> bool:
        return self.role in ("leader", "in sync")


@dataclass(frozen=True, slots=True)
class SetView:
    """A set. `leader` is a member's name; None while no replica leads, or the one that does has no
    session. `candidates` are the names of members that may lead."""

    broker_id: int
    epoch: int
    leader: str | None
    min_insync: int
    in_sync: int
    candidates: tuple[str, ...]
    members: tuple[SetMember, ...]

    @property
    def trouble(self) -> str:
        """What is not as it should be, in one line; "" when every member is in sync."""
        if self.leader is None:
            candidates = [member for member in self.members if member.name in self.candidates]
            away = [member.name for member in candidates if "away" in member.role]
            empty = [member.name for member in candidates if member.role == "joining"]
            reasons = [f"{', '.join(away)} down"] if away else []
            reasons += [f"{', '.join(empty)} joining with another directory"] if empty else []
            why = f": {'; '.join(reasons)}" if reasons else ""
            return f"broker {self.broker_id} has no leader{why}"
        lacking = [f"{member.name} {member.role}" for member in self.members if not member.is_whole]
        if not lacking:
            return ""
        text = f"broker {self.broker_id} is under-replicated: {', '.join(lacking)}"
        if self.in_sync < self.min_insync:
            text += f"; {self.in_sync} of min_insync {self.min_insync}: nothing is confirmed"
        return text


def set_ids(registry: Registry) -> list[int]:
    """The broker ids that are replica sets, sorted."""
    return sorted(
        int(name) for name in registry.children(paths.REPLICAS) if paths.is_broker_id(name)
    )


def set_views(registry: Registry) -> dict[int, SetView]:
    """All sets by broker id. One that cannot be read is logged and left out."""
    found = {}
    for broker_id in set_ids(registry):
        try:
            view = set_view(registry, broker_id)
        except BadZnode as error:
            path = paths.replica_state_path(broker_id)
            _log.warning("znode_ignored", path=path, reason=str(error))
            continue
        if view is not None:
            found[broker_id] = view
    return found


def set_view(registry: Registry, broker_id: int) -> SetView | None:
    """Read a set; None when that broker id has none. Raises BadZnode."""
    stored = registry.get(paths.replica_state_path(broker_id))
    if stored is None:
        return None
    live = frozenset(registry.children(paths.replica_live_root(broker_id)))
    view = decode_view(broker_id, stored.value, live)
    strangers = sorted(live - {member.directory for member in view.members})[:STRANGERS_MAX]
    if not strangers:
        return view
    nodes = [registry.get(paths.replica_live_path(broker_id, one)) for one in strangers]
    joining = frozenset(_name_of(node.value) for node in nodes if node is not None)
    return decode_view(broker_id, stored.value, live, joining)


def _name_of(value: bytes | None) -> str:
    """The name of the replica in a live node; "" if it cannot be read."""
    try:
        return str(json_of(value).get("name", ""))
    except BadZnode:
        return ""


def decode_view(
    broker_id: int,
    value: bytes | None,
    live: frozenset[str],
    joining: frozenset[str] = frozenset(),
) -> SetView:
    """Decode a set's state. `live`: the directories whose process has a session; `joining`: the
    names of processes whose directory is about to become their member's. Raises BadZnode."""
    state = json_of(value)
    try:
        leader = state["leader"]
        isr, eligible = frozenset(state["isr"]), frozenset(state["eligible"])
        members = tuple(
            SetMember(
                str(one["name"]),
                str(one["directory"]),
                "joining"
                if one["name"] in joining and one["directory"] not in live
                else role_of(
                    one["directory"],
                    leader=leader,
                    isr=isr,
                    eligible=eligible,
                    is_live=one["directory"] in live,
                ),
            )
            for one in state["members"]
        )
        return SetView(
            broker_id,
            int(state["epoch"]),
            next((one.name for one in members if one.role == "leader"), None),
            int(state["min_insync"]),
            len(isr),
            tuple(one.name for one in members if one.directory in isr | eligible),
            members,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadZnode(f"not the state of a replica set: {error!r}") from None


# --- unclean elections ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UncleanRecord:
    """An unclean election: a set went on with a copy that may lack what was confirmed.

    `epoch` is the one that `elected` takes. `gone` are the directories that had everything, with
    the names of their members. `ends` is where the elected copy's logs ended, by the name of the
    partition's directory: what was confirmed beyond is lost.
    """

    epoch: int
    at_ms: int
    by: str
    elected: str
    directory: str
    gone: Mapping[str, str]
    ends: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "at_ms": self.at_ms,
            "by": self.by,
            "elected": self.elected,
            "directory": self.directory,
            "gone": dict(self.gone),
            "ends": dict(self.ends),
        }

    @property
    def reason(self) -> str:
        """The reason for what was lost by it, in one line."""
        return f"unclean election of {self.elected} in epoch {self.epoch}, by {self.by}"


def encode_unclean(record: UncleanRecord) -> bytes:
    """The value of the record's node. Raises BadZnode: it is too large."""
    value = json.dumps(record.as_json()).encode()
    if len(value) > paths.UNCLEAN_BYTES_MAX:
        raise BadZnode(f"the record of {len(record.ends)} partitions has {len(value)} bytes")
    return value


def unclean_elections(registry: Registry, view: SetView) -> list[UncleanRecord]:
    """The unclean elections of the set that took place by then, by epoch."""
    root = paths.replica_unclean_root(view.broker_id)
    names = registry.children(root)
    state = registry.stat(paths.replica_state_path(view.broker_id)) if names else None
    if state is None:
        return []
    # Older ones are of a set that had the id before. Its epochs say nothing of this one's.
    stats = {name: registry.stat(f"{root}/{name}") for name in names}
    own = [name for name, stat in stats.items() if stat and stat.modified > state.created]
    # Of a later epoch: the elected member has not taken over yet.
    return [record for record in _records(registry, root, own) if record.epoch <= view.epoch]


def _records(registry: Registry, root: str, names: list[str]) -> list[UncleanRecord]:
    """Those that can be read, by epoch; another is logged."""
    found = []
    for name in names:
        stored = registry.get(f"{root}/{name}")
        if stored is None:
            continue
        try:
            found.append(_decode_unclean(stored.value))
        except BadZnode as error:
            _log.warning("znode_ignored", path=f"{root}/{name}", reason=str(error))
    return sorted(found, key=lambda record: record.epoch)


def _decode_unclean(value: bytes | None) -> UncleanRecord:
    record = json_of(value)
    try:
        at_ms = int(record["at_ms"])
        if not 0 <= at_ms <= TIME_MS_MAX:
            raise ValueError(f"at_ms {at_ms}")
        return UncleanRecord(
            int(record["epoch"]),
            at_ms,
            str(record["by"]),
            str(record["elected"]),
            str(record["directory"]),
            {str(directory): str(name) for directory, name in record["gone"].items()},
            {str(partition): int(end) for partition, end in record["ends"].items()},
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadZnode(f"not a record of an unclean election: {error!r}") from None


def json_of(value: bytes | None, bytes_max: int = paths.UNCLEAN_BYTES_MAX) -> dict[str, Any]:
    """The JSON object in a set's node. Raises BadZnode: it is absent, larger than `bytes_max`, no
    JSON object, or of another version."""
    if value is None or len(value) > bytes_max:
        raise BadZnode("not JSON of a replica set")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise BadZnode(f"not JSON: {value[:64]!r}") from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise BadZnode(f"not JSON of version {VERSION}: {value[:64]!r}")
    return found
