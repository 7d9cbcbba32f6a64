"""What a mirror keeps in ZooKeeper beside offsets: pauses, entries left out, its map of offsets.

Pauses are in the source's ZooKeeper: all members of the group heed them, including later ones. The
map is in the target's, because that is what is left when a consumer fails over.
"""

import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import cluster_id
from kafka2011.coordination.errors import BadZnode, CoordinationError, NodeExists
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.services.mirror_maker.offset_map import OffsetMap, decode_map, encode_map
from kafka2011.services.mirror_maker.set_cutting import RefusedEntry

ALL = "all"
LEFT_OUT_MAX = 100  # entries named for each partition; older ones are only counted
REASON_LENGTH_MAX = 200

log = get_logger(__name__)


class StillPaused(Exception):
    """A partition cannot be resumed while its whole topic is paused. One line."""


class Pauses:
    """A group's pauses. `changed` is called, from the registry's thread, when they change.

    Raises CoordinationError when the pauses cannot be read: what is paused must not be copied.
    """

    def __init__(self, registry: Registry, group: str, changed: Callable[[], None]) -> None:
        self._registry = registry
        self._path = paths.mirror_paused_path(group)
        self._changed = changed
        self._names: frozenset[str] = frozenset(registry.children(self._path))
        self._is_ready = False
        self._watch = registry.watch_children(self._path, self._seen)
        self._is_ready = True

    def holds(self, name: TopicPartition) -> bool:
        names = self._names
        partition = f"{name.broker_id}-{name.partition}"
        return f"{ALL}:{name.topic}" in names or f"{partition}:{name.topic}" in names

    def change(self, topic: str, partition: str, paused: bool) -> None:
        """Store a change. Raises CoordinationError, or StillPaused if it would have no effect."""
        node = f"{partition or ALL}:{topic}"
        if paused:
            try:
                self._registry.create(f"{self._path}/{node}")
            except NodeExists:
                pass
            self._names |= {node}
            return
        stored = self._registry.children(self._path)
        if partition and f"{ALL}:{topic}" in stored:
            raise StillPaused(
                f"all of {topic} is paused: resume the topic, then pause what is to be"
            )
        gone = {name for name in stored if name == node}
        if not partition:
            gone |= {name for name in stored if name.partition(":")[2] == topic}
        for name in gone:
            self._registry.delete(f"{self._path}/{name}")
        self._names -= gone

    def close(self) -> None:
        self._watch.cancel()

    def _seen(self, names: list[str]) -> None:
        self._names = frozenset(names)
        if self._is_ready:  # not while the mirror is still being made
            self._changed()


class LeftOutEntry(NamedTuple):
    """One line of `kafka2011 mirror refused`: an entry that the target does not have."""

    topic: str
    source: str  # <broker id>-<partition>
    offset: int
    bytes: int
    at_ms: int  # when it was left out, ms since the epoch
    reason: str


class LeftOutEntries:
    """The records of one group, in the source's ZooKeeper, where the entries are."""

    def __init__(self, registry: Registry, group: str) -> None:
        self._registry = registry
        self._group = group

    def add(self, name: TopicPartition, entry: RefusedEntry) -> None:
        """Record an entry, only once even if it is met again. Raises CoordinationError."""
        source = BrokerPartition(name.broker_id, name.partition)
        path = paths.mirror_refused_path(self._group, name.topic, source)
        stored = self._registry.get(path)
        try:
            count, found = decode_left_out(name.topic, source.text, stored and stored.value)
        except BadZnode as error:
            log.error("record_ignored", path=path, reason=str(error))
            count, found = 0, []
        if any(one.offset == entry.offset for one in found):
            return
        reason = entry.reason[:REASON_LENGTH_MAX]
        place = name.topic, source.text, entry.offset, entry.size
        found.append(LeftOutEntry(*place, now_ms(), reason))
        entries = [
            {"offset": one.offset, "bytes": one.bytes, "at_ms": one.at_ms, "reason": one.reason}
            for one in found[-LEFT_OUT_MAX:]
        ]
        self._registry.put(path, json.dumps({"count": count + 1, "entries": entries}).encode())


def decode_left_out(topic: str, source: str, value: bytes | None) -> tuple[int, list[LeftOutEntry]]:
    """The number of entries left out, and the newest of them. Raises BadZnode."""
    if value is None:
        return 0, []
    try:
        read: Any = json.loads(value)
        found = [
            LeftOutEntry(
                topic,
                source,
                int(one["offset"]),
                int(one["bytes"]),
                int(one["at_ms"]),
                str(one["reason"]),
            )
            for one in read["entries"]
        ]
        return int(read["count"]), found
    except (ValueError, KeyError, TypeError) as error:
        raise BadZnode(f"not a record of entries left out: {error!r}") from None


def read_left_out(registry: Registry, group: str, topic: str = "") -> list[LeftOutEntry]:
    """The entries that the mirrors of `group` left out, of one topic or of all.

    Raises CoordinationError; BadZnode for a record that no mirror wrote.
    """
    found = []
    root = paths.mirror_refused_root(group)
    for name in [topic] if topic else registry.children(root):
        for source in registry.children(f"{root}/{name}"):
            stored = registry.get(f"{root}/{name}/{source}")
            found += decode_left_out(name, source, stored and stored.value)[1]
    return found


class _Open(NamedTuple):
    path: str
    target: BrokerPartition
    offsets: OffsetMap


class StoredOffsetMaps:
    """The maps of one group's copies into one target cluster."""

    def __init__(self, source: Registry, target: Registry, group: str) -> None:
        self._source = source
        self._target = target
        self._group = group
        self._cluster_id = ""
        self._open: dict[TopicPartition, _Open] = {}

    def open(self, name: TopicPartition, target: BrokerPartition) -> OffsetMap:
        """The map of this copy, begun anew if its target has changed.

        Raises CoordinationError.
        """
        self._cluster_id = self._cluster_id or cluster_id(self._source)
        source = BrokerPartition(name.broker_id, name.partition)
        path = paths.mirror_offsets_path(self._group, self._cluster_id, name.topic, source)
        offsets = OffsetMap()
        stored = self._target.get(path)
        if stored is not None:
            try:
                known_target, known = decode_map(stored.value)
                if known_target == target.text:
                    offsets = known
            except BadZnode as error:
                log.error("offset_map_ignored", path=path, reason=str(error))
        self._open[name] = _Open(path, target, offsets)
        return offsets

    def store(self, lock: threading.Condition) -> None:
        """Write the maps that changed; one that cannot be written now is written later."""
        for one in list(self._open.values()):
            with lock:
                if not one.offsets.is_changed:
                    continue
                one.offsets.is_changed = False
                value = encode_map(one.target.text, one.offsets)
            try:
                self._target.put(one.path, value)
            except CoordinationError as error:
                with lock:
                    one.offsets.is_changed = True
                log.warning("offset_map_not_stored", path=one.path, reason=str(error))
                return


class MappedOffset(NamedTuple):
    """One line of `kafka2011 mirror offsets`."""

    cluster: str  # id of the source cluster
    source: str  # <broker id>-<partition>
    source_offset: int
    target: str
    target_offset: int
    is_exact: bool  # the same message; else an earlier place: some messages come again


def read_maps(
    target: Registry, group: str, topic: str, partition: str | None, source_offset: int | None
) -> list[MappedOffset]:
    """Where `source_offset` is at the target; without it, how far each map reaches.

    Raises CoordinationError; BadZnode for a map that no mirror wrote.
    """
    found = []
    root = paths.mirror_offsets_root(group)
    for cluster in target.children(root):
        for source in target.children(f"{root}/{cluster}/{topic}"):
            if partition is not None and source != partition:
                continue
            stored = target.get(f"{root}/{cluster}/{topic}/{source}")
            if stored is None:
                continue
            place, offsets = decode_map(stored.value)
            if not offsets.segments:
                continue
            wanted = offsets.segments[-1].source_to if source_offset is None else source_offset
            translation = offsets.translate(wanted)
            if translation is not None:
                found.append(MappedOffset(cluster, source, wanted, place, *translation))
    return found


class TracedCopy(NamedTuple):
    """The map of one source partition into its present target partition."""

    source: BrokerPartition
    target: BrokerPartition
    offsets: OffsetMap


def traced_copies(source: Registry, target: Registry, group: str, topic: str) -> list[TracedCopy]:
    """The maps of a topic's copies from one cluster into another.

    Raises CoordinationError; BadZnode for a map that no mirror wrote.
    """
    identity = source.get(paths.CLUSTER_ID)
    if identity is None or not identity.value:
        return []  # nothing was ever mirrored from there
    root = f"{paths.mirror_offsets_root(group)}/{identity.value.decode()}/{topic}"
    found = []
    for name in target.children(root):
        stored = target.get(f"{root}/{name}")
        if stored is not None:
            place, offsets = decode_map(stored.value)
            names = paths.decode_broker_partition(name), paths.decode_broker_partition(place)
            found.append(TracedCopy(*names, offsets))
    return found
