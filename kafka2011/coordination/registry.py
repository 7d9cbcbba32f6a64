"""The operations on ZooKeeper that the rest of the project uses: the `Registry` interface.

Two implementations pass one contract test (tests/support/registry_contract.py):
`zookeeper.ZooKeeperRegistry` and the in-memory one of the unit tests. Every call is safe from any
thread and blocks for at most the operation timeout (10 s unless set), then raises
CoordinationUnavailable; after `close` it raises RegistryClosed, a subclass of it.

A Registry has one ZooKeeper session after another; `SessionEvent`s report their states:

    CONNECTED   the session answers (after start, or again after SUSPENDED)
    SUSPENDED   no answer at present. Assume nothing; the session and its ephemerals may live or not
    EXPIRED     the session is gone, and its ephemeral nodes with it (or soon)
    RECREATED   a new session answers: create your ephemerals again

Listeners and watch callbacks run one at a time, in order, on the registry's own thread (in memory:
on the thread that made the change). They may use the registry but must not wait for other
callbacks.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

ABSENT = -1  # an expected version: the node must not exist

OPERATION_TIMEOUT_MS = 10_000


class SessionEvent(Enum):
    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()
    RECREATED = auto()


class Stored(NamedTuple):
    """A node as read. `owned`: it is an ephemeral node of this registry's current session."""

    value: bytes | None
    version: int
    owned: bool


class NodeStat(NamedTuple):
    """A node's metadata; times in ms since the epoch, by the server's clock. `created`, `modified`:
    the numbers of the writes (zxid), which grow in the order in which ZooKeeper carried them out.
    """

    version: int
    created_ms: int
    modified_ms: int
    is_ephemeral: bool
    size_bytes: int
    child_count: int
    created: int
    modified: int


class Creation(NamedTuple):
    """In `commit`: create a node, an ephemeral one of this session unless it is to be persistent;
    its parents must exist."""

    path: str
    value: bytes
    is_ephemeral: bool = True


class Deletion(NamedTuple):
    """In `commit`: delete the node, whichever session owns it; it must have no children."""

    path: str


class Handle(Protocol):
    """Cancels a watch or a listener; no new call of it begins after `cancel` returns."""

    def cancel(self) -> None: ...


VersionCallback = Callable[[int], None]
ChildrenCallback = Callable[[list[str]], None]
SessionCallback = Callable[[SessionEvent], None]


class Registry(Protocol):
    """One process's view of ZooKeeper, under the chroot of `zk.connect`."""

    def start(self, timeout_ms: int = 6000) -> None:
        """Connect. Raises CoordinationUnavailable after `timeout_ms`; may be called again then."""

    def close(self) -> None:
        """End the session: its ephemeral nodes are gone when this returns (if ZooKeeper answers).

        Idempotent. Session listeners are not called."""

    def get(self, path: str) -> Stored | None:
        """The node, or None when there is none."""

    def get_many(self, paths: Sequence[str]) -> list[Stored | None]:
        """As `get` for each path, in order; the requests are sent together, many at a time. Other
        clients' changes may come between two of them."""

    def exists(self, path: str) -> bool: ...

    def stat(self, path: str) -> NodeStat | None:
        """The node's metadata, or None when there is none."""

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; [] when there is no such node."""

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """As `children` for each path, sent as by `get_many`."""

    def create(self, path: str, value: bytes | None = None, ephemeral: bool = False) -> None:
        """Create the node, and missing parents with null data. Raises NodeExists."""

    def create_ephemeral(self, path: str, value: bytes | None, session: int | None = None) -> None:
        """Create an ephemeral node that may exist already, from a call whose reply was lost.

        A node of this session with equal value is success. A leftover of an earlier session
        of this registry is replaced. Anything else raises NodeConflict. When the session changes
        meanwhile, or is not the given `session`, raises SessionLost.
        `Unlike 0.7:` the node's session decides, not only its text: the original also accepts a
        node of a dying session as its own and loses it seconds later.
        """

    def ensure(self, path: str) -> None:
        """Create a persistent node with null data unless it exists."""

    def put(self, path: str, value: bytes | None, expected_version: int | None = None) -> int:
        """Set the value, creating the (persistent) node when it is absent; returns the new version.

        With `expected_version` (or ABSENT) raises VersionConflict when the node has another.
        """

    def put_once(self, path: str, value: bytes, expected_version: int) -> int:
        """Set the value of a node that has the expected version, in one request that is never
        repeated; returns the new version.

        Raises VersionConflict: it was not carried out and never will be. CoordinationUnavailable:
        nothing is known; it may have been carried out, or may still be, even after this call.
        """

    def commit(
        self,
        path: str,
        version: int,
        changes: Sequence[Creation | Deletion],
        value: bytes | None = None,
    ) -> None:
        """Carry out all of `changes` if the node at `path` has that version, in one request that is
        never repeated; else none of them. The same request gives that node a `value`.

        Raises VersionConflict: another version, nothing was carried out. NodeConflict: a node is
        there, or is not, contrary to `changes`; nothing was carried out. CoordinationUnavailable
        as `put_once`.
        """

    def delete(self, path: str, expected_version: int | None = None) -> bool:
        """Delete the node; False when there was none. Raises VersionConflict or NotEmpty."""

    def delete_own(self, path: str, value: bytes | None) -> bool:
        """Delete the node only if it is this session's ephemeral with that value; else False."""

    def delete_recursive(self, path: str) -> None:
        """Delete the node and all below it; nothing when there is none."""

    def watch_children(self, path: str, callback: ChildrenCallback) -> Handle:
        """Call `callback` with the sorted children: soon, and after each change.

        Survives reconnects, new sessions, and the node's deletion and creation ([] while it does
        not exist). Changes in quick succession may be merged; the last list is always delivered.
        The same list may be delivered again, after two changes or a reconnect.
        """

    def watch_version(self, path: str, callback: VersionCallback) -> Handle:
        """Call `callback` with the node's version, ABSENT while there is none: soon, and after each
        change. As `watch_children` otherwise."""

    def catch_up(self) -> None:
        """Return once every watch has been called back for what changed before this call, at the
        cost of one request: what a watch keeps up to date is then as if it had been read now.

        Not from a callback. Raises CoordinationUnavailable when a watch could not be read.
        """

    def add_session_listener(self, callback: SessionCallback) -> Handle: ...

    def session_id(self) -> int | None:
        """The current session, or None while none is known to be alive."""

    def lease_remaining_ms(self, session: int | None = None) -> int:
        """How long from now the session's ephemerals are certain to exist; 0: they may be gone.

        With `session`, 0 also when that is not the current one.

        Counts from the sending of the last request that ZooKeeper answered, by a clock that runs
        while the process is stopped, so a process that slept too long sees 0 at once.
        """
