"""Samples the ZooKeepers, one thread a datacenter: processes, brokers, topics, groups and offsets.

While a ZooKeeper does not answer its last state stays, marked as old. The longer it takes to read
the groups, the less often they are read, so that ten thousand partitions cost no more than ten; and
while no page is looked at, everything is read more rarely.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kafka2011.consumer.tools.cluster_state import registered_members
from kafka2011.coordination import cluster, paths, processes
from kafka2011.coordination.errors import BadZnode, CoordinationError
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.coordination.registry import Registry, Stored
from kafka2011.coordination.replica_sets import set_views
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker
from kafka2011.services.dashboard.config import LIVE, OFFLINE
from kafka2011.services.dashboard.sampling.observations import ObservedCluster, ObservedGroup

SAMPLE_S = 1.5
KINDS_SAMPLES = 20  # the kinds of processes rarely change: read again after so many samples
GROUPS_S = 4.0
UNSEEN_SAMPLES = 10  # factor of the intervals while no page is looked at
GROUPS_SHARE = 25  # reading groups takes at most a 25th of the time
READ_PAUSE_S_MAX = 30.0  # however long a read took: it may have waited for what was away
OWNERS_SAMPLES = 3  # unchanged owners are read again after so many samples
ABSENT_S = 15.0  # between attempts at a datacenter that need not be there
CONNECT_MS = 3000

log = get_logger(__name__)


def pause_s(took_s: float, every_s: float, share: int) -> float:
    """Seconds until a read that took `took_s` is repeated: `every_s`, or longer (up to
    READ_PAUSE_S_MAX) so that reading takes one part in `share` of the time."""
    return max(every_s, min(share * took_s, READ_PAUSE_S_MAX))


def read_processes(
    registry: Registry, known: list[ProcessRecord], live: str = LIVE
) -> tuple[list[ProcessRecord], dict[str, str], dict[str, ProcessRecord], frozenset[str]]:
    """Every process in this ZooKeeper: the records expected, their kinds by key, the records alive
    by key, and the keys of those that said goodbye.

    Keys are `<datacenter>/<name>`: a process registers in its own datacenter's ZooKeeper, the
    shared ones in the live one. Every live datacenter calls itself `live`: the argument `live` is
    this one's name here. `known` are those expected at the last sample.
    """
    expected, living = processes.look(registry, known)

    def key_of(process: ProcessRecord) -> str:
        return f"{live if process.datacenter == LIVE else process.datacenter}/{process.name}"

    alive = {key_of(process): process for process in living}
    goodbyes = frozenset(
        key_of(process)
        for process in expected
        if process.said_goodbye and key_of(process) not in alive
    )
    return expected, {key_of(process): process.kind for process in expected}, alive, goodbyes


def read_partition_counts(
    registry: Registry, topics: Iterable[str], known: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """topic -> broker id -> number of partitions. What is in `known` is not read again: a broker
    that returns with another number was unregistered in between."""
    found: dict[str, dict[int, int]] = {}
    for topic in topics:
        before = known.get(topic, {})
        counts = found[topic] = {}
        for name in registry.children(paths.topic_path(topic)):
            number = int(name) if paths.is_broker_id(name) else -1
            if number in before:
                counts[number] = before[number]
                continue
            stored = registry.get(f"{paths.topic_path(topic)}/{name}")
            try:
                if stored is not None and number >= 0:
                    counts[number] = paths.decode_partition_count(stored.value)
            except BadZnode:
                continue  # not written by a broker
    return found


def read_group(
    registry: Registry, group: str, before: ObservedGroup | None = None
) -> ObservedGroup:
    """The group; owners are those of `before` while the members are the same and each partition
    has one: partitions change owners when members do, and a new topic's get their first."""
    members = registered_members(registry, group)
    base = paths.group_path(group)
    offsets: dict[tuple[str, str], tuple[int, int]] = {}
    for topic, name, stored in _below_topics(registry, f"{base}/offsets"):
        try:
            paths.decode_broker_partition(name)
            offsets[topic, name] = (paths.decode_offset(stored.value), stored.version)
        except BadZnode:
            continue  # not written by a consumer
    if (
        before is not None
        and before.members == members
        and before.owners_age < OWNERS_SAMPLES
        and offsets.keys() <= before.owners.keys()
    ):
        owners, age = before.owners, before.owners_age + 1
    else:
        owners, age = read_owners(registry, group), 0
    return ObservedGroup(group, members, owners, offsets, age)


def read_owners(registry: Registry, group: str) -> dict[tuple[str, str], str]:
    """The owner of each partition: (topic, "<id>-<partition>") -> thread id."""
    return {
        (topic, name): (stored.value or b"").decode("utf-8", "replace")
        for topic, name, stored in _below_topics(registry, f"{paths.group_path(group)}/owners")
    }


def _below_topics(registry: Registry, root: str) -> list[tuple[str, str, Stored]]:
    """(topic, name, node) of each node of each topic below `root`."""
    topics = registry.children(root)
    below = registry.children_many([f"{root}/{topic}" for topic in topics])
    names = [(topic, name) for topic, found in zip(topics, below, strict=True) for name in found]
    nodes = registry.get_many([f"{root}/{topic}/{name}" for topic, name in names])
    return [(*name, node) for name, node in zip(names, nodes, strict=True) if node is not None]


class ClusterSampler:
    """Keeps `observed` fresh until closed."""

    def __init__(
        self,
        datacenter: str,
        zk_connect: str,
        make: Callable[[str], ZooKeeperRegistry] = ZooKeeperRegistry,
        *,
        is_optional: bool = False,
        is_unseen: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_optional`: it need not exist, and is tried less often until it has answered.
        `is_unseen`: whether no page is looked at."""
        self.observed = ObservedCluster(datacenter, zk_connect)
        self.registry: ZooKeeperRegistry | None = None
        self._make = make
        self._live = LIVE if datacenter == OFFLINE else datacenter
        self._absent_s = ABSENT_S if is_optional else SAMPLE_S
        self._closed = threading.Event()
        self._is_unseen = is_unseen
        self._hurried = threading.Event()
        self._groups_due = 0.0
        self._samples = 0
        self._expected: list[ProcessRecord] = []
        self._worker = Worker(
            self._run,
            f"zk-{datacenter}",
            restarts=True,
            on_failure=lambda error: self._note_failure(f"an internal error: {error!r}"),
        )
        self._worker.start()

    def hurry(self) -> None:
        """Read now, since a page is looked at again."""
        self._groups_due = 0.0
        self._hurried.set()

    def close(self) -> None:
        self._closed.set()
        self._hurried.set()
        self._worker.join(15)

    def _run(self) -> None:
        while not self._closed.is_set():
            registry = self._make(self.observed.address)
            try:
                registry.start(timeout_ms=CONNECT_MS)
                self.registry = registry
                while not self._closed.is_set():
                    self._sample(registry)
                    self._closed.wait(SAMPLE_S)
                    self._hurried.clear()
                    if self._is_unseen() and not self._closed.is_set():
                        self._hurried.wait((UNSEEN_SAMPLES - 1) * SAMPLE_S)
            except CoordinationError as error:
                self._note_failure(str(error))
                self._closed.wait(SAMPLE_S if self.observed.at_ms else self._absent_s)
            finally:
                self.registry = None
                registry.close()

    def _note_failure(self, reason: str) -> None:
        old = self.observed
        if old.is_answering:
            log.warning("zookeeper_not_answering", datacenter=old.datacenter, reason=reason)
        self.observed = replace(old, is_answering=False, reason=reason)

    def _sample(self, registry: Registry) -> None:
        old = self.observed
        self._samples += 1
        known = [] if self._samples % KINDS_SAMPLES == 0 else self._expected
        self._expected, kinds, alive, goodbyes = read_processes(registry, known, self._live)
        topics = tuple(cluster.topics(registry))
        partitions, groups, groups_at_ms = old.partitions, old.groups, old.groups_at_ms
        if time.monotonic() >= self._groups_due:
            began = time.monotonic()
            again = self._samples % KINDS_SAMPLES == 0
            partitions = read_partition_counts(registry, topics, {} if again else old.partitions)
            groups = {
                name: read_group(registry, name, old.groups.get(name))
                for name in registry.children(paths.CONSUMERS)
            }
            groups_at_ms = now_ms()
            took_s = time.monotonic() - began
            groups_s = GROUPS_S * (UNSEEN_SAMPLES if self._is_unseen() else 1)
            self._groups_due = time.monotonic() + pause_s(took_s, groups_s, GROUPS_SHARE)
        self.observed = ObservedCluster(
            datacenter=old.datacenter,
            address=old.address,
            is_answering=True,
            reason="",
            at_ms=now_ms(),
            expected=kinds,
            alive=alive,
            goodbyes=goodbyes,
            brokers=cluster.live_brokers(registry) or old.brokers,
            sets=set_views(registry),
            topics=topics,
            partitions=partitions,
            groups=groups,
            groups_at_ms=groups_at_ms,
        )
