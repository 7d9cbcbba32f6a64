"""Checks that a group's rebalance is complete: every partition has the right owner.

0.7's VerifyConsumerRebalance requires that each live partition of a subscribed topic has an owner
that is a registered thread. Here it must also be the thread of the range assignment: a group with
other owners would never settle.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.assignment import assign, thread_id
from kafka2011.consumer.groups.topic_filters import TopicFilter
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import BrokerPartition, StaticSubscription
from kafka2011.coordination.registry import Registry
from kafka2011.protocol.errors import IllegalTopicFilter


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """One reading of the registry. `members`: consumer id -> topic -> streams; `owners`: thread id
    per partition that has one; `unreadable`: members whose registration is invalid."""

    members: Mapping[str, Mapping[str, int]]
    partitions: Mapping[str, tuple[BrokerPartition, ...]]
    owners: Mapping[TopicPartition, str]
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A wrong owner. `owner` is "" if the partition has none, `expected` if it should have none."""

    name: TopicPartition
    owner: str
    expected: str
    text: str


def read_registry(registry: Registry, group: str) -> GroupPicture:
    """Read the members, the partitions of the topics they subscribe to, and the owners."""
    topics = cluster.topics(registry)
    members: dict[str, Mapping[str, int]] = {}
    unreadable = []
    for consumer_id in registry.children(paths.consumer_ids_path(group)):
        stored = registry.get(paths.consumer_id_path(group, consumer_id))
        if stored is None:
            continue
        try:
            subscription = paths.decode_subscription(stored.value)
            if isinstance(subscription, StaticSubscription):
                members[consumer_id] = subscription.streams
            else:
                allowed = TopicFilter(subscription.kind, subscription.pattern).select(topics)
                members[consumer_id] = dict.fromkeys(allowed, subscription.stream_count)
        except (BadZnode, IllegalTopicFilter):
            unreadable.append(consumer_id)
    subscribed = sorted({topic for streams in members.values() for topic in streams})
    partitions = {topic: tuple(cluster.partitions_of(registry, topic)) for topic in subscribed}
    owners = {}
    for topic in registry.children(f"{paths.group_path(group)}/owners"):
        for text in registry.children(paths.owners_path(group, topic)):
            stored = registry.get(f"{paths.owners_path(group, topic)}/{text}")
            try:
                name = TopicPartition(topic, *paths.decode_broker_partition(text))
            except BadZnode:
                continue
            if stored is not None:
                owners[name] = (stored.value or b"").decode("utf-8", "replace")
    return GroupPicture(members, partitions, owners, tuple(unreadable))


def problems(picture: GroupPicture) -> list[Problem]:
    """The partitions whose owner is wrong once the group has settled, in order; pure."""
    expected: dict[TopicPartition, str] = {}
    for topic, partitions in picture.partitions.items():
        threads = [
            thread_id(member, number)
            for member, streams in picture.members.items()
            for number in range(streams.get(topic, 0))
        ]
        for partition, thread in assign(partitions, threads).items():
            expected[TopicPartition(topic, *partition)] = thread
    threads_alive = {
        thread_id(member, number)
        for member, streams in picture.members.items()
        for number in range(max(streams.values(), default=0))
    }
    found = []
    for name in sorted({*expected, *picture.owners}):
        owner, right = picture.owners.get(name, ""), expected.get(name, "")
        if owner == right:
            continue
        if not owner:
            text = "it has no owner"
        elif owner not in threads_alive:
            text = f"its owner {owner} is not a registered thread"
        elif not right:
            text = f"{owner} owns it, but it is on no live broker"
        else:
            text = f"{owner} owns it, but {right} should"
        found.append(Problem(name, owner, right, text))
    return found
