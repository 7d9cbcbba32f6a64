"""The stored offsets of a group: read, export, import, reset.

The export form is that of 0.7's ExportZkOffsets: one line a partition,

    /consumers/<group>/offsets/<topic>/<broker id>-<partition>:<offset>

up to the end or an empty line. `plan_reset` returns the changes, to be shown; `apply` makes them,
and overwrites a node only in the version that the plan was made from.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.partition_counts import PartitionCounts
from kafka2011.consumer.tools.cluster_state import PartitionEnds
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, CoordinationError, VersionConflict
from kafka2011.coordination.paths import OFFSET_MAX, BrokerPartition
from kafka2011.coordination.registry import ABSENT, Registry, Stored
from kafka2011.protocol.errors import IllegalTopicName
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.clock import now_ms

EARLIEST, LATEST = "earliest", "latest"
NOT_MOVED, COUNTS_ANEW = "not moved", "counting begins anew"

_LINE = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]{1,10}-[0-9]{1,10}):([0-9]{1,19})")


class BadExport(ValueError):
    """An invalid line in an export file; the text says which, and why."""


class StoppedHalfWay(CoordinationError):
    """ZooKeeper failed at the first change of `left`, which may have been made; the others of
    `left` were not. `made` were made, `refused` were refused as in `apply`."""

    def __init__(
        self,
        cause: CoordinationError,
        made: "Sequence[Change]",
        refused: "Sequence[Change]",
        left: "Sequence[Change]",
    ) -> None:
        total = len(made) + len(refused) + len(left)
        super().__init__(f"{cause}: {len(made)} of {total} offsets were changed; run it again")
        self.made = made
        self.refused = refused
        self.left = left


class GroupOffset(NamedTuple):
    """A group's offset of a partition; None: the node does not exist, or has no valid offset."""

    group: str
    name: TopicPartition
    offset: int | None
    version: int = ABSENT

    @property
    def path(self) -> str:
        return paths.offset_path(self.group, self.name.topic, BrokerPartition(*self.name[1:]))

    @property
    def evidence_paths(self) -> tuple[str, str]:
        """Of what shows which log the offset is of: its tail, and a mirror's epochs."""
        where = self.group, self.name.topic, BrokerPartition(*self.name[1:])
        return paths.tail_path(*where), paths.mirror_lineage_path(*where)

    @property
    def counts_path(self) -> str:
        return paths.counts_path(self.group, self.name.topic, BrokerPartition(*self.name[1:]))


@dataclass(frozen=True, slots=True)
class Change:
    """One partition's offset before and after; `after` None: it cannot be changed, for the reason
    in `note`. Else the note says what is not seen from the two offsets."""

    before: GroupOffset
    after: int | None
    note: str = ""

    @property
    def is_needed(self) -> bool:
        return self.after is not None and self.after != self.before.offset


@dataclass(frozen=True, slots=True)
class Target:
    """The new position: `end` is EARLIEST or LATEST, or "" with one of `time_ms` and `offset`."""

    end: str = ""
    time_ms: int | None = None
    offset: int | None = None


# --- stored offsets --------------------------------------------------------------------------


def stored_offsets(
    registry: Registry, group: str, topics: Iterable[str] | None = None
) -> list[GroupOffset]:
    """All stored offsets of the group (of these topics), sorted by topic, broker, partition."""
    wanted = None if topics is None else set(topics)
    found = []
    for topic in registry.children(f"{paths.group_path(group)}/offsets"):
        if wanted is not None and topic not in wanted:
            continue
        for text in registry.children(paths.offsets_path(group, topic)):
            try:
                name = TopicPartition(topic, *paths.decode_broker_partition(text))
            except BadZnode:
                continue  # not a partition's name: no consumer reads it
            found.append(read_offset(registry, group, name))
    return sorted(found, key=lambda one: one.name)


def read_offset(registry: Registry, group: str, name: TopicPartition) -> GroupOffset:
    path = paths.offset_path(group, name.topic, BrokerPartition(*name[1:]))
    stored = registry.get(path)
    if stored is None:
        return GroupOffset(group, name, None)
    try:
        return GroupOffset(group, name, paths.decode_offset(stored.value), stored.version)
    except BadZnode:
        return GroupOffset(group, name, None, stored.version)


def live_members(registry: Registry, group: str) -> list[str]:
    return registry.children(paths.consumer_ids_path(group))


# --- the export file -------------------------------------------------------------------------


def export_lines(offsets: Iterable[GroupOffset]) -> list[str]:
    """Lines without their ends; a node without a valid offset is left out."""
    return [f"{one.path}:{one.offset}" for one in offsets if one.offset is not None]


def parse_export(lines: Iterable[str]) -> list[GroupOffset]:
    """The offsets of an export file; as in 0.7, up to the first empty line.

    Raises BadExport, with the number of the line.
    """
    found: dict[tuple[str, TopicPartition], tuple[int, GroupOffset]] = {}
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r\n")
        if not line.strip():
            break
        match = _LINE.fullmatch(line)
        if match is None or int(match[4]) > OFFSET_MAX or not _are_names(match[1], match[2]):
            raise BadExport(
                f"line {number} is not /consumers/GROUP/offsets/TOPIC/BROKER-PARTITION:OFFSET: "
                f"{line[:200]!r}"
            )
        name = TopicPartition(match[2], *paths.decode_broker_partition(match[3]))
        before = found.get((match[1], name))
        if before is not None:
            raise BadExport(f"line {number} names {name} of group {match[1]} as line {before[0]}")
        found[match[1], name] = (number, GroupOffset(match[1], name, int(match[4])))
    return [one for _, one in found.values()]


def _are_names(*names: str) -> bool:
    """Whether these can be parts of a path, by 0.7's own rule."""
    try:
        for name in names:
            check_topic(name, "0.7")
    except IllegalTopicName:
        return False
    return True


# --- changing ----------------------------------------------------------------------------------


def plan_reset(
    before: Mapping[TopicPartition, GroupOffset],
    ends: Sequence[PartitionEnds],
    target: Target,
    *,
    offset_of_time: Callable[[PartitionEnds, int], int],
    is_entry: Callable[[PartitionEnds, int], bool],
) -> list[Change]:
    """The changes of a reset, in order of partitions.

    `offset_of_time` and `is_entry` query the partition's broker: the offset to start at to miss no
    message written after a time, and whether a whole entry begins at an offset.
    """
    known = {found.name: found for found in ends}
    changes = []
    for name in sorted({*before, *known}):
        stored, found = before[name], known.get(name)
        if found is None or found.start is None or found.end is None:
            reason = found.error if found is not None else "on no live broker"
            changes.append(Change(stored, None, reason))
            continue
        changes.append(_change(stored, found, target, offset_of_time, is_entry))
    return changes


def _change(
    stored: GroupOffset,
    found: PartitionEnds,
    target: Target,
    offset_of_time: Callable[[PartitionEnds, int], int],
    is_entry: Callable[[PartitionEnds, int], bool],
) -> Change:
    assert found.start is not None
    assert found.end is not None
    if target.end:
        return Change(stored, found.start if target.end == EARLIEST else found.end)
    if target.time_ms is not None:
        return Change(stored, offset_of_time(found, target.time_ms))
    assert target.offset is not None
    if not found.start <= target.offset <= found.end:
        return Change(stored, None, f"the log goes from {found.start:,} to {found.end:,}")
    if target.offset != found.end and not is_entry(found, target.offset):
        return Change(stored, None, f"no message begins at {target.offset:,}")
    return Change(stored, target.offset)


def plan_import(registry: Registry, wanted: Iterable[GroupOffset]) -> list[Change]:
    """The changes of an import, with notes."""
    changes = (Change(read_offset(registry, one.group, one.name), one.offset) for one in wanted)
    return noted(registry, list(changes))


def noted(registry: Registry, changes: Sequence[Change]) -> list[Change]:
    """The changes, each with a note where the offset stays as it is, or the group counts."""
    counts = registry.get_many([one.before.counts_path for one in changes])
    return [
        change
        if change.after is None
        else replace(change, note=NOT_MOVED)
        if not change.is_needed
        else replace(change, note=COUNTS_ANEW if _counts(node) else "")
        for change, node in zip(changes, counts, strict=True)
    ]


def _counts(node: Stored | None) -> PartitionCounts | None:
    return None if node is None else PartitionCounts.decode(node.value)


def apply(registry: Registry, changes: Sequence[Change]) -> list[Change]:
    """Make the changes. Returns those that were refused, as their node has changed meanwhile.

    What shows which log an old offset was of goes with it, also where the offset stays as it is:
    the new one may be of another log, which a mirror would not read by what is known of the old.
    What was counted up to an offset goes only where that moves.

    Raises StoppedHalfWay when ZooKeeper fails, and CoordinationError before the first change.
    """
    made: list[Change] = []
    refused: list[Change] = []
    for change in changes:
        if change.after is not None and not change.is_needed:
            _forget_log(registry, change.before)
    needed = [change for change in changes if change.is_needed]
    for number, change in enumerate(needed):
        assert change.after is not None
        before = change.before
        value = paths.encode_number(change.after)
        try:
            if read_offset(registry, before.group, before.name).version != before.version:
                refused.append(change)
                continue
            # The offset is last: after a failure in between it is not moved, so that the next run
            # does all of it.
            _count_anew(registry, before, change.after)
            _forget_log(registry, before)
            registry.put(before.path, value, before.version)
            made.append(change)
        except VersionConflict:
            refused.append(change)
        except CoordinationError as error:
            raise StoppedHalfWay(error, made, refused, needed[number:]) from error
    return refused


def _forget_log(registry: Registry, stored: GroupOffset) -> None:
    for path in stored.evidence_paths:
        registry.delete(path)


def _count_anew(registry: Registry, stored: GroupOffset, offset: int) -> None:
    """Begin a counting group's counts at `offset`: by what it had of another log, all of the new
    one up to there would be read again, and not counted."""
    while (found := registry.get(stored.counts_path)) is not None:
        counts = PartitionCounts.decode(found.value)
        if counts is None:
            return
        anew = PartitionCounts.begun(offset, counts.window_ms, now_ms(), is_first=False)
        try:
            registry.put(stored.counts_path, anew.encode(), found.version)
            return
        except VersionConflict:
            continue  # a member has written its own meanwhile
