"""The registry on a real ZooKeeper, through kazoo: the only module that imports it.

kazoo calls listeners and watches on its own threads, which must never block; it forgets its watches
on every reconnect, and queues requests for as long as there is no connection. So here:

  - its callbacks only put an item into a queue; the dispatcher thread does the work;
  - children are read again after every reconnect, whether or not a watch fired;
  - a request is made only while connected, within the operation's deadline, and its error is one
    of coordination.errors. Reads, and writes whose effect can be read back, are repeated;
  - a heartbeat measures how long the session is certain to live (`lease_remaining_ms`).
"""

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from kafka2011.coordination.errors import (
    CoordinationError,
    CoordinationUnavailable,
    NodeConflict,
    NodeExists,
    NotEmpty,
    RegistryClosed,
    SessionLost,
    VersionConflict,
)
from kafka2011.coordination.lease import Lease, now_s
from kafka2011.coordination.paths import parents
from kafka2011.coordination.registry import (
    ABSENT,
    OPERATION_TIMEOUT_MS,
    ChildrenCallback,
    Creation,
    Deletion,
    Handle,
    NodeStat,
    SessionCallback,
    SessionEvent,
    Stored,
    VersionCallback,
)
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

log = get_logger(__name__)

Result = TypeVar("Result")

RECONNECT_DELAY_MAX_S = 1.0
REPEAT_PAUSE_S = 0.05
REFRESH_RETRY_S = 1.0  # a watch that failed while connected is read again after this
HEARTBEATS_PER_SESSION = 4

_UNAVAILABLE = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionDropped,
    kazoo_errors.SessionExpiredError,  # ConnectionClosedError is one of these
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.ThrottledOpError,
    kazoo_errors.CancelledError,
    KazooTimeoutError,
)


class _NoNode(CoordinationError):
    """Inside this module: the node does not exist."""


class _Watch:
    """One `watch_children` or `watch_version`; it is read on the dispatcher thread only, by
    `read(watch)`, whose result goes to `callback`."""

    def __init__(
        self,
        registry: "ZooKeeperRegistry",
        path: str,
        read: "Callable[[_Watch], Any]",
        callback: Callable[[Any], None],
    ) -> None:
        self._registry = registry
        self.path = path
        self.read = read
        self.callback = callback
        self.cancelled = False

    def fired(self, event: Any) -> None:
        """Called by kazoo. A reconnect fires every watch with type NONE; it is read again then."""
        if not self.cancelled and event.type != "NONE":
            self._registry._queue.put(self)

    def cancel(self) -> None:
        self.cancelled = True
        self._registry._watches.discard(self)


class _Listener:
    def __init__(self, registry: "ZooKeeperRegistry", callback: SessionCallback) -> None:
        self._registry = registry
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        with contextlib.suppress(ValueError):
            self._registry._listeners.remove(self)


class ZooKeeperRegistry:
    """See `registry.Registry`. `connect` is `host:port,host:port/chroot`, as `zk.connect`.

    `Unlike 0.7:` a chroot that does not exist is created, unless `makes_chroot` is False: then
    `start` raises CoordinationError. ConfigError (a ValueError) when `connect` has no host.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = 6000,
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        *,
        makes_chroot: bool = True,
    ) -> None:
        if not re.fullmatch(r"[^\s/,]+(,[^\s/,]+)*(/\S*)?", connect):
            raise ConfigError(f"zk.connect={connect!r}: must be host:port,host:port/chroot")
        self._connect_text = connect
        self._makes_chroot = makes_chroot
        self._session_timeout_ms = session_timeout_ms
        self._operation_timeout_s = operation_timeout_ms / 1000
        self._client: Any = None
        self._connected = threading.Event()
        self._closed = threading.Event()
        self._queue: queue.SimpleQueue[_Watch | str | None] = queue.SimpleQueue()
        self._watches: set[_Watch] = set()
        self._listeners: list[_Listener] = []
        self._unread: set[_Watch] = set()
        self._sessions: set[int] = set()
        self._had_session = False
        self._lost = False
        self._lease = Lease(session_timeout_ms / 1000)
        self._beat = threading.Event()
        self._dispatcher = Worker(self._dispatch, "zookeeper-dispatch", restarts=True)
        self._heart = Worker(self._heartbeat, "zookeeper-heartbeat", restarts=True)

    # --- life ------------------------------------------------------------------------------------

    def start(self, timeout_ms: int = 6000) -> None:
        client: Any = KazooClient(
            hosts=self._connect_text,
            timeout=self._session_timeout_ms / 1000,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": RECONNECT_DELAY_MAX_S},
            command_retry={"max_tries": 0},
        )
        self._note_negotiated_timeout(client)
        client.add_listener(self._on_kazoo_state)
        self._client = client
        client.start_async()
        if not self._connected.wait(timeout_ms / 1000):
            self._stop_client()
            raise CoordinationUnavailable(
                f"no answer from ZooKeeper at {self._connect_text} within {timeout_ms} ms"
            )
        if client.chroot and self._makes_chroot:
            self._repeated(lambda live: live.ensure_path_async("/"))
        elif client.chroot and not self.exists("/"):
            self._stop_client()
            raise CoordinationError(f"ZooKeeper has no {client.chroot}: {self._connect_text}")
        self._heart.start()
        self._dispatcher.start()

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._beat.set()
        self._queue.put(None)
        self._connected.set()  # calls that wait for a connection end now
        self._stop_client()
        for worker in (self._dispatcher, self._heart):
            worker.join()

    def _stop_client(self) -> None:
        if self._client is None:
            return
        try:
            self._client.stop()
            self._client.close()
        except (kazoo_errors.KazooException, OSError) as error:
            # The session ends on the server by itself: nothing for a console that merely ends.
            log.info("zookeeper_close", reason=repr(error))

    def _note_negotiated_timeout(self, client: Any) -> None:
        """Read the session timeout that the server grants, which kazoo does not publish.

        kazoo's read timeout is two thirds of it.
        """
        connection = client._connection
        plain_connect = connection._connect

        def connect(*arguments: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = plain_connect(*arguments)
            self._lease.seconds = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect

    # --- session ---------------------------------------------------------------------------------

    def _on_kazoo_state(self, state: str) -> None:
        """Called on kazoo's connection thread: records the state and queues it."""
        if self._closed.is_set():
            return
        if state == KazooState.CONNECTED:
            self._sessions.add(self._client._session_id)
            self._connected.set()
            self._beat.set()
        else:
            self._connected.clear()
        self._queue.put(state)

    def _dispatch(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=REFRESH_RETRY_S)
            except queue.Empty:
                self._refresh_all(self._unread)
                continue
            if item is None:
                return
            if isinstance(item, _Watch):
                self._refresh(item)
            else:
                self._handle_state(item)

    def _handle_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            first = not self._had_session
            self._had_session = True
            recreated = not first and self._lost
            self._lost = False
            self._notify(SessionEvent.RECREATED if recreated else SessionEvent.CONNECTED)
            self._refresh_all(self._watches)
        elif state == KazooState.SUSPENDED:
            self._notify(SessionEvent.SUSPENDED)
        elif self._had_session:
            self._lost = True
            self._notify(SessionEvent.EXPIRED)

    def _notify(self, event: SessionEvent) -> None:
        log.info("zookeeper_session", state=event.name.lower())
        for listener in list(self._listeners):
            if not listener.cancelled and not self._closed.is_set():
                try:
                    listener.callback(event)
                except Exception:  # a listener's bug must not stop the others
                    log.exception("session_listener_failed", session_event=event.name)

    def add_session_listener(self, callback: SessionCallback) -> Handle:
        listener = _Listener(self, callback)
        self._listeners.append(listener)
        return listener

    def session_id(self) -> int | None:
        if self._closed.is_set() or not self._connected.is_set() or self._client is None:
            return None
        session: int | None = self._client._session_id
        return session

    def lease_remaining_ms(self, session: int | None = None) -> int:
        return self._lease.remaining_ms(session)

    def _renew_lease(self, session: int | None, sent_s: float) -> None:
        if session is not None and session == self.session_id():
            self._lease.renew(session, sent_s)

    def _heartbeat(self) -> None:
        while not self._closed.is_set():
            session, sent_s = self.session_id(), now_s()
            if session is not None:

                def answered(result: Any, session: int = session, sent_s: float = sent_s) -> None:
                    if result.successful():
                        self._renew_lease(session, sent_s)

                self._client.exists_async("/").rawlink(answered)
            self._beat.wait(self._lease.seconds / HEARTBEATS_PER_SESSION)
            self._beat.clear()

    # --- one request -----------------------------------------------------------------------------

    def _once(self, request: Callable[[Any], Any], deadline_s: float) -> Any:
        """Make one request on the live client. Raises _NoNode or one of coordination.errors."""
        if self._closed.is_set():
            raise RegistryClosed("the registry is closed")
        if not self._connected.wait(max(0.0, deadline_s - time.monotonic())):
            raise CoordinationUnavailable("not connected to ZooKeeper")
        if self._closed.is_set():
            raise RegistryClosed("the registry is closed")
        session, sent_s = self.session_id(), now_s()
        try:
            answer = request(self._client).get(timeout=max(0.01, deadline_s - time.monotonic()))
        except kazoo_errors.NoNodeError as error:
            raise _NoNode(str(error)) from None
        except kazoo_errors.NodeExistsError as error:
            raise NodeExists(str(error)) from None
        except kazoo_errors.BadVersionError as error:
            raise VersionConflict(str(error)) from None
        except kazoo_errors.NotEmptyError as error:
            raise NotEmpty(str(error)) from None
        except _UNAVAILABLE as error:
            raise CoordinationUnavailable(f"ZooKeeper: {error!r}") from None
        except kazoo_errors.KazooException as error:
            raise CoordinationError(f"ZooKeeper refused: {error!r}") from error
        self._renew_lease(session, sent_s)
        return answer

    def _deadline(self) -> float:
        return time.monotonic() + self._operation_timeout_s

    def _repeated(self, request: Callable[[Any], Any]) -> Any:
        """Repeat an idempotent request until it is answered, or the operation timeout is over."""
        return self._until_answered(lambda deadline: self._once(request, deadline))

    def _until_answered(self, attempt: Callable[[float], Result]) -> Result:
        deadline = self._deadline()
        while True:
            try:
                return attempt(deadline)
            except (SessionLost, RegistryClosed):
                raise
            except CoordinationUnavailable:
                if time.monotonic() >= deadline or self._closed.wait(REPEAT_PAUSE_S):
                    raise

    # --- reading ---------------------------------------------------------------------------------

    def get(self, path: str) -> Stored | None:
        found = self._read(path)
        return None if found is None else found[0]

    def _read(self, path: str) -> tuple[Stored, int] | None:
        """The node and the session id of its owner (0: persistent)."""
        try:
            value, stat = self._repeated(lambda client: client.get_async(path))
        except _NoNode:
            return None
        owner = stat.ephemeralOwner
        owned = owner != 0 and owner == self.session_id()
        return Stored(value, stat.version, owned), owner

    def stat(self, path: str) -> NodeStat | None:
        found = self._repeated(lambda client: client.exists_async(path))
        if found is None:
            return None
        return NodeStat(
            found.version,
            found.ctime,
            found.mtime,
            found.ephemeralOwner != 0,
            found.dataLength,
            found.numChildren,
        )

    def exists(self, path: str) -> bool:
        return self._repeated(lambda client: client.exists_async(path)) is not None

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self._repeated(lambda client: client.get_children_async(path)))
        except _NoNode:
            return []

    # --- writing ---------------------------------------------------------------------------------

    def create(self, path: str, value: bytes | None = None, ephemeral: bool = False) -> None:
        self._create(path, value, ephemeral, self._deadline())

    def _create(self, path: str, value: bytes | None, ephemeral: bool, deadline: float) -> None:
        def request(client: Any) -> Any:
            return client.create_async(path, value, ephemeral=ephemeral)

        try:
            self._once(request, deadline)
        except _NoNode:
            for parent in parents(path):
                self.ensure(parent)
            try:
                self._once(request, deadline)
            except _NoNode:
                raise CoordinationUnavailable(f"the parent of {path} went away") from None

    def ensure(self, path: str) -> None:
        def attempt(deadline: float) -> None:
            try:
                self._create(path, None, False, deadline)
            except NodeExists:
                pass

        self._until_answered(attempt)

    def create_ephemeral(self, path: str, value: bytes | None, session: int | None = None) -> None:
        self._connected.wait(self._operation_timeout_s)
        wanted = self.session_id() if session is None else session

        def attempt(deadline: float) -> None:
            while True:
                if self.session_id() not in (None, wanted):
                    raise SessionLost(f"the session changed before {path} was created")
                try:
                    self._create(path, value, True, deadline)
                    return
                except NodeExists:
                    found = self._read(path)
                if found is None:
                    continue  # it went away between the two requests
                stored, owner = found
                if stored.owned and stored.value == value:
                    return
                if stored.owned or owner not in self._sessions:
                    raise NodeConflict(path, stored.value)
                with contextlib.suppress(VersionConflict):
                    self.delete(path, stored.version)

        self._until_answered(attempt)

    def put(self, path: str, value: bytes | None, expected_version: int | None = None) -> int:
        if expected_version is None:
            return self._until_answered(lambda deadline: self._put_any(path, value, deadline))
        asked = False

        def attempt(deadline: float) -> int:
            nonlocal asked
            repeated, asked = asked, True
            try:
                if expected_version == ABSENT:
                    self._create(path, value, False, deadline)
                    return 0
                stat = self._once(
                    lambda client: client.set_async(path, value, expected_version), deadline
                )
                return int(stat.version)
            except (NodeExists, VersionConflict, _NoNode):
                # A repeat may meet the effect of the attempt whose reply was lost.
                if repeated and self._is_written(path, value, expected_version + 1):
                    return expected_version + 1
                raise VersionConflict(f"{path} is not at version {expected_version}") from None

        return self._until_answered(attempt)

    def _put_any(self, path: str, value: bytes | None, deadline: float) -> int:
        while True:
            try:
                return int(
                    self._once(lambda client: client.set_async(path, value), deadline).version
                )
            except _NoNode:
                pass
            try:
                self._create(path, value, False, deadline)
                return 0
            except NodeExists:
                continue

    def put_once(self, path: str, value: bytes, expected_version: int) -> int:
        try:
            stat = self._once(
                lambda client: client.set_async(path, value, expected_version), self._deadline()
            )
        except _NoNode as error:
            raise VersionConflict(f"{path} is not at version {expected_version}") from error
        return int(stat.version)

    def commit(self, path: str, version: int, changes: Sequence[Creation | Deletion]) -> None:
        def request(client: Any) -> Any:
            transaction = client.transaction()
            transaction.check(path, version)
            for change in changes:
                if isinstance(change, Creation):
                    transaction.create(change.path, change.value, ephemeral=True)
                else:
                    transaction.delete(change.path)
            return transaction.commit_async()

        results = self._once(request, self._deadline())
        refused = (kazoo_errors.BadVersionError, kazoo_errors.NoNodeError)
        if isinstance(results[0], refused):
            raise VersionConflict(f"{path} is not at version {version}")
        for change, result in zip(changes, results[1:], strict=True):
            if isinstance(result, (kazoo_errors.NodeExistsError, kazoo_errors.NoNodeError)):
                raise NodeConflict(change.path, None)
        for result in results:
            if isinstance(result, Exception):
                raise CoordinationError(f"ZooKeeper refused: {result!r}")

    def _is_written(self, path: str, value: bytes | None, version: int) -> bool:
        stored = self.get(path)
        return stored is not None and stored.value == value and stored.version == version

    def delete(self, path: str, expected_version: int | None = None) -> bool:
        version = -1 if expected_version is None else expected_version
        asked = False

        def attempt(deadline: float) -> bool:
            nonlocal asked
            repeated, asked = asked, True
            try:
                self._once(lambda client: client.delete_async(path, version), deadline)
                return True
            except _NoNode:
                return repeated

        return self._until_answered(attempt)

    def delete_own(self, path: str, value: bytes | None) -> bool:
        stored = self.get(path)
        if stored is None or not stored.owned or stored.value != value:
            return False
        try:
            return self.delete(path, stored.version)
        except VersionConflict:
            return False

    def delete_recursive(self, path: str) -> None:
        while True:
            for name in self.children(path):
                self.delete_recursive(f"{path.rstrip('/')}/{name}")
            try:
                self.delete(path)
                return
            except NotEmpty:
                continue  # a child was created meanwhile

    # --- watches ---------------------------------------------------------------------------------

    def watch_children(self, path: str, callback: ChildrenCallback) -> Handle:
        return self._watch(_Watch(self, path, self._read_children, callback))

    def watch_version(self, path: str, callback: VersionCallback) -> Handle:
        return self._watch(_Watch(self, path, self._read_version, callback))

    def _watch(self, watch: _Watch) -> Handle:
        self._watches.add(watch)
        self._queue.put(watch)
        return watch

    def _refresh_all(self, watches: set[_Watch]) -> None:
        self._unread |= watches  # until each of them was read
        for watch in list(watches):
            self._refresh(watch)

    def _refresh(self, watch: _Watch) -> None:
        if watch.cancelled or self._closed.is_set():
            self._unread.discard(watch)
            return
        self._unread.add(watch)  # read again after a reconnect, or REFRESH_RETRY_S
        try:
            found = watch.read(watch)
        except CoordinationError as error:
            log.info("watch_not_read", path=watch.path, reason=str(error))
            return
        self._unread.discard(watch)
        try:
            watch.callback(found)
        except Exception:  # a callback's bug must not stop the others
            log.exception("watch_callback_failed", path=watch.path)

    def _read_version(self, watch: _Watch) -> int:
        stat = self._once(
            lambda client: client.exists_async(watch.path, watch=watch.fired),
            time.monotonic() + REFRESH_RETRY_S,
        )
        return ABSENT if stat is None else int(stat.version)

    def _read_children(self, watch: _Watch) -> list[str]:
        deadline = time.monotonic() + REFRESH_RETRY_S  # the dispatcher has other work
        while True:
            try:
                return sorted(
                    self._once(
                        lambda client: client.get_children_async(watch.path, watch=watch.fired),
                        deadline,
                    )
                )
            except _NoNode:
                stat = self._once(
                    lambda client: client.exists_async(watch.path, watch=watch.fired), deadline
                )
                if stat is None:
                    return []
