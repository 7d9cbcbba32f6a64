"""Which target partition each source partition is copied to: decided once, then kept for good.

The map is in the source cluster's ZooKeeper, beside the group's offsets, so that it survives the
process and is shared by the members of the group: order and key locality of a source partition
survive the mirror because its messages never change their target. To move a partition (its target
broker is gone for good), delete its node while the mirror is down.

A topic that the target does not have yet is made there first, on every live broker, by producing an
empty set to it; else everything would be mapped to the few partitions that happened to exist.
"""

import random
import time
from collections.abc import Callable

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import BadZnode, NodeExists
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.producer import BrokerUnavailable
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.requests import ANY_PARTITION, ProduceRequest, encode_request
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address
from kafka2011.services.mirror_maker.copy_progress import choose_target

TOPIC_PATIENCE_S = 5.0  # wait this long for every live target broker to announce a new topic
ASK_TIMEOUT_MS = 2000

log = get_logger(__name__)


class NotPlaced(Exception):
    """There is no target at present; try again later. The text says why."""


class Placement:
    """The map of one group. One thread at a time.

    `make_topic(topic, published address)` makes a target broker create a topic.
    """

    def __init__(
        self,
        source: Registry,
        target: Registry,
        group: str,
        make_topic: Callable[[str, Address], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._target = target
        self._group = group
        self._make_topic = make_topic
        self._now_s = now_s
        self._asked_s: dict[str, float] = {}

    def target_of(self, name: TopicPartition) -> BrokerPartition:
        """The target of a source partition, chosen and stored now if it has none.

        Raises NotPlaced, or CoordinationError when a ZooKeeper does not answer.
        """
        source = BrokerPartition(name.broker_id, name.partition)
        path = paths.mirror_map_path(self._group, name.topic, source)
        known = self._stored(path)
        if known is not None:
            return known
        chosen = choose_target(
            source,
            cluster.partitions_of(self._source, name.topic),
            self._candidates(name.topic),
            self._taken(name.topic),
        )
        try:
            self._source.create(path, chosen.text.encode())
        except NodeExists:
            # The partition's previous owner chose first, or the node holds garbage.
            stored = self._stored(path)
            if stored is not None:
                return stored
            self._source.put(path, chosen.text.encode())
        log.info("mapped", partition=str(name), target=chosen.text)
        return chosen

    def any_broker(self) -> BrokerPartition:
        """A live target broker, which picks the partitions itself, for scattering. Raises as
        `target_of`."""
        brokers = sorted(cluster.live_brokers(self._target))
        if not brokers:
            raise NotPlaced("no target broker is registered")
        return BrokerPartition(random.choice(brokers), ANY_PARTITION)

    def _stored(self, path: str) -> BrokerPartition | None:
        stored = self._source.get(path)
        if stored is None:
            return None
        try:
            return paths.decode_broker_partition((stored.value or b"").decode("utf-8", "replace"))
        except BadZnode as error:
            log.error("map_entry_ignored", path=path, reason=str(error))
            return None

    def _taken(self, topic: str) -> list[BrokerPartition]:
        topic_path = paths.mirror_topic_map_path(self._group, topic)
        found = [self._stored(f"{topic_path}/{name}") for name in self._source.children(topic_path)]
        return [one for one in found if one is not None]

    def _candidates(self, topic: str) -> list[BrokerPartition]:
        """The topic's partitions on live target brokers, once all of these have announced it (or
        TOPIC_PATIENCE_S is over). Raises NotPlaced."""
        brokers = cluster.live_brokers(self._target)
        if not brokers:
            raise NotPlaced("no target broker is registered")
        partitions = cluster.partitions_of(self._target, topic)
        without = set(brokers) - {partition.broker_id for partition in partitions}
        if not without:
            return partitions
        first_asked_s = self._asked_s.setdefault(topic, self._now_s())
        for broker_id in sorted(without):
            host, port = brokers[broker_id]
            self._make_topic(topic, (host, port))
        if partitions and self._now_s() - first_asked_s > TOPIC_PATIENCE_S:
            return partitions
        raise NotPlaced(f"target brokers {sorted(without)} do not announce {topic} yet")


def make_topic(topic: str, address: Address) -> None:
    """Make the broker at `address` create the topic's logs, by appending an empty set to the first.

    Whether it did shows in ZooKeeper; a broker that is away is tried again by the next call.
    """
    connection = BrokerConnection(address, connect_timeout_ms=ASK_TIMEOUT_MS, reconnect_ms=None)
    try:
        connection.send(encode_request(ProduceRequest(topic, 0, b"")), topic, 0)
        connection.barrier(ASK_TIMEOUT_MS)
    except BrokerUnavailable as error:
        log.warning("topic_not_made", topic=topic, reason=str(error))
    finally:
        connection.disconnect()
