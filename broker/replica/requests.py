"""A replica's requests to ZooKeeper, one after another on a thread of their own, each answered by
one event; and its live node, which is made again in each new session."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from threading import Event as Flag
from typing import Any

from kafka2011.broker.replica.set_node import LiveReplica, Reading, SetNode
from kafka2011.broker.replication.effects import ReadState, Register, WriteState
from kafka2011.broker.replication.events import (
    LookAgain,
    Refused,
    SessionRenewed,
    StateRead,
    Unanswered,
    Written,
)
from kafka2011.coordination.errors import CoordinationError, VersionConflict
from kafka2011.coordination.registry import Handle, Registry, SessionEvent
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

_log: Any = get_logger(__name__)

Request = ReadState | WriteState | Register
Answer = StateRead | Written | Refused | Unanswered | LookAgain | SessionRenewed

CLOSE_S = 2.0  # for the request under way; without ZooKeeper it takes longer
PAUSE_S = 0.5  # after a request that failed: another follows at once

Job = Callable[[], None]


class RegistryRequests:
    """Carries out the requests. `answer` is called on this thread once for each; and for other
    changes, there or on the registry's thread."""

    def __init__(
        self,
        registry: Registry,
        node: SetNode,
        live: LiveReplica,
        directory: str,
        *,
        address: Callable[[], tuple[bytes, Mapping[str, int]]],
        seen: Callable[[Reading], None],
        answer: Callable[[Answer], None],
    ) -> None:
        """`address` returns the value of the broker's id node, and the topics with their numbers of
        partitions; `seen` gets each reading before its event."""
        self._registry = registry
        self._node = node
        self._live = live
        self._directory = directory
        self._address = address
        self._seen = seen
        self._answer = answer
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        # Topics to be entered, when there is no request. The thread's own.
        self._topics: deque[Job] = deque()
        self._topics_wait_until_s = 0.0
        self._is_closed = Flag()
        self._handles: list[Handle] = []
        self._worker = Worker(self._work, "replica-registry", restarts=True)

    def start(self) -> None:
        """Begin; the process's live node must exist already."""
        self._handles = [
            self._registry.add_session_listener(self._on_session),
            self._registry.watch_version(self._node.path, lambda _: self._answer(LookAgain())),
        ]
        self._worker.start()

    def close(self) -> None:
        """End; a request under way may still be carried out."""
        self._is_closed.set()
        for handle in self._handles:
            handle.cancel()
        self._queue.put(None)
        self._worker.join(CLOSE_S)

    def put(self, request: Request) -> None:
        self._queue.put(lambda: self._carry_out(request))

    def show_topics(self, version: Callable[[], int | None], topics: Mapping[str, int]) -> None:
        """Register new topics, retrying until it succeeds. `version` returns the state's version in
        which this broker is shown, or None: then nothing is registered. Requests come first: there
        may be many such topics, and what the set confirms may wait for a request."""

        def attempt() -> None:
            at = version()
            if at is None:
                return
            try:
                self._node.show_topics(at, topics)
            except CoordinationError as error:
                _log.warning("not_registered", broker_id=self._node.broker_id, reason=str(error))
                self._topics.append(attempt)
                self._topics_wait_until_s = time.monotonic() + PAUSE_S

        self._queue.put(lambda: self._topics.append(attempt))

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Job | None:
        """The next request, or topics that can be entered meanwhile; None at the end."""
        if not self._topics:
            return self._queue.get()
        pause_s = max(0.0, self._topics_wait_until_s - time.monotonic())
        try:
            return self._queue.get(timeout=pause_s)
        except Empty:
            return self._topics.popleft()

    def _carry_out(self, request: Request) -> None:
        if self._is_closed.is_set():
            return
        try:
            self._answer(self._answered(request))
            return
        except VersionConflict:
            self._answer(Refused(request.request))
            return
        except CoordinationError as error:
            _log.warning(
                "replica_request_failed", request=type(request).__name__, reason=str(error)
            )
        except Exception:  # a bug: the machine waits for an answer, and asks again
            _log.exception("internal_error", request=type(request).__name__)
        self._is_closed.wait(PAUSE_S)
        self._answer(Unanswered(request.request))

    def _answered(self, request: Request) -> Answer:
        match request:
            case ReadState(number):
                reading = self._node.read()
                self._seen(reading)
                return StateRead(number, reading.version, reading.state, frozenset(reading.live))
            case WriteState(number, version, state):
                return Written(number, self._node.write(version, state))
            case Register(number, version, present):
                if present:
                    self._node.show(version, *self._address())
                else:
                    self._node.hide(version)
                return Written(number, version)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECREATED:
            self._queue.put(self._renew)

    def _renew(self) -> None:
        try:
            self._node.go_live(self._directory, self._live)
        except CoordinationError as error:
            _log.warning("replica_not_live", reason=str(error))
            if not self._is_closed.wait(PAUSE_S):
                self._queue.put(self._renew)
            return
        self._answer(SessionRenewed())
