"""Keeps the readers of one tier's brokers in step with its ZooKeeper; and reads it once, afresh.

`ClusterReader` is for the running service: it looks for new brokers, topics and partitions when
ZooKeeper tells of a change, and every second besides, and keeps the ones it knows when they leave.
`ClusterSource` is for a recount.
"""

import threading
from collections.abc import Callable, Container, Iterator, Mapping

from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import live_brokers, partitions_of, topics
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.broker_reader import BrokerReader, TopicPartition
from kafka2011.services.audit.recount.segment_files import noting, payloads_of

ZOOKEEPER = "ZooKeeper"
MERGE_S = 0.02  # changes come in groups: a topic, then its brokers

log = get_logger(__name__)

Note = Callable[[str], None]


class ClusterReader:
    """Reads every broker of one tier until closed.

    `connect_registry` makes a started registry or raises CoordinationError. `make_reader` makes a
    reader for a broker id. `ignored` topics are not read.
    """

    def __init__(
        self,
        state: AuditState,
        tier: str,
        *,
        connect_registry: Callable[[], Registry],
        make_reader: Callable[[str, int], BrokerReader],
        clock: Clock,
        refresh_interval_ms: int,
        ignored: Container[str] = (),
    ) -> None:
        self._state = state
        self._tier = tier
        self._connect_registry = connect_registry
        self._make_reader = make_reader
        self._clock = clock
        self._refresh_interval_s = refresh_interval_ms / 1000
        self._ignored = ignored
        self._registry: Registry | None = None
        self._readers: dict[int, BrokerReader] = {}
        self._is_first = True
        self._watched: set[str] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"audit-{tier}", daemon=True)

    def start(self) -> None:
        """Go on with what the books know, and look for more."""
        for key in list(self._state.positions):
            if key.tier == self._tier:
                self._reader(key.broker_id).assign(
                    None, [TopicPartition(key.topic, key.partition)], first=True
                )
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()
        for reader in self._readers.values():
            reader.close()
        if self._registry is not None:
            self._registry.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._registry is None:
                    self._registry = self._connect_registry()
                self.look(self._registry)
            except CoordinationError as error:
                text = f"{self._tier} ZooKeeper does not answer: {error}"
                self._state.away(self._tier, ZOOKEEPER, text)
            else:
                self._state.back(self._tier, ZOOKEEPER)
            if self._wake.wait(self._refresh_interval_s):
                self._stop.wait(MERGE_S)
                self._wake.clear()

    def look(self, registry: Registry) -> None:
        """Read what is registered and tell the readers. Raises CoordinationError."""
        asked_ms = self._clock()
        self._watch(registry, paths.BROKER_IDS, paths.BROKER_TOPICS)
        brokers = live_brokers(registry)
        found: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in brokers}
        for topic in topics(registry):
            if topic not in self._ignored:
                self._watch(registry, paths.topic_path(topic))
                for broker_id, partition in partitions_of(registry, topic):
                    found.setdefault(broker_id, []).append(TopicPartition(topic, partition))
        for broker_id, partitions in found.items():
            for name in partitions:
                self._state.expect(self._tier, name.topic, broker_id, name.partition)
            self._reader(broker_id).assign(brokers.get(broker_id), partitions, first=self._is_first)
        self._is_first = False
        self._state.discovered(self._tier, asked_ms)

    def _watch(self, registry: Registry, *places: str) -> None:
        """Have a change below `places` wake the thread; set before reading, so none is missed."""
        for place in places:
            if place not in self._watched:
                self._watched.add(place)
                registry.watch_children(place, lambda _children: self._wake.set())

    def _reader(self, broker_id: int) -> BrokerReader:
        reader = self._readers.get(broker_id)
        if reader is None:
            reader = self._readers[broker_id] = self._make_reader(self._tier, broker_id)
            reader.start()
        return reader


class ClusterSource:
    """One tier's brokers read once from the earliest to the latest offset, through the brokers.

    `ends` are asked for when it is made, so that a recount of a running deployment comes to an end.
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
                    yield from payloads_of(chunk.data, chunk.offset, noting(where, note))
                    read_to = chunk.next_offset
            except KafkaError as error:
                note(f"{where}: not read from offset {read_to} to {end}: {error}")
