"""The target of a message: its broker, the broker's address, and the partition.

`StaticBrokers` has a fixed list and leaves the partition to the broker. `ZooKeeperBrokers` keeps a
copy of the broker registry that watches mark as stale, so a send costs no round trip and a change
is seen within milliseconds.
"""

import random
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import Handle, Registry, SessionEvent
from kafka2011.producer.config import BrokerList, ProducerConfig
from kafka2011.producer.errors import BrokerUnavailable, InvalidPartition
from kafka2011.producer.partitioner import default_partitioner
from kafka2011.protocol.requests import ANY_PARTITION
from kafka2011.runtime.clock import Clock, has_passed, now_ms
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address

# How long nothing is read after a failed read, and a broker that failed is the last choice while
# it is not known whether it is registered.
RETRY_MS = 10_000

log = get_logger(__name__)


class Target(NamedTuple):
    """A message's target. `address` is the published one: `address.map` applies on connecting."""

    broker_id: int
    address: Address
    partition: int


class Discovery(Protocol):
    def choose(self, topic: str, key: Any, avoid: Address | None = None) -> Target:
        """The target of a part with this key; without a key, any broker except `avoid` if there is
        another. Raises BrokerUnavailable or InvalidPartition."""

    def address_of(self, broker_id: int) -> Address:
        """The broker's published address. Raises BrokerUnavailable when it is not known."""

    def addresses(self) -> Collection[Address]:
        """The published addresses of all brokers, as last read."""

    def refresh(self, failed: Address | None = None) -> bool:
        """Read everything again before the next choice, because the last one, `failed`, failed.

        False when the next choice can only be the same.
        """

    def close(self) -> None: ...


class StaticBrokers:
    """A random broker of `broker.list`, which picks the partition; keys have no effect."""

    def __init__(self, brokers: BrokerList, rng: random.Random | None = None) -> None:
        self._targets = [
            Target(broker_id, address, ANY_PARTITION) for broker_id, address in brokers
        ]
        self._addresses = dict(brokers)
        self._rng = rng or random.Random()

    def choose(
        self,
        topic: str,  # noqa: ARG002 (has no effect, nor has the key)
        key: Any,  # noqa: ARG002
        avoid: Address | None = None,
    ) -> Target:
        targets = self._targets
        if len(targets) == 1:
            return targets[0]
        if avoid is not None:
            targets = _others(targets, (avoid,))
        return self._rng.choice(targets)

    def address_of(self, broker_id: int) -> Address:
        try:
            return self._addresses[broker_id]
        except KeyError:
            raise BrokerUnavailable(f"broker {broker_id} is not in broker.list") from None

    def addresses(self) -> Collection[Address]:
        return self._addresses.values()

    def refresh(self, failed: Address | None = None) -> bool:  # noqa: ARG002 (see `avoid`)
        return len(self._targets) > 1

    def close(self) -> None:
        """Nothing to close."""


class ZooKeeperBrokers:
    """The brokers that `registry` names; the caller starts and closes it.

    An unknown topic is assumed to have partition 0 on every live broker. Each broker announces it
    at its first message; brokers that have not yet keep their assumed partition, so that the first
    to announce does not receive everything from then on (0.7.2's ZKBrokerPartitionInfo merges the
    two as well). A new session and `refresh` drop the assumptions.

    Its copy stays in use while ZooKeeper is unavailable: a read could only wait in vain, so there
    is none, and none within RETRY_MS of one that failed.
    """

    def __init__(
        self,
        registry: Registry,
        partitioner: Callable[[Any, int], int] | None = None,
        rng: random.Random | None = None,
        clock: Clock = now_ms,
    ) -> None:
        self._registry = registry
        self._partition = partitioner or default_partitioner
        self._random = (rng or random.Random()).random
        self._clock = clock
        self._lock = threading.Lock()
        self._targets: dict[str, list[Target]] = {}  # by topic, as last read
        self._addresses: Mapping[int, Address] = {}
        self._topics: dict[str, list[BrokerPartition]] = {}
        self._stale_brokers = True
        self._stale_topics: set[str] = set()
        self._assumed: dict[str, set[int]] = {}  # topic -> brokers that have not announced it
        self._not_read = ""  # why the last read failed, at `_not_read_at_ms`
        self._not_read_at_ms = 0
        self._failed_at_ms: dict[Address, int] = {}  # brokers, since the last read
        self._handles: list[Handle] = []
        self._watched: set[str] = set()
        self._handles.append(registry.add_session_listener(self._on_session))
        self._handles.append(registry.watch_children(paths.BROKER_IDS, self._on_brokers))

    def choose(self, topic: str, key: Any, avoid: Address | None = None) -> Target:
        targets = self._targets.get(topic)
        if not targets:
            targets = self._look_up(topic)
            if key is None and self._failed_at_ms:
                targets = _others(targets, self._just_failed())
        if key is None:
            if avoid is not None:
                targets = _others(targets, (avoid,))
            # Not randrange, which takes three times as long: this is done for every message.
            return targets[int(self._random() * len(targets))]
        count = len(targets)
        index = self._partition(key, count)
        if not 0 <= index < count:
            raise InvalidPartition(f"the partitioner chose {index} of {count} for {topic}")
        return targets[index]

    def address_of(self, broker_id: int) -> Address:
        with self._lock:
            self._update()
            if broker_id not in self._addresses:  # the watch may not have fired yet
                self._stale_brokers = True
                self._update()
            address = self._addresses.get(broker_id)
        if address is None:
            raise BrokerUnavailable(f"broker {broker_id} is not registered")
        return address

    def addresses(self) -> Collection[Address]:
        return self._addresses.values()

    def refresh(self, failed: Address | None = None) -> bool:
        with self._lock:
            if failed is not None:
                self._failed_at_ms = {**self._failed_at_ms, failed: self._clock()}
            self._stale_brokers = True
            self._stale_topics |= set(self._topics)
            self._assumed = {}
            self._targets = {}
        return True

    def close(self) -> None:
        for handle in self._handles:
            handle.cancel()

    def _look_up(self, topic: str) -> list[Target]:
        """The topic's current targets, cached until a watch fires."""
        # Taken before the reads: what a watch discards meanwhile stays discarded.
        kept = self._targets
        with self._lock:
            self._update(topic)
            # A broker that died takes its partitions out of every topic.
            live = [p for p in self._topics.get(topic, ()) if p.broker_id in self._addresses]
            if not live:
                live = [BrokerPartition(broker_id, 0) for broker_id in sorted(self._addresses)]
                self._assumed[topic] = set(self._addresses)
                self._topics[topic] = live
            targets = [
                Target(broker_id, self._addresses[broker_id], partition)
                for broker_id, partition in live
            ]
            # What could not be read now is read when that may succeed.
            if not self._stale_brokers and topic not in self._stale_topics:
                kept[topic] = targets
        if not targets:
            raise BrokerUnavailable(f"no live broker is registered (for topic {topic})")
        return targets

    def _just_failed(self) -> list[Address]:
        now = self._clock()
        failed = self._failed_at_ms.items()
        return [address for address, at_ms in failed if not has_passed(RETRY_MS, at_ms, now)]

    def _update(self, topic: str | None = None) -> None:
        """Read the brokers and the topic where they are stale, unless the copy must do.

        Raises BrokerUnavailable when there is no copy.
        """
        has_copy = bool(self._addresses) and (topic is None or topic in self._topics)
        if self._not_read and not has_passed(RETRY_MS, self._not_read_at_ms, self._clock()):
            if has_copy:
                return
            raise BrokerUnavailable(f"ZooKeeper is unavailable: {self._not_read}")
        if has_copy and self._registry.session_id() is None:
            return
        try:
            if self._stale_brokers:
                self._read_brokers()
            if topic is not None and (topic not in self._topics or topic in self._stale_topics):
                self._read_topic(topic)
            self._not_read = ""
        except CoordinationError as error:
            self._stale_brokers = True
            if topic is not None:
                self._stale_topics.add(topic)
            self._not_read, self._not_read_at_ms = str(error), self._clock()
            if not self._addresses or not (topic is None or topic in self._topics):
                raise BrokerUnavailable(f"ZooKeeper is unavailable: {error}") from error
            log.warning("brokers_not_read", topic=topic or "", reason=str(error))

    def _read_brokers(self) -> None:
        self._stale_brokers = False
        before = self._addresses
        self._addresses = {
            broker_id: (address.host, address.port)
            for broker_id, address in cluster.live_brokers(self._registry).items()
        }
        self._stop_assuming(before.keys() - self._addresses.keys())
        self._targets = {}
        self._failed_at_ms = {}

    def _stop_assuming(self, gone: set[int]) -> None:
        for topic, assumed in self._assumed.items():
            if assumed & gone:
                assumed.difference_update(gone)
                self._stale_topics.add(topic)

    def _read_topic(self, topic: str) -> None:
        if topic not in self._watched:
            self._watched.add(topic)
            self._handles.append(
                self._registry.watch_children(
                    paths.topic_path(topic), lambda _children: self._on_topic(topic)
                )
            )
        self._stale_topics.discard(topic)
        announced = cluster.partitions_of(self._registry, topic)
        assumed = self._assumed.pop(topic, set()) - {p.broker_id for p in announced}
        assumed &= self._addresses.keys()
        if assumed and announced:
            self._assumed[topic] = assumed
            announced += [BrokerPartition(broker_id, 0) for broker_id in assumed]
        self._topics[topic] = sorted(announced)

    # Callbacks only set flags, then forget the targets: they may run on the thread of the call that
    # made the change, which may hold the lock, and each of these steps is atomic.
    def _on_brokers(self, _children: list[str]) -> None:
        self._stale_brokers = True
        self._targets = {}

    def _on_topic(self, topic: str) -> None:
        self._stale_topics.add(topic)
        self._targets = {}

    def _on_session(self, event: SessionEvent) -> None:
        if event in (SessionEvent.CONNECTED, SessionEvent.RECREATED):
            self._not_read = ""
        if event is SessionEvent.RECREATED:
            self._stale_brokers = True
            for topic in tuple(self._topics):
                self._stale_topics.add(topic)
            self._assumed = {}
            self._targets = {}


def _others(targets: list[Target], addresses: Collection[Address]) -> list[Target]:
    """The targets at other addresses, or all if there is none."""
    return [one for one in targets if one.address not in addresses] or targets


def new_discovery(
    config: ProducerConfig, registry: Registry | None, rng: random.Random
) -> tuple[Discovery, Registry | None]:
    """The discovery that the settings ask for, and the registry made for it, if any: the caller
    closes both.

    Raises ConfigError unless exactly one of broker.list, zk.connect and `registry` is given, and
    CoordinationError when ZooKeeper cannot be reached.
    """
    if bool(config.broker_list) + bool(config.zk_connect) + (registry is not None) != 1:
        raise ConfigError(
            "a producer needs exactly one of broker_list=, zk_connect= and registry= (a connection "
            "to ZooKeeper of your own)"
        )
    if config.broker_list:
        return StaticBrokers(config.broker_list, rng), None
    if registry is not None:
        return ZooKeeperBrokers(registry, config.partitioner, rng), None
    from kafka2011.coordination.zookeeper import ZooKeeperRegistry

    own = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
    try:
        own.start(config.zk_connection_timeout_ms or config.zk_session_timeout_ms)
    except BaseException:
        own.close()
        raise
    return ZooKeeperBrokers(own, config.partitioner, rng), own
