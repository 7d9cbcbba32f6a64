"""The mirror's presence in its consumer group: one thread that rebalances and commits.

It carries out what `consumer.rebalance.step` decides, by `consumer.membership`, and writes the
mirror's confirmed offsets in between. One thread does both, so that a commit never races the
release of its partition.
"""

import queue
import random
import socket
import threading
import time
from collections import deque

from consumer.assignment import make_consumer_id
from consumer.filters import TopicFilter, blacklist, whitelist
from consumer.membership import Membership
from consumer.offsets import OffsetStore, run
from consumer.rebalance import (
    Abandon,
    Action,
    Changed,
    Claim,
    Claimed,
    Claims,
    Deregister,
    Disowned,
    Event,
    Failed,
    Joined,
    Left,
    Phase,
    Read,
    ReadRegistry,
    Register,
    Registered,
    Release,
    Released,
    SessionLost,
    State,
    Wait,
    Waited,
    step,
)
from coordination.errors import CoordinationError
from coordination.registry import Registry, SessionEvent
from runtime.failpoints import failpoint
from runtime.logs import get_logger
from services.mirror_maker.config import NEVER_COPIED, MirrorConfig
from services.mirror_maker.core import Backoff
from services.mirror_maker.mirror import Mirror

LEAVE_TIMEOUT_S = 20.0
# Pauses between attempts of a rebalance: a partition that another member still holds is asked
# for again soon, and a storm of members calms down.
REBALANCE_BACKOFF = Backoff(0.1, 2.0)

log = get_logger(__name__)


def topic_filter(config: MirrorConfig) -> TopicFilter:
    """What the group subscribes to. Raises IllegalTopicFilter."""
    if config.topics_whitelist:
        return whitelist(config.topics_whitelist)
    return blacklist("|".join(filter(None, [*sorted(NEVER_COPIED), config.topics_blacklist])))


class GroupMember:
    """Joins at `start`; `close` hands everything over and leaves."""

    def __init__(self, config: MirrorConfig, registry: Registry, mirror: Mirror) -> None:
        self._config = config
        self._mirror = mirror
        self.consumer_id = make_consumer_id(
            config.group_id, socket.gethostname(), config.consumer_id
        )
        self._offsets = OffsetStore(registry, config.group_id)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._membership = Membership(
            registry,
            config.group_id,
            self.consumer_id,
            topic_filter(config).subscription(1),
            delivery=mirror,
            offsets=self._offsets,
            changed=lambda: self._events.put(Changed()),
        )
        mirror.owning_session = lambda: self._membership.session
        self._state = State(self.consumer_id)
        self._rng = random.Random()
        self._wait: tuple[float, int] | None = None  # (until, epoch)
        self._commit_at_s = 0.0
        self._settled_with: Claims | None = None
        self.rebalances = 0
        self.commits = 0
        self.looks = 0  # times that it was seen whether there was something to commit
        self._listener = registry.add_session_listener(self._on_session)
        self._thread = threading.Thread(target=self._run, name="group-member", daemon=True)

    def start(self) -> None:
        self._events.put(Joined())
        self._thread.start()

    def close(self) -> None:
        """Barrier, commit, give up all partitions, leave the group."""
        self._events.put(Left())
        self._thread.join(LEAVE_TIMEOUT_S)
        self._listener.cancel()

    @property
    def is_settled(self) -> bool:
        """The share of the partitions is known and owned."""
        return self._state.phase is Phase.SETTLED

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._events.put(SessionLost())
        elif event is SessionEvent.RECREATED:
            self._events.put(Joined())

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._state.phase is not Phase.LEFT:
            try:
                event: Event | None = self._events.get(timeout=self._pause_s())
            except queue.Empty:
                event = None
            now_s = time.monotonic()
            if event is not None:
                self._handle(event)
            elif self._wait is not None and now_s >= self._wait[0]:
                epoch, self._wait = self._wait[1], None
                self._handle(Waited(epoch))
            if now_s >= self._commit_at_s:
                self._commit()
                self._commit_at_s = time.monotonic() + self._config.commit_interval_ms / 1000

    def _pause_s(self) -> float:
        ends = [self._commit_at_s] + ([self._wait[0]] if self._wait else [])
        return max(0.0, min(ends) - time.monotonic())

    def _handle(self, event: Event) -> None:
        """Take a step, and those that the answers to its actions lead to."""
        pending = deque([event])
        while pending:
            before = self._state.phase
            self._state, actions = step(self._state, pending.popleft())
            if self._state.phase is Phase.SETTLED and before is not Phase.SETTLED:
                self.rebalances += 1
                if self._state.owned != self._settled_with:
                    self._settled_with = self._state.owned
                    log.info("settled", owned_count=len(self._state.owned))
            for action in actions:
                answer = self._done(action)
                if answer is not None:
                    pending.append(answer)

    def _done(self, action: Action) -> Event | None:
        """Carry out one action; its answer."""
        if isinstance(action, Abandon):
            self._membership.abandon()
            return None
        if isinstance(action, Wait):
            pause_s = REBALANCE_BACKOFF.pause_s(action.attempt) * self._rng.uniform(0.5, 1.0)
            self._wait = (time.monotonic() + pause_s, action.epoch)
            return None
        try:
            return self._asked(action)
        except CoordinationError as error:
            log.warning("rebalance_step_failed", step=type(action).__name__, reason=str(error))
            return None if isinstance(action, Deregister) else Failed(action.epoch)

    def _asked(self, action: Action) -> Event | None:
        match action:
            case Register(epoch):
                run(self._membership.register())
                return Registered(epoch)
            case ReadRegistry(epoch):
                view = run(self._membership.read())
                return Read(epoch, view.members, view.partitions)
            case Release(epoch, claims):
                run(self._membership.release(claims))
                return Released(epoch, frozenset(claims))
            case Claim(epoch, claims):
                result = run(self._membership.claim(claims))
                if result.error is not None:
                    log.warning("claim_failed", reason=str(result.error))
                    return Failed(epoch, result.granted)
                return Claimed(epoch, result.granted)
            case Deregister():
                run(self._membership.deregister())
                return None
        raise AssertionError(f"no such action: {action!r}")

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
        self.looks += 1
        failpoint("mirror_after_commit")
        if disowned:
            self._events.put(Disowned(frozenset(disowned)))
