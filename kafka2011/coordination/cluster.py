"""Reads the broker registry: live brokers, topics, and the partitions of a topic; and the cluster's
identity.

A node with an invalid value is logged and ignored; it never stops a reader.
"""

import uuid

from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, NodeExists
from kafka2011.coordination.paths import BrokerAddress, BrokerPartition
from kafka2011.coordination.registry import Registry, Stored
from kafka2011.runtime.logs import get_logger

__all__ = [
    "BrokerAddress",
    "BrokerPartition",
    "cluster_id",
    "live_brokers",
    "partitions_of",
    "topics",
]

log = get_logger(__name__)


def live_brokers(registry: Registry) -> dict[int, BrokerAddress]:
    """Broker id -> published address of the live brokers, in order of id."""
    found = {}
    for name, path, stored in _below(registry, paths.BROKER_IDS):
        if stored is None:  # it left between the two reads
            continue
        try:
            if not paths.is_broker_id(name):
                raise BadZnode(f"not a broker id: {name[:64]!r}")
            found[int(name)] = paths.decode_broker(stored.value)
        except BadZnode as error:
            log.warning("znode_ignored", path=path, reason=str(error))
    return dict(sorted(found.items()))


def topics(registry: Registry) -> list[str]:
    """All topics that were ever registered, sorted; some may have no live broker."""
    return registry.children(paths.BROKER_TOPICS)


def partitions_of(registry: Registry, topic: str) -> list[BrokerPartition]:
    """The topic's partitions on live brokers, sorted by number (consumers sort them as text)."""
    found = []
    for name, path, stored in _below(registry, paths.topic_path(topic)):
        if stored is None:
            continue
        try:
            if not paths.is_broker_id(name):
                raise BadZnode(f"not a broker id: {name[:64]!r}")
            count = paths.decode_partition_count(stored.value)
        except BadZnode as error:
            log.warning("znode_ignored", path=path, reason=str(error))
            continue
        found += [BrokerPartition(int(name), number) for number in range(count)]
    return sorted(found)


def _below(registry: Registry, root: str) -> list[tuple[str, str, Stored | None]]:
    """(name, path, node) of each child."""
    names = registry.children(root)
    nodes = [f"{root}/{name}" for name in names]
    return list(zip(names, nodes, registry.get_many(nodes), strict=True))


def cluster_id(registry: Registry) -> str:
    """The identity of the cluster, created by the first call."""
    while True:
        stored = registry.get(paths.CLUSTER_ID)
        if stored is not None and stored.value:
            return stored.value.decode("ascii", "replace")
        try:
            registry.create(paths.CLUSTER_ID, uuid.uuid4().hex.encode())
        except NodeExists:
            continue
