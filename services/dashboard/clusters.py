"""Asks the ZooKeepers, one thread a datacenter: processes, brokers, topics, groups and offsets.

A ZooKeeper that is away leaves the last answer standing, marked as old. How often groups are read
follows from how long it takes, so that ten thousand partitions cost no more than ten.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from coordination import cluster, paths, processes
from coordination.errors import BadZnode, CoordinationError
from coordination.paths import BrokerAddress, BrokerPartition
from coordination.processes import ProcessRecord
from coordination.registry import Registry
from coordination.zookeeper import ZooKeeperRegistry
from runtime.clock import now_ms
from runtime.logs import get_logger

LOOK_S = 1.5
GROUPS_S = 3.0
GROUPS_SHARE = 25  # reading groups takes at most one part in so many of the time
OWNERS_LOOKS = 3  # owners that did not seem to move are read again after so many looks
CONNECT_MS = 3000

log = get_logger(__name__)


@dataclass(frozen=True)
class GroupLook:
    """One group as it stands in ZooKeeper. Owners and offsets by (topic, "<id>-<partition>")."""

    name: str
    members: dict[str, str]
    owners: dict[tuple[str, str], str]
    offsets: dict[tuple[str, str], tuple[int, int]]  # offset and the node's version
    owners_age: int = 0  # looks since the owners were read


@dataclass
class ClusterLook:
    """The last answer of one datacenter's ZooKeeper. Replaced whole, never changed."""

    datacenter: str
    address: str
    is_answering: bool = False
    reason: str = "not connected yet"
    at_ms: int = 0
    expected: dict[str, str] = field(default_factory=dict)  # name -> kind
    alive: dict[str, ProcessRecord] = field(default_factory=dict)
    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    groups: dict[str, GroupLook] = field(default_factory=dict)
    groups_at_ms: int = 0


def look_at_processes(
    registry: Registry,
) -> tuple[dict[str, str], dict[str, ProcessRecord]]:
    """Every process in this ZooKeeper: those expected (name -> kind) and those alive.

    Keys are `<datacenter>/<name>`: a process registers in its own datacenter's ZooKeeper, the
    shared ones in the live one.
    """
    expected = {f"{p.datacenter}/{p.name}": p.kind for p in processes.expected(registry)}
    alive = {f"{p.datacenter}/{p.name}": p for p in processes.alive(registry)}
    return expected, alive


def look_at_group(registry: Registry, group: str, before: GroupLook | None = None) -> GroupLook:
    """`before` gives its owners while the members are the same: they move when members do."""
    members: dict[str, str] = {}
    for consumer_id in registry.children(paths.consumer_ids_path(group)):
        stored = registry.get(paths.consumer_id_path(group, consumer_id))
        if stored is not None:
            members[consumer_id] = (stored.value or b"").decode("utf-8", "replace")
    base = paths.group_path(group)
    if before is not None and before.members == members and before.owners_age < OWNERS_LOOKS:
        owners, age = before.owners, before.owners_age + 1
    else:
        owners, age = owners_of(registry, group), 0
    offsets: dict[tuple[str, str], tuple[int, int]] = {}
    for topic in registry.children(f"{base}/offsets"):
        for name in registry.children(paths.offsets_path(group, topic)):
            try:
                partition = paths.decode_broker_partition(name)
                stored = registry.get(paths.offset_path(group, topic, BrokerPartition(*partition)))
                if stored is not None:
                    offsets[topic, name] = (paths.decode_offset(stored.value), stored.version)
            except BadZnode:
                continue  # not an offset that any consumer wrote
    return GroupLook(group, members, owners, offsets, age)


def owners_of(registry: Registry, group: str) -> dict[tuple[str, str], str]:
    """Who owns which partition: (topic, "<id>-<partition>") -> thread id."""
    owners: dict[tuple[str, str], str] = {}
    for topic in registry.children(f"{paths.group_path(group)}/owners"):
        for name in registry.children(paths.owners_path(group, topic)):
            stored = registry.get(f"{paths.owners_path(group, topic)}/{name}")
            if stored is not None:
                owners[topic, name] = (stored.value or b"").decode("utf-8", "replace")
    return owners


class ClusterWatcher:
    """Keeps `look` fresh until closed."""

    def __init__(
        self,
        datacenter: str,
        zk_connect: str,
        make: Callable[[str], ZooKeeperRegistry] = ZooKeeperRegistry,
    ) -> None:
        self.look = ClusterLook(datacenter, zk_connect)
        self.registry: ZooKeeperRegistry | None = None
        self._make = make
        self._closed = threading.Event()
        self._groups_due = 0.0
        self._thread = threading.Thread(target=self._run, name=f"zk-{datacenter}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(15)

    def _run(self) -> None:
        while not self._closed.is_set():
            registry = self._make(self.look.address)
            try:
                registry.start(timeout_ms=CONNECT_MS)
                self.registry = registry
                while not self._closed.is_set():
                    self._look(registry)
                    self._closed.wait(LOOK_S)
            except CoordinationError as error:
                self._note_failure(str(error))
                self._closed.wait(LOOK_S)
            finally:
                self.registry = None
                registry.close()

    def _note_failure(self, reason: str) -> None:
        old = self.look
        if old.is_answering:
            log.warning("zookeeper_away", datacenter=old.datacenter, reason=reason)
        self.look = replace(old, is_answering=False, reason=reason)

    def _look(self, registry: Registry) -> None:
        old = self.look
        expected, alive = look_at_processes(registry)
        groups, groups_at_ms = old.groups, old.groups_at_ms
        if time.monotonic() >= self._groups_due:
            began = time.monotonic()
            groups = {
                name: look_at_group(registry, name, old.groups.get(name))
                for name in registry.children(paths.CONSUMERS)
            }
            groups_at_ms = now_ms()
            took_s = time.monotonic() - began
            self._groups_due = time.monotonic() + max(GROUPS_S, GROUPS_SHARE * took_s)
        self.look = ClusterLook(
            datacenter=old.datacenter,
            address=old.address,
            is_answering=True,
            reason="",
            at_ms=now_ms(),
            expected=expected,
            alive=alive,
            brokers=cluster.live_brokers(registry) or old.brokers,
            topics=tuple(cluster.topics(registry)),
            groups=groups,
            groups_at_ms=groups_at_ms,
        )
