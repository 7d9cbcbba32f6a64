"""The state of a cluster: each partition's broker, start and end; each group's offsets and lag.

Reads ZooKeeper and queries the brokers; changes nothing. For a broker that does not answer, the
result has the reason instead of values; it is never an exception.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import BrokerAddress, BrokerPartition
from kafka2011.coordination.registry import Registry, Stored
from kafka2011.protocol.errors import KafkaError

Dialled = Callable[[tuple[str, int]], tuple[str, int]]

QUERY_TIMEOUT_MS = 5000


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """A partition's `start` and `end` (the high watermark), in bytes of the log; None when unknown,
    for the reason in `error`."""

    name: TopicPartition
    address: BrokerAddress | None
    start: int | None
    end: int | None
    error: str = ""

    @property
    def size_bytes(self) -> int | None:
        if self.start is None or self.end is None:
            return None
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition of a group: `owner` is a thread id, "" when it has none. `version` is that
    of the offset's node."""

    name: TopicPartition
    owner: str
    offset: int | None
    end: int | None
    version: int | None = None

    @property
    def lag_bytes(self) -> int | None:
        """The bytes still to read; None when unknown, also if the offset is past the end: then
        `autooffset.reset` decides where the reader goes on."""
        if self.offset is None or self.end is None or self.past_end_bytes:
            return None
        return self.end - self.offset

    @property
    def past_end_bytes(self) -> int:
        """How far the offset is past the log's end, as after the log was lost or cut."""
        if self.offset is None or self.end is None:
            return 0
        return max(0, self.offset - self.end)


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's state; `members` maps a consumer id to the text of its subscription."""

    group: str
    members: dict[str, str]
    partitions: list[GroupPartition]


def partition_ends(
    registry: Registry, topics: Iterable[str], dialled: Dialled = lambda address: address
) -> list[PartitionEnds]:
    """All registered partitions of the topics, sorted, with their starts and ends."""
    brokers = cluster.live_brokers(registry)
    wanted = [
        TopicPartition(topic, *partition)
        for topic in topics
        for partition in cluster.partitions_of(registry, topic)
    ]
    found: dict[TopicPartition, PartitionEnds] = {}
    for broker_id in sorted({name.broker_id for name in wanted}):
        names = [name for name in wanted if name.broker_id == broker_id]
        for ends in _query_broker(brokers.get(broker_id), names, dialled):
            found[ends.name] = ends
    return [found[name] for name in wanted]


def _query_broker(
    address: BrokerAddress | None, names: list[TopicPartition], dialled: Dialled
) -> list[PartitionEnds]:
    if address is None:
        return [PartitionEnds(name, None, None, None, "broker not registered") for name in names]
    answers: list[PartitionEnds] = []
    with SimpleConsumer(*dialled(address), socket_timeout_ms=QUERY_TIMEOUT_MS) as client:
        for name in names:
            try:
                start = client.earliest(name.topic, name.partition)
                end = client.latest(name.topic, name.partition)
                answers.append(PartitionEnds(name, address, start, end))
            except KafkaError as error:
                answers.append(PartitionEnds(name, address, None, None, str(error)))
                if isinstance(error, BrokerUnavailable) and len(answers) == 1:
                    rest = names[1:]  # unreachable: do not wait for it once for each partition
                    return answers + [
                        PartitionEnds(other, address, None, None, str(error)) for other in rest
                    ]
    return answers


def groups(registry: Registry) -> list[str]:
    """All groups that ever registered or committed, sorted."""
    return registry.children(paths.CONSUMERS)


def registered_members(registry: Registry, group: str) -> dict[str, str]:
    """Consumer id -> the text that the member registered, for the present members."""
    ids = registry.children(paths.consumer_ids_path(group))
    nodes = registry.get_many([paths.consumer_id_path(group, each) for each in ids])
    return {
        consumer_id: (stored.value or b"").decode("utf-8", "replace")
        for consumer_id, stored in zip(ids, nodes, strict=True)
        if stored is not None
    }


def group_state(
    registry: Registry, group: str, dialled: Dialled = lambda address: address
) -> GroupState:
    """Members, owners, offsets and lag of one group; empty when there is no such group."""
    members = registered_members(registry, group)
    names: set[TopicPartition] = set()
    for kind in ("owners", "offsets"):
        for topic in registry.children(f"{paths.group_path(group)}/{kind}"):
            for text in registry.children(f"{paths.group_path(group)}/{kind}/{topic}"):
                try:
                    names.add(TopicPartition(topic, *paths.decode_broker_partition(text)))
                except BadZnode:
                    continue  # not the name of a partition
    topics = sorted({name.topic for name in names})
    names |= {
        TopicPartition(topic, *partition)
        for topic in topics
        for partition in cluster.partitions_of(registry, topic)
    }
    wanted = sorted(names)
    places = [(name.topic, BrokerPartition(*name[1:])) for name in wanted]
    owners = registry.get_many([paths.owner_path(group, *place) for place in places])
    offsets = registry.get_many([paths.offset_path(group, *place) for place in places])
    # Read after the offsets, so that one committed meanwhile does not seem past its log's end.
    ends = {found.name: found.end for found in partition_ends(registry, topics, dialled)}
    return GroupState(
        group,
        members,
        [
            _partition(name, owner, stored, ends.get(name))
            for name, owner, stored in zip(wanted, owners, offsets, strict=True)
        ],
    )


def _partition(
    name: TopicPartition, owner: Stored | None, stored: Stored | None, end: int | None
) -> GroupPartition:
    offset = None
    if stored is not None:
        try:
            offset = paths.decode_offset(stored.value)
        except BadZnode:
            pass  # a consumer also treats it as no offset
    return GroupPartition(
        name,
        (owner.value or b"").decode("utf-8", "replace") if owner is not None else "",
        offset,
        end,
        stored.version if stored is not None else None,
    )
