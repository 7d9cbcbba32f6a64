"""Reads one tier's brokers: one `BrokerReader` for each broker registered in its ZooKeeper.

Discovers brokers, topics and partitions when ZooKeeper reports a change, and every
`audit.refresh.ms` besides. Those that leave ZooKeeper are kept: they may still answer. For the tier
that a mirror copies from, it also reads how far the mirror has come: the offsets of its group.
"""

import threading
from collections.abc import Callable, Container, Mapping

from kafka2011.coordination import paths
from kafka2011.coordination.cluster_view import ClusterView
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import set_views, unclean_elections
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker
from kafka2011.services.audit.books.progress import ZOOKEEPER, Election, PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.broker_reader import BrokerReader

MERGE_S = 0.02  # changes come in groups: a topic, then its brokers

log = get_logger(__name__)


class ClusterReader:
    """Reads every broker of one tier until closed.

    `connect_registry` makes a started registry or raises CoordinationError. `make_reader` makes a
    reader for a broker id. `ignored` topics are not read. `mirror_group` is the consumer group that
    copies from this tier.
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
        mirror_group: str = "",
    ) -> None:
        self._state = state
        self._tier = tier
        self._connect_registry = connect_registry
        self._make_reader = make_reader
        self._clock = clock
        self._refresh_interval_s = refresh_interval_ms / 1000
        self._ignored = ignored
        self._mirror_group = mirror_group if state.ledger.tier_behind(tier) == "offline" else ""
        self._registry: Registry | None = None
        self._view: ClusterView | None = None
        self._readers: dict[int, BrokerReader] = {}
        self._is_first = True
        self._watched: set[str] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._worker = Worker(
            self._run, f"audit-{tier}", restarts=True, on_failure=self._note_failure
        )

    def start(self) -> None:
        """Continue with the partitions in the books, and discover more."""
        for key in list(self._state.progress.positions):
            if key.tier == self._tier:
                self._reader(key.broker_id).assign(None, [key], first=True)
        self._worker.start()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._worker.join()
        for reader in self._readers.values():
            reader.close()
        if self._registry is not None:
            self._registry.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._registry is None:
                    self._registry = self._connect_registry()
                    self._view = ClusterView(
                        self._registry, ignored=self._ignored, on_change=self._wake.set
                    )
                assert self._view is not None
                self.discover(self._registry, self._view)
                self.read_mirror_offsets(self._registry)
            except CoordinationError as error:
                text = f"{self._tier} ZooKeeper does not answer: {error}"
                self._state.set_unreachable(self._tier, ZOOKEEPER, text)
            else:
                self._state.set_reachable(self._tier, ZOOKEEPER)
            for reader in self._readers.values():
                reader.note_silence()
            if self._wake.wait(self._refresh_interval_s):
                self._stop.wait(MERGE_S)
                self._wake.clear()

    def _note_failure(self, error: BaseException) -> None:
        """Note the tier as unreachable: an audit that does not look must not say complete."""
        text = f"{self._tier} is not being read: internal error, {error!r}"
        self._state.set_unreachable(self._tier, ZOOKEEPER, text)

    def discover(self, registry: Registry, view: ClusterView) -> None:
        """Assign what is registered to the readers. Raises CoordinationError."""
        asked_ms = self._clock()
        cluster = view.look()
        brokers = cluster.brokers
        found: dict[int, list[PartitionKey]] = {broker_id: [] for broker_id in brokers}
        for topic, registered in cluster.partitions.items():
            for broker_id, partition in registered:
                key = PartitionKey(self._tier, topic, broker_id, partition)
                found.setdefault(broker_id, []).append(key)
        self._look_at_sets(registry)
        for broker_id, partitions in found.items():
            for key in partitions:
                self._state.expect(*key)
            self._reader(broker_id).assign(brokers.get(broker_id), partitions, first=self._is_first)
        self._is_first = False
        self._state.set_discovered(self._tier, asked_ms)

    def _look_at_sets(self, registry: Registry) -> None:
        """Note sets without a leader as unreachable, whatever their last address answers, and what
        unclean elections lost. Raises CoordinationError."""
        self._watch(registry, paths.REPLICAS)
        for broker_id, view in set_views(registry).items():
            self._watch(
                registry, paths.replica_live_root(broker_id), paths.replica_unclean_root(broker_id)
            )
            source = f"set {broker_id}"
            if view.leader is None:
                self._state.set_unreachable(self._tier, source, f"{self._tier} {view.trouble}")
            else:
                self._state.set_reachable(self._tier, source)
            self._reader(broker_id).elected(
                [
                    Election(
                        record.epoch,
                        record.at_ms,
                        self._keys(broker_id, record.ends),
                        record.reason,
                    )
                    for record in unclean_elections(registry, view)
                ]
            )

    def _keys(self, broker_id: int, ends: Mapping[str, int]) -> dict[PartitionKey, int]:
        """`ends` by partition key instead of by the name of the partition's directory."""
        named = {name.rpartition("-")[::2]: end for name, end in ends.items()}
        return {
            PartitionKey(self._tier, topic, broker_id, int(number)): end
            for (topic, number), end in named.items()
            if number.isdecimal()
        }

    def read_mirror_offsets(self, registry: Registry) -> None:
        """Read how far the mirror has copied unfinished partitions. Raises CoordinationError."""
        if not self._mirror_group:
            return
        asked_ms = self._clock()
        keys = self._state.unconfirmed(self._tier)
        wanted = [(key.topic, paths.BrokerPartition(key.broker_id, key.partition)) for key in keys]
        nodes = registry.get_many([paths.offset_path(self._mirror_group, *each) for each in wanted])
        for (topic, partition), stored in zip(wanted, nodes, strict=True):
            if stored is not None:
                offset = paths.decode_offset(stored.value)
                self._state.confirm("offline", topic, {partition: offset}, asked_ms)
        self._state.asked("offline", asked_ms, keys)

    def _watch(self, registry: Registry, *znodes: str) -> None:
        """Wake the thread on changes below `znodes`; set before reading, so that none is missed."""
        for path in znodes:
            if path not in self._watched:
                self._watched.add(path)
                registry.watch_children(path, lambda _children: self._wake.set())

    def _reader(self, broker_id: int) -> BrokerReader:
        reader = self._readers.get(broker_id)
        if reader is None:
            reader = self._readers[broker_id] = self._make_reader(self._tier, broker_id)
            reader.start()
        return reader
