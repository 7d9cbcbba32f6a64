"""The registry on a real ZooKeeper, through kazoo, which this room alone imports.

`zookeeper_session` makes single requests, `zookeeper_watches` calls back; here they become the
operations of `registry.Registry`. Reads, and writes whose effect can be read back, are repeated
until they are answered or the operation's time is over.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors

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
    Stored,
    VersionCallback,
)
from kafka2011.coordination.zookeeper_session import Answers, NoNode, ZooKeeperSession
from kafka2011.coordination.zookeeper_watches import Watches
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

Result = TypeVar("Result")

log = get_logger(__name__)

REPEAT_PAUSE_S = 0.05
UNANSWERED_MAX = 100  # requests sent before an answer is waited for
STOP_ANSWER_S = 3.0  # longer than an ensemble needs to elect another leader


class ZooKeeperRegistry:
    """See `registry.Registry`. `connect` is `host:port,host:port/chroot`, as `zk.connect`.

    `Unlike 0.7:` a chroot that does not exist is created, unless `makes_chroot` is False: then
    `start` raises CoordinationError. Raises ConfigError (a ValueError) for a malformed `connect`.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = 6000,
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        *,
        makes_chroot: bool = True,
    ) -> None:
        hosts, slash, chroot = connect.partition("/")
        if not all(map(_is_host, hosts.split(","))) or re.search(r"\s", slash + chroot):
            raise ConfigError(f"zk.connect={connect!r}: must be host:port,host:port/chroot")
        self._makes_chroot = makes_chroot
        self._operation_timeout_s = operation_timeout_ms / 1000
        self._watches = Watches()
        self._session = ZooKeeperSession(connect, session_timeout_ms, self._watches.put)
        self._watches.attach(self._session)

    # --- life and session ------------------------------------------------------------------------

    def start(self, timeout_ms: int = 6000) -> None:
        session = self._session
        session.start(timeout_ms)
        chroot = session.client.chroot
        if chroot and self._makes_chroot:
            self._repeated(lambda live: live.ensure_path_async("/"))
        elif chroot and not self.exists("/"):
            session.disconnect()
            raise CoordinationError(f"ZooKeeper has no chroot {chroot}: {session.connect_text}")
        session.start_heartbeat()
        self._watches.start()

    def close(self) -> None:
        if not self._session.closed.is_set():
            self._session.close()
            self._watches.close()

    def answers_within(self, seconds: float) -> bool:
        """Whether ZooKeeper answers within `seconds`; if not, it may be away, or hang."""
        try:
            self._once(lambda client: client.exists_async("/"), time.monotonic() + seconds)
        except CoordinationError:
            return False
        return True

    def close_if_silent(self, seconds: float = STOP_ANSWER_S) -> None:
        """Close if ZooKeeper does not answer within `seconds`: for a process that is about to stop,
        whose every step would wait for an answer. The steps then raise RegistryClosed."""
        if not self._session.closed.is_set() and not self.answers_within(seconds):
            log.warning("left_without_zookeeper", zookeeper=self._session.connect_text)
            self.close()

    def leave_on(self, stop: threading.Event) -> None:
        """Call `close_if_silent` once `stop` is set, on a thread of its own: others may then be
        waiting for an answer."""

        def leave() -> None:
            stop.wait()
            self.close_if_silent()

        Worker(leave, "leave", restarts=False).start()

    def abandon(self) -> None:
        """As `close`, without waiting for ZooKeeper: for a process that ends now. The session ends
        on the server by itself."""
        if not self._session.closed.is_set():
            self._session.end_calls()
            self._watches.close()

    def add_session_listener(self, callback: SessionCallback) -> Handle:
        return self._watches.add_listener(callback)

    def session_id(self) -> int | None:
        return self._session.id

    def lease_remaining_ms(self, session: int | None = None) -> int:
        return self._session.lease.remaining_ms(session)

    # --- one request, repeated -------------------------------------------------------------------

    def _once(
        self, request: Callable[[Any], Any], deadline_s: float, only_in: int | None = None
    ) -> Any:
        return self._session.once(request, deadline_s, only_in)

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
                if time.monotonic() >= deadline or self._session.closed.wait(REPEAT_PAUSE_S):
                    raise

    # --- reading ---------------------------------------------------------------------------------

    def get(self, path: str) -> Stored | None:
        found = self._read(path)
        return None if found is None else found[0]

    def get_many(self, paths: Sequence[str]) -> list[Stored | None]:
        found = self._many(paths, lambda client, path: client.get_async(path))
        return [None if one is None else self._stored(*one)[0] for one in found]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        found = self._many(paths, lambda client, path: client.get_children_async(path))
        return [sorted(names or ()) for names in found]

    def _many(self, paths: Sequence[str], request: Callable[[Any, str], Any]) -> list[Any]:
        """The answers in order; None where there is no node."""
        found: list[Any] = []
        for first in range(0, len(paths), UNANSWERED_MAX):
            some = paths[first : first + UNANSWERED_MAX]

            def ask(client: Any, some: Sequence[str] = some) -> Answers:
                return Answers([request(client, path) for path in some])

            found += self._repeated(ask)
        return found

    def _read(self, path: str) -> tuple[Stored, int] | None:
        """The node and the session id of its owner (0: persistent)."""
        try:
            return self._stored(*self._repeated(lambda client: client.get_async(path)))
        except NoNode:
            return None

    def _stored(self, value: bytes, stat: Any) -> tuple[Stored, int]:
        owner = stat.ephemeralOwner
        owned = owner != 0 and owner == self._session.last_id
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
            found.czxid,
            found.mzxid,
        )

    def exists(self, path: str) -> bool:
        return self._repeated(lambda client: client.exists_async(path)) is not None

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self._repeated(lambda client: client.get_children_async(path)))
        except NoNode:
            return []

    # --- writing ---------------------------------------------------------------------------------

    def create(self, path: str, value: bytes | None = None, ephemeral: bool = False) -> None:
        self._create(path, value, ephemeral, self._deadline())

    def _create(
        self,
        path: str,
        value: bytes | None,
        ephemeral: bool,
        deadline: float,
        only_in: int | None = None,
    ) -> None:
        def request(client: Any) -> Any:
            return client.create_async(path, value, ephemeral=ephemeral)

        try:
            self._once(request, deadline, only_in)
        except NoNode:
            for parent in parents(path):
                self.ensure(parent)
            try:
                self._once(request, deadline, only_in)
            except NoNode:
                raise CoordinationUnavailable(f"the parent of {path} went away") from None

    def ensure(self, path: str) -> None:
        def attempt(deadline: float) -> None:
            try:
                self._create(path, None, False, deadline)
            except NodeExists:
                pass

        self._until_answered(attempt)

    def create_ephemeral(self, path: str, value: bytes | None, session: int | None = None) -> None:
        self._session.wait_connected(self._operation_timeout_s)
        wanted = self.session_id() if session is None else session

        def attempt(deadline: float) -> None:
            while True:
                if self.session_id() not in (None, wanted):
                    raise SessionLost(f"the session changed before {path} was created")
                try:
                    self._create(path, value, True, deadline, wanted)
                    return
                except NodeExists:
                    found = self._read(path)
                if found is None:
                    continue  # it went away between the two requests
                stored, owner = found
                if stored.owned and stored.value == value:
                    return
                if stored.owned or owner not in self._session.ids:
                    raise NodeConflict(path, stored.value)
                # Once: by the time of a repeat, another's node may be there, of the same version.
                with contextlib.suppress(NoNode, VersionConflict):
                    self._delete(path, stored.version, deadline, wanted)

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
            except (NodeExists, VersionConflict, NoNode):
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
            except NoNode:
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
        except NoNode as error:
            raise VersionConflict(f"{path} is not at version {expected_version}") from error
        return int(stat.version)

    def commit(
        self,
        path: str,
        version: int,
        changes: Sequence[Creation | Deletion],
        value: bytes | None = None,
    ) -> None:
        def request(client: Any) -> Any:
            transaction = client.transaction()
            if value is None:
                transaction.check(path, version)
            else:
                transaction.set_data(path, value, version)
            for change in changes:
                if isinstance(change, Creation):
                    transaction.create(change.path, change.value, ephemeral=change.is_ephemeral)
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
                self._delete(path, version, deadline)
                return True
            except NoNode:
                return repeated

        return self._until_answered(attempt)

    def _delete(self, path: str, version: int, deadline: float, only_in: int | None = None) -> None:
        self._once(lambda client: client.delete_async(path, version), deadline, only_in)

    def delete_own(self, path: str, value: bytes | None) -> bool:
        asked = False

        def attempt(deadline: float) -> bool:
            nonlocal asked
            try:
                # Before each attempt: after a lost reply another's node may be there, of the same
                # version.
                found = self._once(lambda client: client.get_async(path), deadline)
                stored, owner = self._stored(*found)
                if not stored.owned or stored.value != value:
                    return asked
                asked = True
                self._delete(path, stored.version, deadline, owner)
            except NoNode:
                return asked
            except VersionConflict:
                return False
            return True

        return self._until_answered(attempt)

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
        return self._watches.add_children(path, callback)

    def watch_version(self, path: str, callback: VersionCallback) -> Handle:
        return self._watches.add_version(path, callback)

    def catch_up(self) -> None:
        deadline = self._deadline()
        # ZooKeeper sends the events of a change before the answer to a later request.
        self._until_answered(lambda _: self._once(lambda live: live.exists_async("/"), deadline))
        self._watches.catch_up(deadline)


def _is_host(text: str) -> bool:
    """Whether it is a host or host:port; an IPv6 address is in brackets."""
    found = re.fullmatch(r"(\[[^\s\]]+\]|[^\s:\[\]\0]+)(?::(\d{1,5}))?", text, re.ASCII)
    if found is None or not 0 < int(found[2] or 1) < 65536:
        return False
    try:
        found[1].encode("idna")  # as the socket does, in a thread whose errors go nowhere
    except UnicodeError:
        return found[1].startswith("[")
    return True
