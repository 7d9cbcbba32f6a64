"""A replica set in ZooKeeper: its state node, the live members, and the address for clients.

Writes that are conditional on the state's version are sent once. A lost answer is not settled here:
the machine knows what to do with `Unanswered`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka2011.broker.replication.placement import Location
from kafka2011.broker.replication.set_state import Directory, SetState
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, CoordinationError
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.coordination.registry import ABSENT, Creation, Deletion, Registry
from kafka2011.coordination.replica_sets import (
    VERSION,
    UncleanRecord,
    encode_unclean,
    json_of,
)
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

CHANGES_MAX = 500  # in one transaction, which ZooKeeper bounds at 1 MiB


class NoSuchSet(CoordinationError):
    """No state node has this broker id. The text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class LiveReplica:
    """What a replica's process says of itself in its ephemeral node."""

    name: str
    address: BrokerAddress  # of its replica port
    pid: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The state as it was at `version`, and the directories whose process has a session."""

    version: int
    state: SetState
    live: Mapping[Directory, LiveReplica]


# --- values ---------------------------------------------------------------------------------------


def encode_state(state: SetState) -> bytes:
    wanted: dict[str, Any] = {}
    if state.wanted_leader is not None:
        wanted["leader"] = state.wanted_leader
    if state.wanted_min_insync is not None:
        wanted["min_insync"] = state.wanted_min_insync
    if state.moving:
        wanted["moves"] = dict(state.moving)
    value: dict[str, Any] = {
        "version": VERSION,
        "epoch": state.epoch,
        "leader": state.leader,
        "isr": sorted(state.isr),
        "eligible": sorted(state.eligible),
        "min_insync": state.min_insync,
        "members": [{"name": name, "directory": directory} for name, directory in state.members],
        "wanted": wanted,
    }
    if state.first is not None:
        value["first"] = state.first
    return json.dumps(value).encode()


def decode_state(data: bytes | None) -> SetState:
    """The state in a node's value. Raises BadZnode."""
    value = json_of(data, paths.VALUE_BYTES_MAX)
    try:
        wanted = _of_type(value["wanted"], dict)
        return SetState(
            epoch=_number(value["epoch"], 0),
            leader=_text_or_none(value["leader"]),
            isr=frozenset(_of_type(name, str) for name in value["isr"]),
            eligible=frozenset(_of_type(name, str) for name in value["eligible"]),
            min_insync=_number(value["min_insync"], 1),
            members=tuple(
                (_of_type(member["name"], str), _of_type(member["directory"], str))
                for member in value["members"]
            ),
            wanted_leader=_text_or_none(wanted.get("leader")),
            wanted_min_insync=_number(wanted["min_insync"], 1) if "min_insync" in wanted else None,
            first=_text_or_none(value.get("first")),
            moving=tuple(
                (new, _of_type(old, str))
                for new, old in _of_type(wanted.get("moves", {}), dict).items()
            ),
        )
    except (KeyError, TypeError) as error:
        raise BadZnode(f"not the state of a replica set: {error}: {data!r}") from None


def encode_live(replica: LiveReplica) -> bytes:
    value = {
        "version": VERSION,
        "name": replica.name,
        "replica": f"{replica.address.host}:{replica.address.port}",
        "pid": replica.pid,
    }
    return json.dumps(value).encode()


def decode_live(data: bytes | None) -> LiveReplica:
    """The replica in a live node's value. Raises BadZnode."""
    value = json_of(data, paths.VALUE_BYTES_MAX)
    try:
        host, _, port = _of_type(value["replica"], str).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise TypeError(f"replica {value['replica']!r}")
        address = BrokerAddress(host, int(port))
        return LiveReplica(_of_type(value["name"], str), address, _number(value["pid"], 0))
    except (KeyError, TypeError) as error:
        raise BadZnode(f"not a live replica: {error}: {data!r}") from None


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _number(value: Any, minimum: int) -> int:
    number: int = _of_type(value, int)
    if not minimum <= number < 2**31:
        raise TypeError(f"{number} is out of range")
    return number


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(_of_type(value, str))


# --- the node -------------------------------------------------------------------------------------


class SetNode:
    """One set. Every call waits for ZooKeeper: none belongs on the loop's thread."""

    def __init__(self, registry: Registry, broker_id: int) -> None:
        self._registry = registry
        self.broker_id = broker_id
        self.path = paths.replica_state_path(broker_id)

    def create(self, state: SetState) -> None:
        """Create the state node. Raises NodeExists, CoordinationError."""
        self._registry.create(self.path, encode_state(state))

    def read(self) -> Reading:
        """Read the state, then the live members: one that the state names may just have come.

        Raises NoSuchSet, BadZnode with the broker id, CoordinationUnavailable.
        """
        stored = self._registry.get(self.path)
        if stored is None:
            raise NoSuchSet(
                f"broker {self.broker_id} is no replica set: "
                f"kafka2011 replicas create {self.broker_id}"
            )
        try:
            state = decode_state(stored.value)
        except BadZnode as error:
            text = f"the replica set of broker {self.broker_id} cannot be read: {error}"
            raise BadZnode(text) from None
        live = {}
        for directory in self._registry.children(paths.replica_live_root(self.broker_id)):
            path = paths.replica_live_path(self.broker_id, directory)
            node = self._registry.get(path)
            if node is None:
                continue  # it left between the two reads
            try:
                live[directory] = decode_live(node.value)
            except BadZnode as error:
                _log.warning("znode_ignored", path=path, reason=str(error))
        return Reading(stored.version, state, live)

    def write(self, version: int, state: SetState) -> int:
        """Write the state over `version`; return the new one. Raises as `Registry.put_once`."""
        return self._registry.put_once(self.path, encode_state(state), version)

    def write_unclean(self, version: int, state: SetState, record: UncleanRecord) -> None:
        """Write the state of an unclean election over `version`, and its record, both or neither.

        A record that the epoch has is replaced: what it tells of is not what took place. Raises as
        `Registry.commit`; BadZnode: the record is too large.
        """
        path = paths.replica_unclean_path(self.broker_id, record.epoch)
        self._registry.ensure(paths.replica_unclean_root(self.broker_id))
        changes: list[Creation | Deletion] = []
        if self._registry.exists(path):
            changes.append(Deletion(path))
        changes.append(Creation(path, encode_unclean(record), is_ephemeral=False))
        self._registry.commit(self.path, version, changes, encode_state(state))

    def starts_of(self, directory: Directory) -> int:
        """How often a process of this directory took part. Raises CoordinationError."""
        return self._starts(directory)[0]

    def note_starts(self, directory: Directory, starts: int) -> None:
        """Record the number, unless a higher one is known. Raises CoordinationError."""
        known, version = self._starts(directory)
        if version == ABSENT or known < starts:
            path = paths.replica_starts_path(self.broker_id, directory)
            self._registry.put(path, paths.encode_number(starts), version)

    def _starts(self, directory: Directory) -> tuple[int, int]:
        """The number, and its node's version. What cannot be read is not passed over: then an older
        copy of the directory would not be known for one."""
        path = paths.replica_starts_path(self.broker_id, directory)
        stored = self._registry.get(path)
        if stored is None:
            return 0, ABSENT
        try:
            return paths.decode_offset(stored.value), stored.version
        except BadZnode:
            raise BadZnode(
                f"{path} is not a number of starts: {stored.value!r}; delete it if the directory "
                "is no older copy"
            ) from None

    def go_live(self, directory: Directory, replica: LiveReplica) -> None:
        """Create this process's live node. Raises NodeConflict: another session owns it, that of
        this directory's last run or of a copy of the directory."""
        path = paths.replica_live_path(self.broker_id, directory)
        self._registry.create_ephemeral(path, encode_live(replica))

    def forget_live(self, directory: Directory, found: bytes | None) -> None:
        """Delete the node of a process that has ended, if it still has this value."""
        path = paths.replica_live_path(self.broker_id, directory)
        stored = self._registry.get(path)
        if stored is not None and stored.value == found:
            self._registry.delete(path, stored.version)

    # --- where members are ---------------------------------------------------------------------

    def note_place(self, name: str, place: Location) -> None:
        """Record where a member is, to be known while it is away. Raises CoordinationError."""
        value = {"version": VERSION, "machine": place.machine, "rack": place.rack}
        self._registry.put(
            paths.replica_place_path(self.broker_id, name), json.dumps(value).encode()
        )

    def place_of(self, name: str) -> Location | None:
        """Where a member is; None if it was never started. Raises CoordinationError."""
        path = paths.replica_place_path(self.broker_id, name)
        stored = self._registry.get(path)
        if stored is None:
            return None
        try:
            value = json_of(stored.value, paths.VALUE_BYTES_MAX)
            return Location(_of_type(value["machine"], str), _of_type(value["rack"], str))
        except (BadZnode, KeyError, TypeError) as error:
            _log.warning("znode_ignored", path=path, reason=str(error))
            return None

    def forget_place(self, name: str) -> None:
        """Delete the place of a removed member. Raises CoordinationError."""
        self._registry.delete(paths.replica_place_path(self.broker_id, name))

    # --- the address ---------------------------------------------------------------------------

    def hide(self, version: int) -> None:
        """Delete the broker's nodes, whichever session owns them: the topics, then the id. Raises
        as `Registry.commit`."""
        registry = self._registry
        topics = registry.children(paths.BROKER_TOPICS)
        there = [paths.topic_broker_path(topic, self.broker_id) for topic in topics]
        there.append(paths.broker_id_path(self.broker_id))
        self._commit(version, [Deletion(path) for path in there if registry.exists(path)])

    def show(self, version: int, address: bytes, topics: Mapping[str, int]) -> None:
        """Register the id with the value `address`, then the topics with their numbers of
        partitions, replacing what is there. Raises as `Registry.commit`."""
        self._show(version, {paths.broker_id_path(self.broker_id): address})
        self.show_topics(version, topics)

    def show_topics(self, version: int, topics: Mapping[str, int]) -> None:
        """Register the topics alone; otherwise as `show`."""
        values = {topic: paths.encode_number(count) for topic, count in topics.items()}
        self._show(
            version,
            {paths.topic_broker_path(topic, self.broker_id): v for topic, v in values.items()},
        )

    def _show(self, version: int, wanted: Mapping[str, bytes]) -> None:
        registry = self._registry
        changes: list[Creation | Deletion] = []
        for path, value in wanted.items():
            registry.ensure(path.rpartition("/")[0])
            stored = registry.get(path)
            if stored is None or not stored.owned or stored.value != value:
                changes += [Deletion(path)] if stored is not None else []
                changes.append(Creation(path, value))
        self._commit(version, changes)

    def _commit(self, version: int, changes: list[Creation | Deletion]) -> None:
        for start in range(0, max(1, len(changes)), CHANGES_MAX):
            self._registry.commit(self.path, version, changes[start : start + CHANGES_MAX])
