"""The rebalance thread: carries out what `rebalance` decides, for one member of a group.

Events come from watches, sessions and the application and wait in a queue; several watches make one
rebalance. A failure in ZooKeeper is an event for the state machine, never an error.
"""

import queue
import random
import threading

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.groups import rebalance
from kafka2011.consumer.groups.committed_offsets import run
from kafka2011.consumer.groups.membership import Membership
from kafka2011.consumer.groups.rebalance import Phase, State
from kafka2011.consumer.stats import ConsumerStats
from kafka2011.coordination.errors import CoordinationError, RegistryClosed
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)

LEAVING_ATTEMPTS_MAX = 3  # after this many failures `left` is set anyway
FIRST_PAUSE_MS = 50  # before the second attempt of a rebalance; doubles up to rebalance.backoff.ms


class Rebalancer:
    """The rebalances of one member. `first_settled` is set when the first one is settled, or has
    failed so often that waiting for it is over; `left` when the member has left the group, or
    leaving has failed too often. Leaving then goes on, on the thread, until `has_left`."""

    def __init__(
        self,
        consumer_id: str,
        config: ConsumerConfig,
        stats: ConsumerStats,
        offsets_lock: threading.RLock,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._stats = stats
        self._offsets_lock = offsets_lock
        self._rng = rng
        self._membership: Membership | None = None
        self._state = State(consumer_id)
        self._events: queue.Queue[rebalance.Event] = queue.Queue()
        self._change_pending = threading.Event()
        self.first_settled = threading.Event()
        self.left = threading.Event()

    @property
    def is_settled(self) -> bool:
        return self._state.phase is Phase.SETTLED

    @property
    def has_left(self) -> bool:
        """Whether no node of the member is left, as far as it can know."""
        return self._state.phase is Phase.LEFT

    def post(self, event: rebalance.Event) -> None:
        """Add an event for the state machine; from any thread."""
        self._events.put(event)

    def registry_changed(self) -> None:
        """Post a change, unless one is waiting: several watches make one rebalance."""
        if not self._change_pending.is_set():
            self._change_pending.set()
            self._events.put(rebalance.Changed())

    def run(self, membership: Membership) -> None:
        """Rebalance until the member has left; an exception (a bug) ends all waiting as well."""
        self._membership = membership
        try:
            self._rebalance_until_left()
        finally:
            self.first_settled.set()
            self.left.set()

    def _rebalance_until_left(self) -> None:
        waiting: rebalance.Wait | None = None
        while self._state.phase is not Phase.LEFT:
            event = self._next_event(waiting)
            if event is None:
                assert waiting is not None
                event, waiting = rebalance.Waited(waiting.epoch), None
            if isinstance(event, rebalance.Changed):
                self._change_pending.clear()
            self._state, actions = rebalance.step(self._state, event)
            for action in actions:
                if isinstance(action, rebalance.Wait):
                    waiting = action
                    self._count_failure(action.attempt)
                else:
                    answer = self._carry_out(action)
                    if answer is not None:
                        self._events.put(answer)
            if self._state.phase is Phase.SETTLED:
                self.first_settled.set()

    def _next_event(self, waiting: rebalance.Wait | None) -> rebalance.Event | None:
        """Wait for the next event; None when the pause that `waiting` asked for is over first."""
        if waiting is None:
            return self._events.get()
        pause_ms = min(
            FIRST_PAUSE_MS * 2 ** min(waiting.attempt - 1, 16), self._config.rebalance_backoff_ms
        )
        try:
            # Members that lost the same race must not collide again in the next one.
            return self._events.get(timeout=pause_ms * self._rng.uniform(0.5, 1.0) / 1000)
        except queue.Empty:
            return None

    def _count_failure(self, attempt: int) -> None:
        self._stats.rebalance_failures += 1
        if rebalance.leaves(self._state):
            if attempt == LEAVING_ATTEMPTS_MAX:
                log.warning("leaving_goes_on", group=self._config.group_id, attempts=attempt)
                self.left.set()
        elif attempt == self._config.rebalance_retries_max:
            missing = sorted(map(str, set(self._state.wanted) - set(self._state.owned)))
            log.warning("rebalance_unsettled", attempts=attempt, missing=missing)
            self.first_settled.set()

    def _carry_out(self, action: rebalance.Action) -> rebalance.Event | None:
        """Do it, and return its outcome as an event; a failure in ZooKeeper is an event, too."""
        membership = self._membership
        assert membership is not None
        try:
            match action:
                case rebalance.Register(epoch):
                    run(membership.register())
                    return rebalance.Registered(epoch)
                case rebalance.ReadRegistry(epoch):
                    view = run(membership.read())
                    self._stats.rebalances += 1
                    return rebalance.Read(epoch, view.members, view.partitions)
                case rebalance.Release(epoch, claims):
                    with self._offsets_lock:
                        run(membership.release(claims))
                    self._log_claims("released", claims)
                    return rebalance.Released(epoch, frozenset(claims))
                case rebalance.Claim(epoch, claims):
                    with self._offsets_lock:
                        granted, error = run(membership.claim(claims))
                    self._log_claims("claimed", granted)
                    if error is not None:
                        log.warning("rebalance_failed", step="Claim", reason=str(error))
                        return rebalance.Failed(epoch, granted)
                    return rebalance.Claimed(epoch, granted)
                case rebalance.Abandon():
                    membership.abandon()
                case rebalance.Deregister(epoch):
                    run(membership.deregister())
                    return rebalance.Deregistered(epoch)
        except CoordinationError as failure:
            if isinstance(failure, RegistryClosed) and rebalance.leaves(self._state):
                return rebalance.Closed()
            log.warning("rebalance_failed", step=type(action).__name__, reason=str(failure))
            return rebalance.Failed(getattr(action, "epoch", -1))
        return None

    def _log_claims(self, what: str, names: "rebalance.Claims | frozenset[TopicPartition]") -> None:
        if names:
            log.info(what, group=self._config.group_id, partitions=sorted(map(str, names)))
