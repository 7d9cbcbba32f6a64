"""Keeps the broker's nodes in ZooKeeper: its id, and the number of partitions of each topic.

At the start it registers in the foreground: the broker serves only once it is registered. Later a
thread of its own adds new topics, and everything again after a session is lost. ZooKeeper's absence
never disturbs the data path.

An id that is taken is either our own last run's (a restart faster than the session timeout: wait
for its node to go) or another live broker's (exit with a clear line). Only time tells which: a
broker that answers at the node's address may belong to another cluster and have taken a free port.
"""

import socket
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any

from kafka2011.coordination import paths
from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.coordination.errors import BadZnode, CoordinationError, NodeConflict
from kafka2011.coordination.registry import Registry, SessionEvent
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

_log: Any = get_logger(__name__)

RETRY_S = 1.0
CONNECT_TIMEOUT_S = 2.0
STALE_POLL_S = 0.2


class DuplicateBrokerId(Exception):
    """Another live broker has the id. The text is one line for the operator; exit with 1."""


class StoppedWhileWaiting(Exception):
    """The process is to stop while it waits for ZooKeeper, or for a stale node to go."""


def answers(address: BrokerAddress) -> bool:
    """Whether `address` accepts connections."""
    try:
        with socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


class BrokerRegistration:
    """The registration of one broker in one registry."""

    def __init__(
        self,
        registry: Registry,
        broker_id: int,
        address: BrokerAddress,
        partition_count: Callable[[str], int],
        *,
        clock: Clock,
        stale_wait_s: float,
        answers: Callable[[BrokerAddress], bool] = answers,
        pause: Callable[[float], bool | None] = time.sleep,
    ) -> None:
        """`stale_wait_s`: how long a dead broker's node may stay; more than the session timeout.
        `pause` waits that many seconds; true means that the process is to stop."""
        self._registry = registry
        self._broker_id = broker_id
        self._address = address
        self._partition_count = partition_count
        self._clock = clock
        self._stale_wait_s = stale_wait_s
        self._answers = answers
        self._pause = pause
        self._topics: set[str] = set()
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._again = False
        self._closed = False
        self.is_registered = False
        self._pending: set[str] = set()
        self._worker = Worker(self._work, "registration", restarts=True)

    def register(self, topics: Iterable[str]) -> None:
        """Register the id and the topics found on disk; returns once both are registered.

        Raises:
          DuplicateBrokerId: another live broker has the id.
          StoppedWhileWaiting: the process is to stop.
          CoordinationError: ZooKeeper does not answer.
        """
        self._topics.update(topics)
        # First, so that a session that ends while the nodes are made is noticed.
        self._registry.add_session_listener(self._on_session)
        self._claim_id()
        for topic in sorted(self._topics):
            self._enter_topic(topic)
        self.is_registered = True
        self._worker.start()

    def topic_seen(self, topic: str) -> None:
        """A topic got its first log: register it soon, without waiting."""
        if topic not in self._topics:
            self._topics.add(topic)
            self._queue.put(topic)

    def close(self) -> None:
        """Stop the thread. The nodes go with the registry's session."""
        self._closed = True
        self._queue.put(None)
        self._worker.join()

    # --- the id --------------------------------------------------------------------------------

    def _claim_id(self) -> None:
        path = paths.broker_id_path(self._broker_id)
        deadline = time.monotonic() + self._stale_wait_s
        waiting = False
        while True:
            value = paths.encode_broker(self._address.host, self._address.port, self._clock())
            try:
                self._registry.create_ephemeral(path, value)
                return
            except NodeConflict as conflict:
                stored = self._registry.get(path)
                if stored is not None and stored.owned:
                    return  # made in this session already: only its time differs
                if time.monotonic() > deadline:
                    holder = self._holder(conflict)
                    if holder is not None and holder != self._address and self._answers(holder):
                        raise DuplicateBrokerId(
                            f"broker id {self._broker_id} is already registered by "
                            f"{holder.host}:{holder.port}, which answers"
                        ) from None
                    raise DuplicateBrokerId(
                        f"broker id {self._broker_id} is still registered"
                        f"{f' by {holder.host}:{holder.port}' if holder else ''} after "
                        f"{self._stale_wait_s:.0f} s: another broker holds it"
                    ) from None
                if not waiting:
                    waiting = True
                    _log.info("waiting_for_stale_registration", path=path)
                self._wait()

    def _wait(self) -> None:
        if self._pause(STALE_POLL_S):
            raise StoppedWhileWaiting

    @staticmethod
    def _holder(conflict: NodeConflict) -> BrokerAddress | None:
        try:
            return paths.decode_broker(conflict.found)
        except BadZnode:
            return None

    def _enter_topic(self, topic: str) -> None:
        """Create a topic's node. A leftover of our last session is replaced by the registry, or
        goes by itself while this retries. Raises CoordinationError, StoppedWhileWaiting."""
        value = paths.encode_number(self._partition_count(topic))
        path = paths.topic_broker_path(topic, self._broker_id)
        deadline = time.monotonic() + self._stale_wait_s
        while True:
            try:
                self._registry.create_ephemeral(path, value)
                return
            except NodeConflict:
                # We hold the id, so this node belongs to an ending session of ours.
                if time.monotonic() > deadline:
                    raise
                self._wait()

    # --- later ---------------------------------------------------------------------------------

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.is_registered = False
            _log.warning("session_expired", broker_id=self._broker_id)
        elif event is SessionEvent.RECREATED:
            self._again = True
            self._queue.put("")

    def _work(self) -> None:
        pending = self._pending
        while not self._closed:
            try:
                topic = self._queue.get(timeout=RETRY_S if pending or self._again else None)
            except Empty:
                topic = ""
            if topic is None:
                return
            if topic:
                pending.add(topic)
            try:
                if self._again:
                    self._again = False
                    self._register_again()
                    pending.clear()
                for waiting in sorted(pending):
                    self._enter_topic(waiting)
                    pending.discard(waiting)
            except StoppedWhileWaiting:
                return
            except (CoordinationError, DuplicateBrokerId) as error:
                _log.warning("not_registered", broker_id=self._broker_id, reason=str(error))
            finally:
                self._again = self._again or not self.is_registered

    def _register_again(self) -> None:
        """Register everything, after a lost session."""
        self.is_registered = False
        self._claim_id()
        for topic in sorted(self._topics):
            self._enter_topic(topic)
        self.is_registered = True
        _log.info("registered_again", broker_id=self._broker_id, topics=len(self._topics))
