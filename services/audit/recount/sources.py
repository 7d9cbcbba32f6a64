"""Where a recount reads messages from: log directories on disk, or brokers of a running cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.cluster import live_brokers, partitions_of, topics
from kafka2011.coordination.registry import Registry
from kafka2011.protocol.errors import KafkaError
from kafka2011.services.audit.payloads import Note, damage_notes, payloads_of
from kafka2011.services.audit.recount.segment_files import (
    LogDirectory,
    PartitionFiles,
    partition_directories,
    read_partition,
)


class Source(Protocol):
    """The messages of one tier's brokers."""

    @property
    def tier(self) -> str: ...

    def topics(self) -> list[str]: ...

    def read(self, topic: str, note: Note) -> Iterator[list[bytes]]:
        """The payloads of a topic, all partitions, in lists of some MiB."""


@dataclass(frozen=True)
class DiskSource:
    """One broker's log directory."""

    directory: LogDirectory

    @property
    def tier(self) -> str:
        return self.directory.tier

    def _partitions(self) -> list[PartitionFiles]:
        return partition_directories(self.directory.path)

    def topics(self) -> list[str]:
        return sorted({files.topic for files in self._partitions()})

    def read(self, topic: str, note: Note) -> Iterator[list[bytes]]:
        for files in self._partitions():
            if files.topic == topic:
                yield from read_partition(files, f"{self.tier} {self.directory.name}", note)


class ClusterSource:
    """One tier's brokers read once from the earliest to the latest offset, through the brokers.

    The ends are requested when it is made, so that a recount of a running deployment terminates.
    Raises CoordinationError when ZooKeeper does not answer.
    """

    def __init__(
        self,
        tier: str,
        registry: Registry,
        note: Note,
        address_map: Mapping[tuple[str, int], tuple[str, int]] | None = None,
    ) -> None:
        self._tier = tier
        self._ranges: dict[str, list[tuple[int, int, tuple[str, int], int, int]]] = {}
        brokers = live_brokers(registry)
        for topic in topics(registry):
            ranges = self._ranges.setdefault(topic, [])
            for broker_id, partition in partitions_of(registry, topic):
                if broker_id not in brokers:
                    note(f"{tier} broker {broker_id} is away: its {topic}-{partition} is not read")
                    continue
                published = (brokers[broker_id].host, brokers[broker_id].port)
                address = (address_map or {}).get(published, published)
                try:
                    with SimpleConsumer(*address) as client:
                        earliest = client.earliest(topic, partition)
                        latest = client.latest(topic, partition)
                except KafkaError as error:
                    note(f"{tier} broker {broker_id}: {topic}-{partition} is not read: {error}")
                    continue
                if earliest:
                    note(
                        f"{tier} broker {broker_id} {topic}-{partition}: the bytes before offset "
                        f"{earliest} are gone (retention)"
                    )
                ranges.append((broker_id, partition, address, earliest, latest))

    @property
    def tier(self) -> str:
        return self._tier

    def topics(self) -> list[str]:
        return sorted(self._ranges)

    def read(self, topic: str, note: Note) -> Iterator[list[bytes]]:
        for broker_id, partition, address, start, end in self._ranges.get(topic, ()):
            where = f"{self._tier} broker {broker_id} {topic}-{partition}"
            read_to = start
            try:
                for chunk in read_range(address, topic, broker_id, partition, start, end):
                    yield from payloads_of(chunk.data, chunk.offset, damage_notes(where, note))
                    read_to = chunk.next_offset
            except KafkaError as error:
                note(f"{where}: not read from offset {read_to} to {end}: {error}")
