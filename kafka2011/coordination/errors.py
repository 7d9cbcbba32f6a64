"""The errors of this package; kazoo's errors never leave it.

`retriable`: the same call may succeed later without intervention.
"""


class CoordinationError(Exception):
    """Base of all. `retriable`: the same call may succeed later."""

    retriable = False


class CoordinationUnavailable(CoordinationError):
    """No answer from ZooKeeper in time, or the connection or the session was lost on the way.

    Raised for a write only when the effect is unknown and reading again did not show it. Try again
    later; ephemeral nodes may be gone (a SessionEvent says so).
    """

    retriable = True


class SessionLost(CoordinationUnavailable):
    """The session that the call was meant for is gone; a new one may already be connected.

    Registrations and claims that the old session's ephemeral nodes stood for are lost. Wait for
    SessionEvent.RECREATED.
    """


class RegistryClosed(CoordinationUnavailable):
    """This registry was closed, and its session with it: no later call can succeed."""

    retriable = False


class NodeExists(CoordinationError):
    """`create`: the node exists."""


class NodeConflict(CoordinationError):
    """`create_ephemeral`: another session has the node. `found` is its value.

    For a broker id: another broker has it, or the session of its last run still lives. For a
    partition's owner: it is not released yet. The node goes away with its owner's session.
    """

    retriable = True

    def __init__(self, path: str, found: bytes | None) -> None:
        super().__init__(f"{path} is held by {found!r}")
        self.path = path
        self.found = found


class VersionConflict(CoordinationError):
    """`put` or `delete` with an expected version: the node has another, or does not exist."""


class NotEmpty(CoordinationError):
    """`delete`: the node has children."""


class BadZnode(CoordinationError, ValueError):
    """A znode's value does not have the form that its path promises (garbage, or a newer format).

    A reader logs and ignores such a node; it is never a reason to stop.
    """
