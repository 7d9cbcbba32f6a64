"""Brokers, topics and partitions for a reader that looks time and again.

Watches say what changed, and only that is read again: a look at a quiet cluster costs one request,
where reading everything costs one for each topic on each broker.
"""

import threading
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from kafka2011.coordination import paths
from kafka2011.coordination.cluster import live_brokers, partitions_of
from kafka2011.coordination.paths import BrokerAddress, BrokerPartition
from kafka2011.coordination.registry import Handle, Registry

# Everything is read again after so long: values are not watched, as a broker never changes them.
READ_ALL_S = 30.0


@dataclass
class ClusterState:
    """What is registered; `partitions` has every topic that ever was, some without a partition."""

    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    partitions: dict[str, list[BrokerPartition]] = field(default_factory=dict)


class ClusterView:
    """A `ClusterState` kept up to date; one thread calls `look`. `ignored` topics are left out.

    `on_change` is called on the registry's thread when something changed.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        ignored: Container[str] = (),
        on_change: Callable[[], object] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._ignored = ignored
        self._on_change = on_change
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._watches: dict[str, Handle] = {}
        self._changed: set[str] = set()
        self._read_all_at_s = monotonic()
        self._state = ClusterState()

    def look(self) -> ClusterState:
        """What is registered now; the same object changes at the next look. Raises
        CoordinationError."""
        registry = self._registry
        self._watch(paths.BROKER_IDS, paths.BROKER_TOPICS)
        registry.catch_up()
        with self._lock:
            changed, self._changed = self._changed, set()
        if self._monotonic() >= self._read_all_at_s:
            changed |= self._watches.keys()
        try:
            self._read(changed)
        except BaseException:
            with self._lock:
                self._changed |= changed
            raise
        if self._monotonic() >= self._read_all_at_s:
            self._read_all_at_s = self._monotonic() + READ_ALL_S
        return self._state

    def _read(self, changed: set[str]) -> None:
        state, registry = self._state, self._registry
        if paths.BROKER_IDS in changed:
            state.brokers = live_brokers(registry)
        if paths.BROKER_TOPICS in changed:
            names = registry.children(paths.BROKER_TOPICS)
            wanted = [name for name in names if name not in self._ignored]
            self._watch(*map(paths.topic_path, wanted))  # before reading: nothing is missed
            new = [name for name in wanted if name not in state.partitions]
            for gone in state.partitions.keys() - set(wanted):
                self._watches.pop(paths.topic_path(gone)).cancel()
            state.partitions = {name: state.partitions.get(name, []) for name in wanted}
            changed = changed.union(map(paths.topic_path, new))
        for topic in state.partitions:
            if paths.topic_path(topic) in changed:
                state.partitions[topic] = partitions_of(registry, topic)

    def _watch(self, *znodes: str) -> None:
        for path in znodes:
            if path not in self._watches:
                with self._lock:
                    self._changed.add(path)
                self._watches[path] = self._registry.watch_children(
                    path,
                    lambda _children, path=path: self._note(path),  # type: ignore[misc]
                )

    def _note(self, path: str) -> None:
        with self._lock:
            self._changed.add(path)
        self._on_change()

    def close(self) -> None:
        """End the watches."""
        for watch in self._watches.values():
            watch.cancel()
