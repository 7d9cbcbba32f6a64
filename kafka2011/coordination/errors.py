"""What can go wrong between a process and ZooKeeper, in our words; kazoo's errors never leave here.

Each class says by `retriable` whether the same call may succeed later without anybody's help.
"""


class CoordinationError(Exception):
    """Base of all. `retriable`: the same call may succeed later."""

    retriable = False


class CoordinationUnavailable(CoordinationError):
    """No answer from ZooKeeper in time, or the connection or the session was lost on the way.

    Raised for a write only when the effect is unknown and asking again could not tell. Try again
    later; ephemeral nodes may be gone (a SessionEvent says so).
    """

    retriable = True


class SessionLost(CoordinationUnavailable):
    """The session that the call was meant for is gone; another one may already answer.

    What the old session's ephemeral nodes stood for is lost. Wait for SessionEvent.RECREATED.
    """


class NodeExists(CoordinationError):
    """`create` found the node there already."""


class NodeConflict(CoordinationError):
    """`create_ephemeral` found somebody else's node. `found` is its value.

    For a broker id: another broker has it, or the session of its last run still lives. For a
    partition's owner: it is not released yet. The node goes away with its owner's session.
    """

    retriable = True

    def __init__(self, path: str, found: bytes | None) -> None:
        super().__init__(f"{path} is held by {found!r}")
        self.path = path
        self.found = found


class VersionConflict(CoordinationError):
    """`put` or `delete` with an expected version found another version, or no node."""


class NotEmpty(CoordinationError):
    """`delete` of a node that has children."""


class BadZnode(CoordinationError, ValueError):
    """A znode's value does not have the form that its path promises (garbage, or a newer format).

    Whoever reads passes over that node and counts it; it is never a reason to stop.
    """
