"""Where a message goes: which broker, at which address, and which partition (reference 8.1).

`StaticBrokers` knows a list that never changes and leaves the partition to the broker.
`ZooKeeperBrokers` keeps a copy of the broker registry that watches mark as stale, so a send costs
no round trip and a change is seen within a moment.
"""

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from coordination import cluster, paths
from coordination.errors import CoordinationError
from coordination.paths import BrokerPartition
from coordination.registry import Handle, Registry, SessionEvent
from producer.config import Address, BrokerList
from producer.errors import BrokerUnavailable, InvalidPartition
from producer.partitioner import default_partitioner
from protocol.requests import ANY_PARTITION
from runtime.logs import get_logger

log = get_logger(__name__)


class Target(NamedTuple):
    """`address` is what the broker published; the producer maps it before dialling."""

    broker_id: int
    address: Address
    partition: int


class Discovery(Protocol):
    def choose(self, topic: str, key: Any) -> Target:
        """Where a part with this key goes. Raises BrokerUnavailable or InvalidPartition."""

    def address_of(self, broker_id: int) -> Address:
        """The broker's published address. Raises BrokerUnavailable when it is not known."""

    def refresh(self) -> bool:
        """The last choice led nowhere: read everything anew before the next.

        False when another choice could only lead to the same place.
        """

    def close(self) -> None: ...


class StaticBrokers:
    """`broker.list`: a random broker each time, which picks the partition; keys have no effect."""

    def __init__(self, brokers: BrokerList, rng: random.Random | None = None) -> None:
        self._targets = [
            Target(broker_id, address, ANY_PARTITION) for broker_id, address in brokers
        ]
        self._addresses = dict(brokers)
        self._rng = rng or random.Random()

    def choose(self, topic: str, key: Any) -> Target:  # noqa: ARG002 (neither has an effect)
        targets = self._targets
        return targets[0] if len(targets) == 1 else self._rng.choice(targets)

    def address_of(self, broker_id: int) -> Address:
        try:
            return self._addresses[broker_id]
        except KeyError:
            raise BrokerUnavailable(f"broker {broker_id} is not in broker.list") from None

    def refresh(self) -> bool:
        return len(self._targets) > 1

    def close(self) -> None:
        """Nothing to close."""


class ZooKeeperBrokers:
    """The broker registry through `registry`, which the caller starts and closes.

    An unknown topic is assumed to have partition 0 on every live broker until ZooKeeper announces
    it. Keeps serving its copy while ZooKeeper is away (fault Z2).
    """

    def __init__(
        self,
        registry: Registry,
        partitioner: Callable[[Any, int], int] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._registry = registry
        self._partition = partitioner or default_partitioner
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._addresses: Mapping[int, Address] = {}
        self._topics: dict[str, list[BrokerPartition]] = {}
        self._stale_brokers = True
        self._stale_topics: set[str] = set()
        self._handles: list[Handle] = []
        self._watched: set[str] = set()
        self._handles.append(registry.add_session_listener(self._on_session))
        self._handles.append(registry.watch_children(paths.BROKER_IDS, self._on_brokers))

    def choose(self, topic: str, key: Any) -> Target:
        partitions, addresses = self._partitions(topic)
        count = len(partitions)
        if not count:
            raise BrokerUnavailable(f"no live broker is registered (for topic {topic})")
        if key is None:
            index = self._rng.randrange(count)
        else:
            index = self._partition(key, count)
            if not 0 <= index < count:
                raise InvalidPartition(f"the partitioner chose {index} of {count} for {topic}")
        broker_id, partition = partitions[index]
        return Target(broker_id, addresses[broker_id], partition)

    def address_of(self, broker_id: int) -> Address:
        with self._lock:
            self._update_brokers()
            address = self._addresses.get(broker_id)
        if address is None:
            raise BrokerUnavailable(f"broker {broker_id} is not registered")
        return address

    def refresh(self) -> bool:
        with self._lock:
            self._stale_brokers = True
            self._stale_topics |= set(self._topics)
        return True

    def close(self) -> None:
        for handle in self._handles:
            handle.cancel()

    def _partitions(self, topic: str) -> tuple[list[BrokerPartition], Mapping[int, Address]]:
        with self._lock:
            self._update_brokers()
            if topic not in self._topics or topic in self._stale_topics:
                self._update_topic(topic)
            # A broker that died takes its partitions out of every topic.
            live = [p for p in self._topics.get(topic, ()) if p.broker_id in self._addresses]
            if not live:
                live = [BrokerPartition(broker_id, 0) for broker_id in sorted(self._addresses)]
            return live, self._addresses

    def _update_brokers(self) -> None:
        if not self._stale_brokers:
            return
        self._stale_brokers = False
        try:
            self._addresses = {
                broker_id: (address.host, address.port)
                for broker_id, address in cluster.live_brokers(self._registry).items()
            }
        except CoordinationError as error:
            self._stale_brokers = True
            if not self._addresses:
                raise BrokerUnavailable(f"ZooKeeper does not answer: {error}") from error
            log.warning("brokers_not_read", reason=str(error))

    def _update_topic(self, topic: str) -> None:
        try:
            if topic not in self._watched:
                self._watched.add(topic)
                self._handles.append(
                    self._registry.watch_children(
                        paths.topic_path(topic), lambda _children: self._on_topic(topic)
                    )
                )
            self._stale_topics.discard(topic)
            self._topics[topic] = cluster.partitions_of(self._registry, topic)
        except CoordinationError as error:
            self._stale_topics.add(topic)
            if topic not in self._topics:
                raise BrokerUnavailable(f"ZooKeeper does not answer: {error}") from error
            log.warning("topic_not_read", topic=topic, reason=str(error))

    # Callbacks only set flags: they may run on the thread of the call that made the change, which
    # may hold the lock, and adding to a set is atomic.
    def _on_brokers(self, _children: list[str]) -> None:
        self._stale_brokers = True

    def _on_topic(self, topic: str) -> None:
        self._stale_topics.add(topic)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECREATED:
            self._stale_brokers = True
            for topic in tuple(self._topics):
                self._stale_topics.add(topic)
