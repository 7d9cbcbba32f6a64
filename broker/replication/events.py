"""What happens to a replica, as values. Every request to the registry gets exactly one answer,
maybe after a long time; what belongs to an older request, link or journal write is ignored."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.broker.replication.frames import Frame, Offsets
from kafka2011.broker.replication.set_state import Directory, SetState

# --- time and the registry ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Timers are for progress only: none of them is needed for safety."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The state may have changed: a watch fired, or the leader of `epoch` has called."""

    epoch: int = 0


@dataclass(frozen=True, slots=True)
class SessionRenewed:
    """A new session with ZooKeeper: the ephemeral nodes of the last one are gone."""


@dataclass(frozen=True, slots=True)
class StateRead:
    """A reading, maybe out of date; `live` are the directories whose process has a session."""

    request: int
    version: int
    state: SetState
    live: frozenset[Directory]


@dataclass(frozen=True, slots=True)
class Written:
    """The conditional write was carried out; `version` is the state's now."""

    request: int
    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The state had another version: the write was not carried out and never will be."""

    request: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nothing is known: the write may have been carried out, or may still be."""

    request: int


# --- links ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """The requested link is open."""

    link: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The link is gone, or could not be made; `refused` when no process listens there."""

    link: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """A whole frame. Links that this replica opened have its own numbers, below 0; those that
    others opened have numbers above 0, and begin with a Hello."""

    link: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Canvassed:
    """A member's answer to a candidate: the highest epoch it has accepted, its flushed ends, and
    the watermarks that it knows."""

    round: int
    directory: Directory
    accepted: int
    ends: Offsets
    watermarks: Offsets


# --- disk and clients -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appended:
    """A client's message set was written to a log of the leader, up to `end`."""

    partition: str
    end: int


@dataclass(frozen=True, slots=True)
class Flushed:
    partition: str
    end: int


@dataclass(frozen=True, slots=True)
class LogMade:
    """The leader has made an empty log, at offset 0, for a new partition. Nothing is written to it
    before OpenLog."""

    partition: str


@dataclass(frozen=True, slots=True)
class LogFailed:
    """A write or flush failed: from now on nothing above the log's flushed end is known."""

    partition: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The disk had no room, or what came does not fit the log: of what was to be written, nothing
    from `end` on was."""

    partition: str
    end: int


@dataclass(frozen=True, slots=True)
class Retired:
    """A leader's log begins at `start` now, at most where `Replica.retirable` says. The files below
    may still be there, and again after a crash."""

    partition: str
    start: int


@dataclass(frozen=True, slots=True)
class Journalled:
    number: int


@dataclass(frozen=True, slots=True)
class LogsCut:
    """The cuts that were asked for are durable."""


@dataclass(frozen=True, slots=True)
class BarrierAsked:
    """A client waits until each log is confirmed up to its end in `ends`."""

    barrier: int
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HandOver:
    """The process is about to stop: it is to stop leading first, without loss."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything that had arrived from clients when their reading was paused is written."""


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """An operator says that this copy is damaged: it is to be copied again from the leader."""


Event = (
    Tick
    | LookAgain
    | SessionRenewed
    | StateRead
    | Written
    | Refused
    | Unanswered
    | Connected
    | Closed
    | Received
    | Canvassed
    | Appended
    | Flushed
    | LogMade
    | LogFailed
    | NoRoom
    | Retired
    | Journalled
    | LogsCut
    | BarrierAsked
    | HandOver
    | Drained
    | BeginAnew
)
