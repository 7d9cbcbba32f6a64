"""The mirror's presence in its consumer group: rebalances, and commits of confirmed offsets.

One thread rebalances (`groups.rebalancer`), one commits by timer. A lock between them keeps a
commit from racing the release of its partition.
"""

import random
import socket
import threading

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.groups.assignment import make_consumer_id
from kafka2011.consumer.groups.committed_offsets import CommittedOffsets, Steps, run
from kafka2011.consumer.groups.membership import Membership
from kafka2011.consumer.groups.rebalance import Disowned, Joined, Left, SessionEnded
from kafka2011.consumer.groups.rebalancer import Rebalancer
from kafka2011.consumer.groups.topic_filters import TopicFilter, blacklist_with, whitelist
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry, SessionEvent
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker
from kafka2011.services.mirror_maker.config import NEVER_COPIED, MirrorConfig
from kafka2011.services.mirror_maker.mirror import Mirror

LEAVE_TIMEOUT_S = 20.0

log = get_logger(__name__)


def topic_filter(config: MirrorConfig) -> TopicFilter:
    """The topics that the group subscribes to. Raises IllegalTopicFilter."""
    if config.topics_whitelist:
        return whitelist(config.topics_whitelist)
    return blacklist_with(NEVER_COPIED, config.topics_blacklist)


class _NotedOffsets(CommittedOffsets):
    """Reports to the mirror whether the last commit of a partition that it halted was stored."""

    def __init__(self, registry: Registry, group: str, mirror: Mirror) -> None:
        super().__init__(registry, group, tails=mirror.tails)
        self._mirror = mirror

    def commit(self, name: TopicPartition, thread: str, offset: int) -> Steps[bool]:
        is_stored = yield from super().commit(name, thread, offset)
        self._mirror.handed_over(name, is_stored=is_stored)
        return is_stored


class GroupMember:
    """The mirror in its group: `start` joins; `close` commits, releases all partitions, leaves."""

    def __init__(self, config: MirrorConfig, registry: Registry, mirror: Mirror) -> None:
        self._config = config
        self._mirror = mirror
        self.consumer_id = make_consumer_id(
            config.group_id, config.process_name or socket.gethostname(), config.consumer_id
        )
        self._offsets = _NotedOffsets(registry, config.group_id, mirror)
        self._offsets_lock = threading.RLock()
        self._stats = ConsumerStats()
        self._rebalancer = Rebalancer(
            self.consumer_id,
            ConsumerConfig(group_id=config.group_id),
            self._stats,
            self._offsets_lock,
            random.Random(),
        )
        self._membership = Membership(
            registry,
            config.group_id,
            self.consumer_id,
            topic_filter(config).subscription(1),
            delivery=mirror,
            offsets=self._offsets,
            changed=self._rebalancer.registry_changed,
        )
        mirror.owning_session = lambda: self._membership.session
        self.commits = 0
        self.commit_rounds = 0  # how often due commits were looked for
        self._listener = registry.add_session_listener(self._on_session)
        self._closing = threading.Event()
        self._rebalances = Worker(
            self._rebalance, "group-member", restarts=False, on_failure=self._broken
        )
        self._commits = Worker(
            self._commit_by_timer, "commit", restarts=False, on_failure=self._broken
        )

    def start(self) -> None:
        self._rebalancer.post(Joined())
        self._rebalances.start()
        self._commits.start()

    def close(self) -> None:
        """Make a barrier, commit, release all partitions, and leave the group."""
        self._closing.set()
        self._rebalancer.post(Left())
        # Without ZooKeeper the rebalance thread goes on until the registry is closed.
        self._rebalancer.left.wait(LEAVE_TIMEOUT_S)
        self._commits.join(LEAVE_TIMEOUT_S)
        self._listener.cancel()

    @property
    def is_settled(self) -> bool:
        """Whether the member's share of the partitions is known and owned."""
        return self._rebalancer.is_settled

    @property
    def is_alive(self) -> bool:
        """Whether its threads run; if not, the process must end, so that others take over."""
        return self._rebalances.is_alive() and self._commits.is_alive()

    @property
    def rebalances(self) -> int:
        """How often the group's members and partitions were read."""
        return self._stats.rebalances

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._rebalancer.post(SessionEnded())
        elif event is SessionEvent.RECREATED:
            self._rebalancer.post(Joined())

    # --- the threads -----------------------------------------------------------------------------

    def _rebalance(self) -> None:
        self._rebalancer.run(self._membership)

    def _broken(self, _error: BaseException) -> None:
        self._mirror.halt_all()

    def _commit_by_timer(self) -> None:
        while not self._closing.wait(self._config.commit_interval_ms / 1000):
            with self._offsets_lock:
                self._commit()

    def _commit(self) -> None:
        """Write the confirmed offsets that moved."""
        disowned = set()
        for name, (thread, offset) in self._mirror.to_commit().items():
            try:
                if run(self._offsets.commit(name, thread, offset)):
                    self._mirror.committed(name, offset)
                    self.commits += 1
                else:
                    disowned.add(name)
            except CoordinationError as error:
                log.warning("not_committed_yet", partition=str(name), reason=str(error))
                break
        self.commit_rounds += 1
        failpoint("mirror_after_commit")
        if disowned:
            self._rebalancer.post(Disowned(frozenset(disowned)))
