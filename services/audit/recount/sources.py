"""Where a recount reads messages from: log directories on disk, or brokers of a running cluster."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.silent_brokers import SilentBrokers
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.tools.cluster_state import groups
from kafka2011.consumer.tools.group_offsets import GroupOffset, stored_offsets
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import live_brokers, partitions_of, topics
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.events.topics import AUDIT
from kafka2011.protocol.errors import KafkaError
from kafka2011.services.audit.payloads import Note, damage_notes, pieces_of
from kafka2011.services.audit.recount.guid_comparison import NextTier
from kafka2011.services.audit.recount.replica_copies import confirmed_partitions
from kafka2011.services.audit.recount.segment_files import (
    LogDirectory,
    PartitionFiles,
    partition_directories,
    read_partition,
)


class LostLog(NamedTuple):
    """A log that was lost: the next tier has taken more of it than the one at `place`, which ends
    at `end`, ever had."""

    place: str
    taken: int
    end: int


class Read(NamedTuple):
    """Some payloads, and whether the next tier has passed them. `is_behind_cut`: they are the first
    left in a partition whose beginning retention has deleted, none if nothing is left. `lost`: they
    are the first of a log in place of that one.
    """

    payloads: list[bytes]
    next_tier: NextTier = NextTier.PASSED
    is_behind_cut: bool = False
    lost: LostLog | None = None


class Source(Protocol):
    """The messages of one tier's brokers."""

    @property
    def tier(self) -> str: ...

    def topics(self) -> list[str]: ...

    def read(self, topic: str, note: Note) -> Iterator["Read"]:
        """The payloads of a topic, all partitions, in lists of some MiB."""

    def unread(self, topic: str) -> str:
        """Why `read` may have left messages of the topic unread; "" if it has not."""

    def is_lost(self, topic: str) -> bool:
        """Whether a log of the topic was lost of which the next tier may still have messages that
        it has not written yet. Known once the topic was read."""


@dataclass(frozen=True)
class DiskSource:
    """One broker's log directory, or a replica set's.

    `confirmed` as for a ClusterSource, None: not known; the directory, or that above it, is named
    `broker-ID`. `is_given`: by the user, so that the name may be wrong: it counts only if an offset
    of that broker is known.
    """

    directory: LogDirectory
    confirmed: "Confirmed | None" = None
    is_given: bool = False
    _lost: set[str] = field(default_factory=set, init=False, compare=False)
    _unread: dict[str, str] = field(default_factory=dict, init=False, compare=False)

    @property
    def tier(self) -> str:
        return self.directory.tier

    def _partitions(self) -> list[PartitionFiles]:
        if self.directory.copies:
            return confirmed_partitions(self.directory.copies)
        return partition_directories(self.directory.path)

    def topics(self) -> list[str]:
        return sorted({files.topic for files in self._partitions()})

    def read(self, topic: str, note: Note) -> Iterator[Read]:
        broker_id = self._broker_id()
        for files in self._partitions():
            if files.topic == topic:
                place = f"{self.tier} {self.directory.name}"
                late_from, lost = self._late_from(files, broker_id)
                is_behind_cut = files.segments[0][0] > 0
                for offset, payloads in read_partition(files, place, note, late_from or 0):
                    next_tier = NextTier.UNKNOWN
                    if late_from is not None:
                        next_tier = NextTier.BEHIND if offset >= late_from else NextTier.PASSED
                    if payloads:
                        yield Read(payloads, next_tier, is_behind_cut, lost)
                        is_behind_cut, lost = False, None
                if is_behind_cut or lost:
                    yield Read([], is_behind_cut=is_behind_cut, lost=lost)
                self._leave_out(files, place, note)

    def _leave_out(self, files: PartitionFiles, place: str, note: Note) -> None:
        """Note what a replica's copy has above its watermark, which may have been confirmed: the
        watermark on disk lags a moment, and none is known where its file cannot be read."""
        if files.end is None or files.end_of_files <= files.end:
            return
        where = f"{place} {files.topic}-{files.partition}"
        text = (
            f"{where}: from offset {files.end} to {files.end_of_files} is not read: whether that "
            "was confirmed is not known before its replica set has started again"
        )
        note(text)
        if files.topic != AUDIT or not files.end:  # the last reports are of windows still open
            self._unread[files.topic] = text

    def _late_from(
        self, files: PartitionFiles, broker_id: int | None
    ) -> tuple[int | None, LostLog | None]:
        """The offset from which on the next tier has not taken the partition, None: unknown; and
        the lost log of which it has."""
        if self.confirmed is None or broker_id is None:
            return None, None
        taken = self.confirmed(files.topic, BrokerPartition(broker_id, files.partition)) or 0
        end = files.end_of_files
        if taken <= end:
            return taken, None
        self._lost.add(files.topic)
        place = f"{self.tier} {self.directory.name} {files.topic}-{files.partition}"
        return None, LostLog(place, taken, end)

    def _broker_id(self) -> int | None:
        """The broker whose directory it is, None: not known."""
        parts = Path(self.directory.name).parts[-2:]
        named = [match for part in reversed(parts) if (match := _BROKER.fullmatch(part))]
        if not named:
            return None
        broker_id = int(named[0][1])
        # The directory of a replica says itself whose it is.
        if self.is_given and not self.directory.copies and self.confirmed is not None:
            partitions = (
                (f.topic, BrokerPartition(broker_id, f.partition)) for f in self._partitions()
            )
            if all(self.confirmed(*each) is None for each in partitions):
                return None
        return broker_id

    @property
    def is_unnamed(self) -> bool:
        """Whether it is not known which broker's directory it is, and so how far the next tier had
        come."""
        return self._broker_id() is None

    def unread(self, topic: str) -> str:
        return self._unread.get(topic, "")

    def is_lost(self, topic: str) -> bool:
        return topic in self._lost


Confirmed = Callable[[str, BrokerPartition], int | None]
_BROKER = re.compile(r"broker-([0-9]+)")


def _read_by_groups(offsets: Iterable[GroupOffset], topic: str) -> dict[BrokerPartition, int]:
    """The furthest offset to which any group has read each of the topic's partitions."""
    furthest: dict[BrokerPartition, int] = {}
    for one in offsets:
        if one.name.topic == topic:
            name = BrokerPartition(*one.name[1:])
            furthest[name] = max(furthest.get(name, 0), one.offset or 0)
    return furthest


class _Range(NamedTuple):
    """Offsets of one partition to read; those from `late_from` on are late at the next tier, None:
    how far that has come is not known, since it says so of `lost`."""

    broker_id: int
    partition: int
    address: tuple[str, int]
    start: int
    late_from: int | None
    end: int
    lost: LostLog | None = None


class ClusterSource:
    """One tier's brokers read once from the earliest to the latest offset, through the brokers.

    The ends are requested when it is made, so that a recount of a running deployment terminates.
    `confirmed` gives the offset of a topic's partition up to which the next tier has taken it
    (None: nothing), and is also called then, before the ends of that tier are requested. Raises
    CoordinationError when ZooKeeper does not answer.
    """

    def __init__(
        self,
        tier: str,
        registry: Registry,
        note: Note,
        address_map: Mapping[tuple[str, int], tuple[str, int]] | None = None,
        confirmed: Confirmed | None = None,
    ) -> None:
        self._tier = tier
        self._ranges: dict[str, list[_Range]] = {}
        self._unread: dict[str, str] = {}
        self._lost: set[str] = set()
        self._silent = SilentBrokers(only_hanging=True)
        brokers = live_brokers(registry)
        # ZooKeeper forgets the partitions of a broker that is away, and those above a number that
        # was lowered, but not the groups' offsets. At offset 0 nothing was ever read.
        offsets = [one for group in groups(registry) for one in stored_offsets(registry, group)]
        known = {one.name for one in offsets if one.name.broker_id not in brokers or one.offset}
        for topic in topics(registry):
            ranges = self._ranges.setdefault(topic, [])
            read_to = _read_by_groups(offsets, topic)
            registered = set(partitions_of(registry, topic))
            forgotten = {BrokerPartition(*name[1:]) for name in known if name.topic == topic}
            for name in sorted(registered | forgotten):
                where = f"{tier} broker {name.broker_id}"
                if name.broker_id not in brokers:
                    self._leave_out(topic, f"{where} is away: its {topic}-{name.partition}", note)
                    continue
                broker = brokers[name.broker_id]
                published = (broker.host, broker.port)
                address = (address_map or {}).get(published, published)
                gone_at = 0 if name in registered else read_to[name]
                try:
                    with self._silent.asking(name.broker_id):
                        found = self._range(
                            topic, name, address, note, confirmed=confirmed, gone_at=gone_at
                        )
                except KafkaError as error:
                    what = f"{where}: {topic}-{name.partition}"
                    self._leave_out(topic, what, note, f": {error}")
                    continue
                if found.start:
                    note(
                        f"{where} {topic}-{name.partition}: the bytes before offset {found.start} "
                        "are gone (retention)"
                    )
                ranges.append(found)

    def _while_it_answers(self, broker_id: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        with self._silent.asking(broker_id):
            yield from chunks

    def _leave_out(self, topic: str, what: str, note: Note, why: str = "") -> None:
        self._unread[topic] = f"{what} is not read{why}"
        note(self._unread[topic])

    def _range(
        self,
        topic: str,
        name: BrokerPartition,
        address: tuple[str, int],
        note: Note,
        *,
        confirmed: Confirmed | None,
        gone_at: int,
    ) -> _Range:
        """What to read of one partition. `gone_at`: the offset up to which groups have read one
        that is not registered, else 0. Raises KafkaError."""
        place = f"{self._tier} broker {name.broker_id} {topic}-{name.partition}"
        with SimpleConsumer(*address) as client:
            earliest = client.earliest(topic, name.partition)
            latest = client.latest(topic, name.partition)
            late_from: int | None = latest
            lost = None
            if gone_at > latest:
                self._lost.add(topic)
                note(
                    f"{place}: its log is lost, which consumer groups have read up to offset "
                    f"{gone_at}, and the broker has no other: what only it had is missing, and "
                    "unknown at the tiers behind until the next one has taken something of a new "
                    f"log (kafka2011 topics create {topic})"
                )
            elif confirmed is not None:
                late_from = taken = confirmed(topic, name) or earliest
                # It may have grown meanwhile.
                if taken > latest and taken > client.latest(topic, name.partition):
                    late_from = None
                    self._lost.add(topic)
                    lost = LostLog(place, taken, latest)
        return _Range(*name, address, earliest, late_from, latest, lost)

    @property
    def tier(self) -> str:
        return self._tier

    def topics(self) -> list[str]:
        return sorted(self._ranges)

    def read(self, topic: str, note: Note) -> Iterator[Read]:
        for part in self._ranges.get(topic, ()):
            where = f"{self._tier} broker {part.broker_id} {topic}-{part.partition}"
            is_behind_cut, lost = part.start > 0, part.lost
            for start, end, next_tier in _parts(part):
                read_to = start
                chunks = read_range(part.address, topic, part.broker_id, part.partition, start, end)
                try:
                    for chunk in self._while_it_answers(part.broker_id, chunks):
                        damaged = damage_notes(where, note)
                        for piece in pieces_of(chunk.data, chunk.offset, damaged):
                            if piece.payloads:
                                yield Read(piece.payloads, next_tier, is_behind_cut, lost)
                                is_behind_cut, lost = False, None
                        read_to = chunk.next_offset
                except KafkaError as error:
                    text = f"{where}: not read from offset {read_to} to {end}: {error}"
                    self._unread[topic] = text
                    note(text)
            if is_behind_cut or lost:
                yield Read([], is_behind_cut=is_behind_cut, lost=lost)

    def unread(self, topic: str) -> str:
        if not self._ranges.get(topic) and topic not in self._unread:
            return f"no broker of {self._tier} has registered topic {topic}"
        return self._unread.get(topic, "")

    def is_lost(self, topic: str) -> bool:
        return topic in self._lost


def _parts(part: _Range) -> list[tuple[int, int, NextTier]]:
    """The range by how far the next tier has come with it."""
    if part.late_from is None:
        return [(part.start, part.end, NextTier.UNKNOWN)]
    middle = min(max(part.start, part.late_from), part.end)
    return [(part.start, middle, NextTier.PASSED), (middle, part.end, NextTier.BEHIND)]


def group_offsets(registry: Registry, group: str) -> Confirmed:
    """The offsets that a consumer group, a mirror's, has confirmed."""

    def confirmed(topic: str, partition: BrokerPartition) -> int | None:
        stored = registry.get(paths.offset_path(group, topic, partition))
        return None if stored is None else paths.decode_offset(stored.value)

    return confirmed
