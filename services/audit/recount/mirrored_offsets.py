"""How far a mirror had come, for a recount from files: its group's offsets in ZooKeeper."""

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.tools.group_offsets import stored_offsets
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.services.audit.recount.sources import Confirmed


class OffsetsUnreadable(RuntimeError):
    """ZooKeeper does not answer, or the group has no offsets. The text is one line."""


def mirrored_offsets(zk_connect: str, group: str) -> Confirmed:
    """The offsets that the group has now. Raises OffsetsUnreadable."""
    registry = ZooKeeperRegistry(zk_connect)
    try:
        registry.start()
        try:
            stored = stored_offsets(registry, group)
        finally:
            registry.close()
    except CoordinationError as error:
        raise OffsetsUnreadable(f"ZooKeeper at {zk_connect}: {error}") from error
    if not stored:
        raise OffsetsUnreadable(f"ZooKeeper at {zk_connect}: group {group} has no offsets")
    offsets = {found.name: found.offset for found in stored}
    return lambda topic, partition: offsets.get(TopicPartition(topic, *partition))
