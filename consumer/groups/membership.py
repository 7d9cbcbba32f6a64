"""The registry's part of a rebalance: registers, reads the group, claims and releases.

Carries out what `rebalance` decides, in steps (see `committed_offsets`). Deliveries start and stop
through a `Delivery`: the group consumer's is `stream_assignment`, the mirror has its own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.committed_offsets import CommittedOffsets, Steps
from kafka2011.consumer.groups.rebalance import Claims
from kafka2011.consumer.groups.topic_filters import TopicFilter
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import (
    BadZnode,
    CoordinationError,
    CoordinationUnavailable,
    NodeConflict,
)
from kafka2011.coordination.paths import BrokerPartition, StaticSubscription, Subscription
from kafka2011.coordination.registry import Handle, Registry
from kafka2011.protocol.errors import IllegalTopicFilter
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)


class Delivery(Protocol):
    """Fetches and delivers the messages of the partitions that are owned."""

    def start(self, name: TopicPartition, thread: str, stored: int | None) -> None:
        """Deliver from `stored` on, or from where `autooffset.reset` says when it is None."""

    def halt(self, names: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Stop delivering these; return the offsets to commit, of those that have one."""

    def halt_all(self) -> None:
        """Stop delivering everything; commit nothing."""


class GroupView(NamedTuple):
    """The result of one reading of the registry."""

    members: dict[str, dict[str, int]]
    partitions: dict[str, tuple[BrokerPartition, ...]]


class ClaimResult(NamedTuple):
    granted: frozenset[TopicPartition]
    error: CoordinationError | None


class Membership:
    """One consumer's presence in its group. One thread at a time.

    `changed` is called, from the registry's thread, when members or partitions may have changed.
    `find_start` returns where to start in a partition without a stored offset, None when its broker
    does not answer: then, and always without `find_start`, the delivery finds it out later.
    """

    def __init__(
        self,
        registry: Registry,
        group: str,
        consumer_id: str,
        subscription: Subscription,
        *,
        delivery: Delivery,
        offsets: CommittedOffsets,
        changed: Callable[[], None],
        commits_on_release: bool = True,
        find_start: Callable[[TopicPartition], int | None] | None = None,
    ) -> None:
        self._registry = registry
        self._group = group
        self._subscription = subscription
        self._delivery = delivery
        self._offsets = offsets
        self._changed = changed
        self.commits_on_release = commits_on_release
        self._find_start = find_start
        self._path = paths.consumer_id_path(group, consumer_id)
        self._session: int | None = None
        self._watches: dict[str, Handle] = {}
        self._filters: dict[bytes, TopicFilter | None] = {}
        self._uncommitted: dict[TopicPartition, int] = {}

    @property
    def session(self) -> int | None:
        """The session that the registration and the owner nodes belong to."""
        return self._session

    # --- registration ----------------------------------------------------------------------------

    def register(self) -> Steps[None]:
        """Create the registration node in the present session, which owner nodes will use, too."""
        self._session = self._registry.session_id()
        if self._session is None:
            raise CoordinationUnavailable("no session to register in")
        yield
        value = paths.encode_subscription(self._subscription)
        self._registry.create_ephemeral(self._path, value, session=self._session)

    def deregister(self) -> Steps[None]:
        for handle in self._watches.values():
            handle.cancel()
        self._watches.clear()
        self._registry.delete_own(self._path, paths.encode_subscription(self._subscription))
        yield

    def abandon(self) -> None:
        """Stop delivering: with the session gone, nothing is ours to commit or to delete."""
        self._delivery.halt_all()
        self._uncommitted.clear()

    # --- reading ---------------------------------------------------------------------------------

    def read(self) -> Steps[GroupView]:
        """Read the members and partitions, after setting watches.

        As in the original: watches on the member ids, on the topics for wildcards, and on the
        topics consumed, but not on the brokers: if one goes away, that shows in its topics.
        """
        ids_path = paths.consumer_ids_path(self._group)
        self._watch(ids_path)
        subscriptions: dict[str, tuple[Subscription, bytes]] = {}
        for consumer_id in self._registry.children(ids_path):
            yield
            stored = self._registry.get(f"{ids_path}/{consumer_id}")
            if stored is None:
                continue
            try:
                decoded = paths.decode_subscription(stored.value)
            except BadZnode as error:
                self._ignore(consumer_id, error)
                continue
            subscriptions[consumer_id] = (decoded, stored.value or b"")
        if not isinstance(self._subscription, StaticSubscription):
            self._watch(paths.BROKER_TOPICS)
        yield
        topics = cluster.topics(self._registry)
        members = {
            consumer_id: self._streams(consumer_id, subscription, value, topics)
            for consumer_id, (subscription, value) in subscriptions.items()
        }
        partitions = {}
        own = members.get(self._path.rpartition("/")[2], {})
        for topic in own:
            self._watch(paths.topic_path(topic))
            yield
            partitions[topic] = tuple(cluster.partitions_of(self._registry, topic))
        self._forget_watches({paths.topic_path(topic) for topic in own})
        return GroupView(members, partitions)

    def _streams(
        self, consumer_id: str, subscription: Subscription, value: bytes, topics: list[str]
    ) -> dict[str, int]:
        if isinstance(subscription, StaticSubscription):
            return dict(subscription.streams)
        if value not in self._filters:
            try:
                self._filters[value] = TopicFilter(subscription.kind, subscription.pattern)
            except IllegalTopicFilter as error:
                self._ignore(consumer_id, error)
                self._filters[value] = None
        found = self._filters[value]
        return dict.fromkeys(found.select(topics), subscription.stream_count) if found else {}

    def _ignore(self, consumer_id: str, reason: Exception) -> None:
        log.error("member_ignored", group=self._group, member=consumer_id, reason=str(reason))

    def _watch(self, path: str) -> None:
        """Watch the path's children. The first call of the watch also counts as a change, which
        costs one more reading: a node may have gone and come back with another value between our
        reading and the setting of the watch."""
        if path not in self._watches:
            self._watches[path] = self._registry.watch_children(path, lambda _: self._changed())

    def _forget_watches(self, topics_kept: set[str]) -> None:
        prefix = f"{paths.BROKER_TOPICS}/"
        for path in [path for path in self._watches if path.startswith(prefix)]:
            if path not in topics_kept:
                self._watches.pop(path).cancel()

    # --- owning ----------------------------------------------------------------------------------

    def claim(self, claims: Claims) -> Steps[ClaimResult]:
        """Own and deliver as many of these as are free; an error ends it and is returned.

        `Unlike 0.7:` if the group has no offset of a partition, the start is stored before it is
        delivered, not by the first commit. If this member ended before that commit, the next one
        would begin at the largest offset of a later moment, and skip what came between.
        """
        granted: set[TopicPartition] = set()
        silent: set[int] = set()  # brokers that did not answer: asked once only
        for name, thread in sorted(claims.items()):
            path = self._owner_path(name)
            try:
                try:
                    self._registry.create_ephemeral(path, thread.encode(), session=self._session)
                except NodeConflict as conflict:
                    log.info("claim_waits", partition=str(name), held_by=conflict.found)
                    yield
                    continue
                yield
                stored = self._offsets.read(name)
                if stored is None and self._find_start and name.broker_id not in silent:
                    yield
                    stored = self._find_start(name)
                    if stored is None:
                        silent.add(name.broker_id)
                    else:
                        yield from self._offsets.commit(name, thread, stored)
                elif stored is not None:
                    yield from self._offsets.begin_counts(name, stored)
            except CoordinationError as error:
                return ClaimResult(frozenset(granted), error)
            self._delivery.start(name, thread, stored)
            granted.add(name)
            yield
        return ClaimResult(frozenset(granted), None)

    def release(self, claims: Claims) -> Steps[None]:
        """Stop delivering these, commit what was processed, delete the owner nodes that are ours.

        `Unlike 0.7:` with `autocommit.enable=false` nothing is committed here: what was merely
        delivered may not be safe yet, and committing it would lose it if the application fails.
        """
        positions = self._delivery.halt(claims)
        if self.commits_on_release:
            self._uncommitted.update(positions)
        for name, thread in sorted(claims.items()):
            offset = self._uncommitted.get(name) if self.commits_on_release else None
            if offset is not None:
                yield from self._offsets.commit(name, thread, offset)
                self._uncommitted.pop(name, None)
            yield
            self._registry.delete_own(self._owner_path(name), thread.encode())

    def _owner_path(self, name: TopicPartition) -> str:
        return paths.owner_path(self._group, name.topic, BrokerPartition(*name[1:]))
