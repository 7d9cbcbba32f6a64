"""A ZooKeeper in memory for unit tests, with faults on demand, under the real one's contract tests.

`InMemoryZooKeeper` is the server; each `InMemoryRegistry` is one client of it. Notifications
(watches and session events) are queued for each client. With `deliver="at once"` (the default) the
thread that made a change delivers them after it; with `deliver="by hand"` a test calls
`deliver_next()`, so that watches arrive late and merge as they do on a network.

Faults: `expire`, `suspend` / `resume`, `lose_next_reply` (the change is made, the caller sees a
lost connection), `fail_next` (lost before it was made).
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kafka2011.coordination import errors
from kafka2011.coordination.paths import parents
from kafka2011.coordination.registry import (
    ABSENT,
    Creation,
    Deletion,
    Handle,
    NodeStat,
    SessionEvent,
    Stored,
)
from kafka2011.runtime.clock import Clock, now_ms

Delivery = Literal["at once", "by hand"]


@dataclass
class _Node:
    value: bytes | None
    owner: int  # session id, 0 for a persistent node
    created_ms: int
    modified_ms: int
    created: int
    modified: int
    version: int = 0
    children: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _Subscriber:
    """Of the children of `path`, or of its version, or without a path of session events."""

    callback: Callable[[Any], None]
    path: str | None = None
    is_of_version: bool = False
    is_queued: bool = False
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class InMemoryZooKeeper:
    """The tree that several registries share. `operation_count` counts their requests.

    `clock` gives the times of nodes, ms since the epoch.
    """

    def __init__(self, clock: Clock = now_ms) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._nodes: dict[str, _Node] = {"/": _Node(None, 0, clock(), clock(), 0, 0)}
        self._clients: list[InMemoryRegistry] = []
        self._session_last = 0
        self._change_count = 0
        self.operation_count = 0

    def client(self, deliver: Delivery = "at once") -> "InMemoryRegistry":
        return InMemoryRegistry(self, deliver)

    def paths(self) -> list[str]:
        """Every node's path, sorted (for a test's message)."""
        with self._lock:
            return sorted(self._nodes)

    def value(self, path: str) -> bytes | None:
        """What the node holds; None also when there is none. Not a request of any client."""
        with self._lock:
            node = self._nodes.get(path)
            return node.value if node else None

    def nodes_of(self, client: "InMemoryRegistry") -> list[str]:
        """The ephemeral nodes of the client's present session."""
        with self._lock:
            session = client._session
            return sorted(path for path, node in self._nodes.items() if node.owner == session)

    # The rest is called by clients, under the lock.

    def _end_session(self, session: int) -> None:
        for path in [path for path, node in self._nodes.items() if node.owner == session]:
            self._remove(path)

    def _add(self, path: str, value: bytes | None, owner: int) -> None:
        if path in self._nodes:
            raise errors.NodeExists(path)
        for parent in parents(path):
            if parent not in self._nodes:
                self._add(parent, None, 0)
        time_ms = self._clock()
        number = self._change_count + 1
        self._nodes[path] = _Node(value, owner, time_ms, time_ms, number, number)
        above, _, name = path.rpartition("/")
        self._nodes[above or "/"].children.add(name)
        self._notify(above or "/", node=path)

    def _set(self, path: str, value: bytes | None) -> None:
        node = self._nodes[path]
        node.value = value
        node.version += 1
        node.modified_ms = self._clock()
        node.modified = self._change_count + 1
        self._notify(node=path)

    def _remove(self, path: str) -> None:
        if self._nodes[path].children:
            raise errors.NotEmpty(path)
        del self._nodes[path]
        above, _, name = path.rpartition("/")
        self._nodes[above or "/"].children.discard(name)
        self._notify(above or "/", node=path)

    def _notify(self, above: str | None = None, *, node: str) -> None:
        """The node has changed, and the children of `above` where it came or went."""
        self._change_count += 1
        for client in self._clients:
            for watch in client._watches:
                is_met = watch.path == node if watch.is_of_version else watch.path in (above, node)
                if is_met and (above or watch.is_of_version):
                    client._queue_watch(watch)


class InMemoryRegistry:
    """See `registry.Registry`."""

    def __init__(self, zookeeper: InMemoryZooKeeper, deliver: Delivery = "at once") -> None:
        self._zookeeper = zookeeper
        self._lock = zookeeper._lock
        self._by_hand = deliver == "by hand"
        self._delivery = threading.RLock()
        self._pending: deque[Callable[[], None]] = deque()
        self._watches: list[_Subscriber] = []
        self._listeners: list[_Subscriber] = []
        self._sessions: list[int] = []
        self._session = 0  # -1 when the server dropped it and the client has not noticed
        self._closed = False
        self._fail: Literal["", "before", "after"] = ""
        self.is_suspended = False
        self.lease_ms = 4000  # what lease_remaining_ms answers while the session answers

    # --- life and faults -------------------------------------------------------------------------

    def start(self, timeout_ms: int = 6000) -> None:
        with self._lock:
            if self._closed:
                raise errors.RegistryClosed("the registry is closed")
            if not self._session:
                self._begin_session(SessionEvent.CONNECTED)
                self._zookeeper._clients.append(self)
        self._deliver_if_at_once()

    def close_if_silent(self) -> None:
        """Nothing: it answers."""

    def close(self) -> None:
        with self._delivering_to_all():
            if self._closed:
                return
            self._closed = True
            self._pending.clear()
            if self in self._zookeeper._clients:
                self._zookeeper._clients.remove(self)
            self._zookeeper._end_session(self._session)

    def answers_within(self, _seconds: float) -> bool:
        return not self._closed

    def abandon(self) -> None:
        self.close()

    def expire(self, *, server_keeps_nodes: bool = False) -> None:
        """Lose the session and get another. `server_keeps_nodes`: the old session's nodes stay
        until `end_old_sessions`, as with kazoo's test expiry, or a server that has not noticed.
        """
        with self._delivering_to_all():
            if not server_keeps_nodes:
                self._zookeeper._end_session(self._session)
            self.is_suspended = False
            self._begin_session(SessionEvent.EXPIRED, SessionEvent.RECREATED)
            self._queue_watches()

    def end_old_sessions(self) -> None:
        with self._delivering_to_all():
            for session in self._sessions[:-1]:
                self._zookeeper._end_session(session)

    def end_session_on_server(self) -> None:
        """The server drops the session; the client is suspended or stopped and does not notice."""
        with self._delivering_to_all():
            self._zookeeper._end_session(self._session)
            self._session = -1

    def suspend(self) -> None:
        """No connection: calls fail, the lease runs out (at once here), the session lives on."""
        with self._delivering_to_all():
            self.is_suspended = True
            self._queue_event(SessionEvent.SUSPENDED)

    def resume(self) -> None:
        """Connected again, to the same session, or to a new one if the server dropped it."""
        with self._delivering_to_all():
            self.is_suspended = False
            if self._session == -1:
                self._begin_session(SessionEvent.EXPIRED, SessionEvent.RECREATED)
            else:
                self._queue_event(SessionEvent.CONNECTED)
            self._queue_watches()

    def fail_next(self) -> None:
        """The next call fails before it has an effect."""
        self._fail = "before"

    def lose_next_reply(self) -> None:
        """The next call that changes something has its effect, and fails.

        The real registry reads again after a lost reply; a caller sees the error only when that
        failed too, which is the case here.
        """
        self._fail = "after"

    def fail_no_more(self) -> None:
        self._fail = ""

    def _begin_session(self, *events: SessionEvent) -> None:
        self._zookeeper._session_last += 1
        self._session = self._zookeeper._session_last
        self._sessions.append(self._session)
        for event in events:
            self._queue_event(event)

    # --- notifications ---------------------------------------------------------------------------

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

    @contextlib.contextmanager
    def _delivering_to_all(self) -> Iterator[None]:
        """A change under the lock; then deliver to all clients, this one included."""
        with self._lock:
            yield
        for client in [self, *self._zookeeper._clients]:
            client._deliver_if_at_once()

    def _queue_event(self, event: SessionEvent) -> None:
        def notify() -> None:
            for listener in list(self._listeners):
                if not listener.is_cancelled and not self._closed:
                    listener.callback(event)

        self._pending.append(notify)

    def _queue_watches(self) -> None:
        for watch in self._watches:
            self._queue_watch(watch)

    def _queue_watch(self, watch: _Subscriber) -> None:
        if watch.is_queued or self.is_suspended:
            return
        watch.is_queued = True

        def notify() -> None:
            with self._lock:
                watch.is_queued = False
                node = self._zookeeper._nodes.get(watch.path or "/")
                found: Any = sorted(node.children) if node else []
                if watch.is_of_version:
                    found = node.version if node else ABSENT
                if watch.is_cancelled or self._closed:
                    return
            watch.callback(found)

        self._pending.append(notify)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Handle:
        return self._watch(_Subscriber(callback, path))

    def watch_version(self, path: str, callback: Callable[[int], None]) -> Handle:
        return self._watch(_Subscriber(callback, path, is_of_version=True))

    def _watch(self, watch: _Subscriber) -> Handle:
        with self._lock:
            self._watches.append(watch)
            self._queue_watch(watch)
        self._deliver_if_at_once()
        return watch

    def catch_up(self) -> None:
        with self._request():
            pass
        while self.deliver_next():
            pass

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> Handle:
        listener = _Subscriber(callback)
        self._listeners.append(listener)
        return listener

    def session_id(self) -> int | None:
        usable = self._session > 0 and not self.is_suspended and not self._closed
        return self._session if usable else None

    def lease_remaining_ms(self, session: int | None = None) -> int:
        present = self.session_id()
        return self.lease_ms if present is not None and session in (None, present) else 0

    # --- requests --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _request(self) -> Iterator[dict[str, _Node]]:
        """One request, under the lock; delivers what it changed, and fails where that was asked."""
        zookeeper = self._zookeeper
        with self._lock:
            zookeeper.operation_count += 1
            if self._closed:
                raise errors.RegistryClosed("the registry is closed")
            if self.session_id() is None:
                raise errors.CoordinationUnavailable("not connected to ZooKeeper")
            if self._fail == "before":
                self._fail = ""
                raise errors.CoordinationUnavailable("the request was lost")
            before = zookeeper._change_count
            yield zookeeper._nodes
            if zookeeper._change_count == before:
                return
        with self._delivering_to_all():
            pass
        if self._fail == "after":
            self._fail = ""
            raise errors.CoordinationUnavailable("the reply was lost")

    def get(self, path: str) -> Stored | None:
        with self._request() as nodes:
            node = nodes.get(path)
            return node and Stored(node.value, node.version, node.owner == self._session)

    def get_many(self, paths: Sequence[str]) -> list[Stored | None]:
        return [self.get(path) for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        return [self.children(path) for path in paths]

    def stat(self, path: str) -> NodeStat | None:
        with self._request() as nodes:
            node = nodes.get(path)
            return node and NodeStat(
                node.version,
                node.created_ms,
                node.modified_ms,
                is_ephemeral=node.owner != 0,
                size_bytes=len(node.value or b""),
                child_count=len(node.children),
                created=node.created,
                modified=node.modified,
            )

    def exists(self, path: str) -> bool:
        with self._request() as nodes:
            return path in nodes

    def children(self, path: str) -> list[str]:
        with self._request() as nodes:
            return sorted(nodes[path].children) if path in nodes else []

    def create(self, path: str, value: bytes | None = None, ephemeral: bool = False) -> None:
        with self._request():
            self._zookeeper._add(path, value, self._session if ephemeral else 0)

    def ensure(self, path: str) -> None:
        with contextlib.suppress(errors.NodeExists):
            self.create(path)

    def create_ephemeral(self, path: str, value: bytes | None, session: int | None = None) -> None:
        with self._request() as nodes:
            if session not in (None, self._session):
                raise errors.SessionLost(f"the session changed before {path} was created")
            node = nodes.get(path)
            if node is not None:
                if node.owner == self._session and node.value == value:
                    return
                if node.owner == self._session or node.owner not in self._sessions:
                    raise errors.NodeConflict(path, node.value)
                self._zookeeper._remove(path)
            self._zookeeper._add(path, value, self._session)

    def put(self, path: str, value: bytes | None, expected_version: int | None = None) -> int:
        with self._request() as nodes:
            node = nodes.get(path)
            found = node.version if node else ABSENT
            if expected_version not in (None, found):
                raise errors.VersionConflict(f"{path} is not at version {expected_version}")
            if node is None:
                self._zookeeper._add(path, value, 0)
            else:
                self._zookeeper._set(path, value)
            return found + 1

    def put_once(self, path: str, value: bytes, expected_version: int) -> int:
        if not self.exists(path):
            raise errors.VersionConflict(f"{path} does not exist")
        return self.put(path, value, expected_version)

    def commit(
        self,
        path: str,
        version: int,
        changes: Sequence[Creation | Deletion],
        value: bytes | None = None,
    ) -> None:
        with self._request() as nodes:
            node = nodes.get(path)
            if node is None or node.version != version:
                raise errors.VersionConflict(f"{path} is not at version {version}")
            there = set(nodes)
            for change in changes:
                if (change.path in there) is isinstance(change, Creation):
                    raise errors.NodeConflict(change.path, None)
                there ^= {change.path}
            if value is not None:
                self._zookeeper._set(path, value)
            for change in changes:
                if isinstance(change, Creation):
                    owner = self._session if change.is_ephemeral else 0
                    self._zookeeper._add(change.path, change.value, owner)
                else:
                    self._zookeeper._remove(change.path)

    def delete(self, path: str, expected_version: int | None = None) -> bool:
        with self._request() as nodes:
            if path not in nodes:
                return False
            if expected_version not in (None, nodes[path].version):
                raise errors.VersionConflict(f"{path} is not at version {expected_version}")
            self._zookeeper._remove(path)
            return True

    def delete_own(self, path: str, value: bytes | None) -> bool:
        with self._request() as nodes:
            node = nodes.get(path)
            if node is None or node.owner != self._session or node.value != value:
                return False
            self._zookeeper._remove(path)
            return True

    def delete_recursive(self, path: str) -> None:
        with self._request() as nodes:
            below = [name for name in nodes if name == path or name.startswith(f"{path}/")]
            for name in sorted(below, reverse=True):
                self._zookeeper._remove(name)
