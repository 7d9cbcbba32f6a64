"""A ZooKeeper in memory for unit tests, with faults on demand, under the real one's contract tests.

`InMemoryZooKeeper` is the server; each `InMemoryRegistry` is one client of it. Notifications
(watches and session events) are queued for each client. With `deliver="at once"` (the default) the
thread that made a change delivers them after it; with `deliver="by hand"` a test calls
`deliver_next()`, so that watches arrive late and merge as they do on a network.

Faults: `expire`, `suspend` / `resume`, `lose_next_reply` (the change is made, the caller sees a
lost connection), `fail_next` (lost before it was made).
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Literal

from kafka2011.coordination.errors import (
    CoordinationUnavailable,
    NodeConflict,
    NodeExists,
    NotEmpty,
    SessionLost,
    VersionConflict,
)
from kafka2011.coordination.paths import parents
from kafka2011.coordination.registry import (
    ABSENT,
    ChildrenCallback,
    Handle,
    NodeStat,
    SessionCallback,
    SessionEvent,
    Stored,
)
from kafka2011.runtime.clock import Clock, now_ms


class _Node:
    __slots__ = ("children", "created_ms", "modified_ms", "owner", "value", "version")

    def __init__(self, value: bytes | None, owner: int, now_ms: int) -> None:
        self.value = value
        self.version = 0
        self.created_ms = self.modified_ms = now_ms
        self.owner = owner  # session id, 0 for a persistent node
        self.children: set[str] = set()


class InMemoryZooKeeper:
    """The tree that several registries share. `operation_count` counts their requests.

    `clock` gives the times of nodes, ms since the epoch.
    """

    def __init__(self, clock: Clock = now_ms) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._nodes: dict[str, _Node] = {"/": _Node(None, 0, clock())}
        self._clients: list[InMemoryRegistry] = []
        self._session_last = 0
        self.operation_count = 0

    def client(self, deliver: Literal["at once", "by hand"] = "at once") -> "InMemoryRegistry":
        return InMemoryRegistry(self, deliver)

    def paths(self) -> list[str]:
        """Every node's path, sorted (for a test's message)."""
        with self._lock:
            return sorted(self._nodes)

    # The rest is called by clients, under the lock.

    def _new_session(self) -> int:
        self._session_last += 1
        return self._session_last

    def _end_session(self, session: int) -> None:
        for path in [path for path, node in self._nodes.items() if node.owner == session]:
            self._remove(path)

    def _add(self, path: str, value: bytes | None, owner: int) -> None:
        if path in self._nodes:
            raise NodeExists(path)
        for parent in parents(path):
            if parent not in self._nodes:
                self._add(parent, None, 0)
        above, _, name = path.rpartition("/")
        self._nodes[path] = _Node(value, owner, self._clock())
        self._nodes[above or "/"].children.add(name)
        self._changed(above or "/")
        self._changed(path)

    def _remove(self, path: str) -> None:
        if self._nodes[path].children:
            raise NotEmpty(path)
        del self._nodes[path]
        above, _, name = path.rpartition("/")
        self._nodes[above or "/"].children.discard(name)
        self._changed(above or "/")
        self._changed(path)

    def _changed(self, path: str) -> None:
        for client in self._clients:
            client._queue_watches(path)


class _Watch:
    def __init__(self, path: str, callback: ChildrenCallback) -> None:
        self.path = path
        self.callback = callback
        self.queued = False
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Listener:
    def __init__(self, callback: SessionCallback) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class InMemoryRegistry:
    """See `registry.Registry`."""

    def __init__(
        self, zookeeper: InMemoryZooKeeper, deliver: Literal["at once", "by hand"] = "at once"
    ) -> None:
        self._zookeeper = zookeeper
        self._lock = zookeeper._lock
        self._by_hand = deliver == "by hand"
        self._delivery = threading.RLock()
        self._pending: deque[Callable[[], None]] = deque()
        self._watches: list[_Watch] = []
        self._listeners: list[_Listener] = []
        self._sessions: list[int] = []
        self._session = 0
        self._suspended = False
        self._closed = False
        self._fail: Literal["", "before", "after"] = ""
        self.lease_ms = 4000  # what lease_remaining_ms answers while the session answers

    # --- life and faults -------------------------------------------------------------------------

    def start(self, timeout_ms: int = 6000) -> None:
        del timeout_ms
        with self._lock:
            if self._closed:
                raise CoordinationUnavailable("the registry is closed")
            if not self._session:
                self._begin_session()
                self._zookeeper._clients.append(self)
                self._queue_event(SessionEvent.CONNECTED)
        self._deliver_if_at_once()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._pending.clear()
            if self in self._zookeeper._clients:
                self._zookeeper._clients.remove(self)
            self._zookeeper._end_session(self._session)
        self._deliver_others()

    def expire(self, *, server_keeps_nodes: bool = False) -> None:
        """Lose the session and get another. `server_keeps_nodes`: the old session's nodes stay
        until `end_old_sessions`, as with kazoo's test expiry, or a server that has not noticed.
        """
        with self._lock:
            if not server_keeps_nodes:
                self._zookeeper._end_session(self._session)
            self._begin_session()
            self._suspended = False
            self._queue_event(SessionEvent.EXPIRED)
            self._queue_event(SessionEvent.RECREATED)
            self._queue_all_watches()
        self._deliver_others()

    def end_old_sessions(self) -> None:
        with self._lock:
            for session in self._sessions[:-1]:
                self._zookeeper._end_session(session)
        self._deliver_others()

    def end_session_on_server(self) -> None:
        """The server drops the session; the client is suspended or stopped and does not notice."""
        with self._lock:
            self._zookeeper._end_session(self._session)
            self._session = -1
        self._deliver_others()

    def suspend(self) -> None:
        """No connection: calls fail, the lease runs out (at once here), the session lives on."""
        with self._lock:
            self._suspended = True
            self._queue_event(SessionEvent.SUSPENDED)
        self._deliver_others()

    def resume(self) -> None:
        """Connected again, to the same session, or to a new one if the server dropped it."""
        with self._lock:
            self._suspended = False
            if self._session == -1:
                self._begin_session()
                self._queue_event(SessionEvent.EXPIRED)
                self._queue_event(SessionEvent.RECREATED)
            else:
                self._queue_event(SessionEvent.CONNECTED)
            self._queue_all_watches()
        self._deliver_others()

    def fail_next(self) -> None:
        """The next call fails before it has an effect."""
        self._fail = "before"

    def lose_next_reply(self) -> None:
        """The next call that changes something has its effect, and fails.

        The real registry reads again after a lost reply; a caller sees the error only when that
        failed too, which is the case here.
        """
        self._fail = "after"

    def _begin_session(self) -> None:
        self._session = self._zookeeper._new_session()
        self._sessions.append(self._session)

    # --- notifications ----------------------------------------------------------------------------

    def deliver_next(self) -> bool:
        """Deliver the oldest notification; False when there is none."""
        with self._delivery:
            with self._lock:
                if not self._pending:
                    return False
                notify = self._pending.popleft()
            notify()
            return True

    def _deliver_if_at_once(self) -> None:
        if not self._by_hand:
            while self.deliver_next():
                pass

    def _deliver_others(self) -> None:
        """After a change by this client: deliver to all clients, this one included."""
        for client in [self, *self._zookeeper._clients]:
            client._deliver_if_at_once()

    def _queue_event(self, event: SessionEvent) -> None:
        def notify() -> None:
            for listener in list(self._listeners):
                if not listener.cancelled and not self._closed:
                    listener.callback(event)

        self._pending.append(notify)

    def _queue_watches(self, path: str) -> None:
        for watch in self._watches:
            if watch.path == path:
                self._queue_watch(watch)

    def _queue_all_watches(self) -> None:
        for watch in self._watches:
            self._queue_watch(watch)

    def _queue_watch(self, watch: _Watch) -> None:
        if watch.queued or watch.cancelled or self._closed or self._suspended:
            return
        watch.queued = True

        def notify() -> None:
            with self._lock:
                watch.queued = False
                node = self._zookeeper._nodes.get(watch.path)
                children = sorted(node.children) if node else []
                if watch.cancelled or self._closed:
                    return
            watch.callback(children)

        self._pending.append(notify)

    def watch_children(self, path: str, callback: ChildrenCallback) -> Handle:
        watch = _Watch(path, callback)
        with self._lock:
            self._watches.append(watch)
            self._queue_watch(watch)
        self._deliver_if_at_once()
        return watch

    def add_session_listener(self, callback: SessionCallback) -> Handle:
        listener = _Listener(callback)
        self._listeners.append(listener)
        return listener

    def session_id(self) -> int | None:
        usable = self._session > 0 and not self._suspended and not self._closed
        return self._session if usable else None

    def lease_remaining_ms(self, session: int | None = None) -> int:
        present = self.session_id()
        return self.lease_ms if present is not None and session in (None, present) else 0

    # --- reading ---------------------------------------------------------------------------------

    def _ask(self) -> dict[str, _Node]:
        self._zookeeper.operation_count += 1
        if self.session_id() is None:
            raise CoordinationUnavailable("not connected to ZooKeeper")
        if self._fail == "before":
            self._fail = ""
            raise CoordinationUnavailable("the request was lost")
        return self._zookeeper._nodes

    def get(self, path: str) -> Stored | None:
        with self._lock:
            node = self._ask().get(path)
            if node is None:
                return None
            return Stored(node.value, node.version, node.owner == self._session)

    def stat(self, path: str) -> NodeStat | None:
        with self._lock:
            node = self._ask().get(path)
            if node is None:
                return None
            return NodeStat(
                node.version,
                node.created_ms,
                node.modified_ms,
                node.owner != 0,
                len(node.value or b""),
                len(node.children),
            )

    def exists(self, path: str) -> bool:
        with self._lock:
            return path in self._ask()

    def children(self, path: str) -> list[str]:
        with self._lock:
            node = self._ask().get(path)
            return sorted(node.children) if node else []

    # --- writing ---------------------------------------------------------------------------------

    def _changed(self) -> None:
        """After each change: deliver to all clients, and lose the reply if that was planned."""
        self._deliver_others()
        if self._fail == "after":
            self._fail = ""
            raise CoordinationUnavailable("the reply was lost")

    def create(self, path: str, value: bytes | None = None, ephemeral: bool = False) -> None:
        with self._lock:
            self._ask()
            self._zookeeper._add(path, value, self._session if ephemeral else 0)
        self._changed()

    def ensure(self, path: str) -> None:
        try:
            self.create(path)
        except NodeExists:
            pass

    def create_ephemeral(self, path: str, value: bytes | None, session: int | None = None) -> None:
        with self._lock:
            nodes = self._ask()
            if session is not None and session != self._session:
                raise SessionLost(f"the session changed before {path} was created")
            node = nodes.get(path)
            if node is not None:
                if node.owner == self._session and node.value == value:
                    return
                if node.owner == self._session or node.owner not in self._sessions:
                    raise NodeConflict(path, node.value)
                self._zookeeper._remove(path)
            self._zookeeper._add(path, value, self._session)
        self._changed()

    def put(self, path: str, value: bytes | None, expected_version: int | None = None) -> int:
        with self._lock:
            node = self._ask().get(path)
            found = ABSENT if node is None else node.version
            if expected_version is not None and expected_version != found:
                raise VersionConflict(f"{path} is not at version {expected_version}")
            if node is None:
                self._zookeeper._add(path, value, 0)
            else:
                node.value = value
                node.version += 1
                node.modified_ms = self._zookeeper._clock()
        self._changed()
        return found + 1

    def delete(self, path: str, expected_version: int | None = None) -> bool:
        with self._lock:
            node = self._ask().get(path)
            if node is None:
                return False
            if expected_version is not None and expected_version != node.version:
                raise VersionConflict(f"{path} is not at version {expected_version}")
            self._zookeeper._remove(path)
        self._changed()
        return True

    def delete_own(self, path: str, value: bytes | None) -> bool:
        with self._lock:
            node = self._ask().get(path)
            if node is None or node.owner != self._session or node.value != value:
                return False
            self._zookeeper._remove(path)
        self._changed()
        return True

    def delete_recursive(self, path: str) -> None:
        with self._lock:
            nodes = self._ask()
            below = [name for name in nodes if name == path or name.startswith(f"{path}/")]
            for name in sorted(below, reverse=True):
                self._zookeeper._remove(name)
        self._changed()
