"""Watches and session listeners of a ZooKeeper session: one thread reads, and calls back.

kazoo calls on its own threads, which must never block, and forgets its watches on every reconnect.
So its callbacks only put an item into a queue; the dispatcher thread does the work, and reads what
is watched again after every reconnect, whether or not a watch fired.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import Callback, KazooState

from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable
from kafka2011.coordination.registry import (
    ABSENT,
    ChildrenCallback,
    SessionCallback,
    SessionEvent,
    VersionCallback,
)
from kafka2011.coordination.zookeeper_session import NoNode, ZooKeeperSession
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

log = get_logger(__name__)

REFRESH_RETRY_S = 1.0  # a watch that could not be read is read again after this


class Watch:
    """One `watch_children` or `watch_version`; it is read on the dispatcher thread only, by
    `read(watch)`, whose result goes to `callback`."""

    def __init__(
        self,
        watches: "Watches",
        path: str,
        read: "Callable[[Watch], Any]",
        callback: Callable[[Any], None],
    ) -> None:
        self._watches = watches
        self.path = path
        self.read = read
        self.callback = callback
        self.cancelled = False

    def fired(self, event: Any) -> None:
        """Called by kazoo. A reconnect fires every watch with type NONE; it is read again then."""
        if not self.cancelled and event.type != "NONE":
            self._watches.put(self)

    def cancel(self) -> None:
        self.cancelled = True
        self._watches.forget(self)


class Listener:
    """One `add_session_listener`."""

    def __init__(self, listeners: "list[Listener]", callback: SessionCallback) -> None:
        self._listeners = listeners
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        with contextlib.suppress(ValueError):
            self._listeners.remove(self)


class _Mark:
    """A place in the queue: `passed` is set once everything before it was handled; `has_unread` if
    a watch could not be read by then."""

    def __init__(self) -> None:
        self.passed = threading.Event()
        self.has_unread = False


class Watches:
    """Those of one session, which `attach` sets before `start`; any thread may add and cancel."""

    def __init__(self) -> None:
        self._session: ZooKeeperSession
        self._queue: queue.SimpleQueue[Watch | _Mark | str | None] = queue.SimpleQueue()
        self._watches: set[Watch] = set()
        self._listeners: list[Listener] = []
        self._unread: set[Watch] = set()
        self._read_again_s = 0.0  # when to read those next, by the monotonic clock
        self._had_session = False
        self._lost = False
        self._dispatcher = Worker(self._dispatch, "zookeeper-dispatch", restarts=True)

    def attach(self, session: ZooKeeperSession) -> None:
        self._session = session

    def start(self) -> None:
        self._dispatcher.start()

    def close(self) -> None:
        """End the thread; the session was closed before, so it waits for nothing."""
        self._queue.put(None)
        self._dispatcher.join()

    def put(self, item: Watch | str) -> None:
        """Queue a watch to read, or kazoo's new state; called on kazoo's threads, too."""
        self._queue.put(item)

    def add_listener(self, callback: SessionCallback) -> Listener:
        listener = Listener(self._listeners, callback)
        self._listeners.append(listener)
        return listener

    def add_children(self, path: str, callback: ChildrenCallback) -> Watch:
        return self._add(Watch(self, path, self._read_children, callback))

    def add_version(self, path: str, callback: VersionCallback) -> Watch:
        return self._add(Watch(self, path, self._read_version, callback))

    def _add(self, watch: Watch) -> Watch:
        self._watches.add(watch)
        self._queue.put(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        self._watches.discard(watch)

    def catch_up(self, deadline_s: float) -> None:
        """Return when all events that kazoo has received are handled. Raises
        CoordinationUnavailable: not by `deadline_s`, or a watch could not be read."""
        mark = _Mark()
        # Through kazoo's queue of events into ours, behind all that are in either.
        self._session.client.handler.dispatch_callback(Callback("watch", self._queue.put, (mark,)))
        if not mark.passed.wait(max(0.0, deadline_s - time.monotonic())):
            raise CoordinationUnavailable("the watches are not up to date yet")
        if mark.has_unread:
            raise CoordinationUnavailable("a watch could not be read")

    # --- the dispatcher's thread -----------------------------------------------------------------

    def _dispatch(self) -> None:
        while True:
            # By the clock: with frequent calls of `catch_up` the queue is never empty for long.
            if self._unread and time.monotonic() >= self._read_again_s:
                self._refresh_all(self._unread)
            wait_s = max(0.0, self._read_again_s - time.monotonic()) if self._unread else None
            try:
                item = self._queue.get(timeout=wait_s)
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, Watch):
                self._refresh(item)
            elif isinstance(item, _Mark):
                item.has_unread = bool(self._unread)
                item.passed.set()
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
            if not listener.cancelled and not self._session.closed.is_set():
                try:
                    listener.callback(event)
                except Exception:  # a listener's bug must not stop the others
                    log.exception("session_listener_failed", session_event=event.name)

    def _refresh_all(self, watches: set[Watch]) -> None:
        self._unread |= watches  # until each of them was read
        for watch in list(watches):
            self._refresh(watch)

    def _refresh(self, watch: Watch) -> None:
        if watch.cancelled or self._session.closed.is_set():
            self._unread.discard(watch)
            return
        self._unread.add(watch)  # read again after a reconnect, or REFRESH_RETRY_S
        try:
            found = watch.read(watch)
        except CoordinationError as error:
            log.info("watch_not_read", path=watch.path, reason=str(error))
            self._read_again_s = time.monotonic() + REFRESH_RETRY_S
            return
        self._unread.discard(watch)
        try:
            watch.callback(found)
        except Exception:  # a callback's bug must not stop the others
            log.exception("watch_callback_failed", path=watch.path)

    def _read_version(self, watch: Watch) -> int:
        stat = self._session.once(
            lambda client: client.exists_async(watch.path, watch=watch.fired),
            time.monotonic() + REFRESH_RETRY_S,
        )
        return ABSENT if stat is None else int(stat.version)

    def _read_children(self, watch: Watch) -> list[str]:
        deadline = time.monotonic() + REFRESH_RETRY_S  # the dispatcher has other work
        once = self._session.once
        while True:
            try:
                return sorted(
                    once(
                        lambda client: client.get_children_async(watch.path, watch=watch.fired),
                        deadline,
                    )
                )
            except NoNode:
                stat = once(
                    lambda client: client.exists_async(watch.path, watch=watch.fired), deadline
                )
                if stat is None:
                    return []
