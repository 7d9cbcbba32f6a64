"""What a replica wants done, as values, to be carried out in order.

Logs flush by themselves, as on any broker: each flush is reported to the machine as an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.broker.replication.frames import Frame
from kafka2011.broker.replication.plan import Step
from kafka2011.broker.replication.set_state import Directory, SetState
from kafka2011.protocol.lineage import Lineage

# --- the registry: one request at a time; answered by StateRead, Written, Refused or Unanswered ---


@dataclass(frozen=True, slots=True)
class ReadState:
    request: int


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write the state if it still has `version`. Never repeated without a new request."""

    request: int
    version: int
    state: SetState


@dataclass(frozen=True, slots=True)
class Register:
    """Show the clients this broker's address, or with `present` False delete whatever address is
    there: in one transaction with the check that the state still has `version`, so that a process
    that leads no more can neither show itself nor hide its successor."""

    request: int
    version: int
    present: bool


# --- other replicas -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a link. Answer: Connected or Closed."""

    link: int
    directory: Directory


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame. A Data frame's bytes are read from the log when its turn comes."""

    link: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Close:
    """Close a link; nothing more that comes on it is handed in. No answer."""

    link: int


@dataclass(frozen=True, slots=True)
class Canvass:
    """Ask these members; each answers with its `Replica.canvassed`."""

    round: int
    directories: frozenset[Directory]


@dataclass(frozen=True, slots=True)
class Tell:
    """Have these members look at the state at once; one may lead an older epoch."""

    directories: frozenset[Directory]


# --- disk -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Write what a Data frame brought; it is in order. `Flushed` follows as for any write."""

    partition: str
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Journal:
    """Replace the journal, durably. Answer: Journalled. `whole` False: this directory misses
    what was flushed here once, and must not lead, even after a restart."""

    number: int
    accepted: int
    lineages: Mapping[str, Lineage]
    whole: bool


@dataclass(frozen=True, slots=True)
class CutLogs:
    """Copy what goes to quarantine, durably; then cut, durably. Answer: LogsCut."""

    steps: Mapping[str, Step]


@dataclass(frozen=True, slots=True)
class Retire:
    """Remove the whole segments below `start`, as the leader has. All below is confirmed."""

    partition: str
    start: int


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Let a new partition be written to: its lineage is durable."""

    partition: str


# --- clients --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenClients:
    """Open the client port. Reads are answered by `Replica.fetch` and `Replica.latest`."""


@dataclass(frozen=True, slots=True)
class CloseClients:
    """Close the client port and every client's connection; barriers that wait fail with them."""


@dataclass(frozen=True, slots=True)
class PauseProducers:
    """Read no more from clients than what has arrived; Drained follows once it is written.
    With `pause` False, read on."""

    pause: bool


@dataclass(frozen=True, slots=True)
class Confirm:
    """The watermark of a partition is now `watermark`: readers may be shown what is below."""

    epoch: int
    partition: str
    watermark: int


@dataclass(frozen=True, slots=True)
class Known:
    """A follower knows that its copy is confirmed up to `watermark`: kept for its next start, and
    for comparing copies."""

    partition: str
    watermark: int


@dataclass(frozen=True, slots=True)
class AnswerBarrier:
    barrier: int


@dataclass(frozen=True, slots=True)
class LosesConfirmed:
    """Tell the operator: this copy was confirmed up to `watermark`, and its leader has it up to
    `end` only, so that the rest is cut. Only an election by hand may cause this."""

    partition: str
    watermark: int
    end: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """Tell the operator: this copy does not lead. After a failed write it does nothing more until a
    restart; otherwise it is copied anew from a leader."""

    reason: str


@dataclass(frozen=True, slots=True)
class StateOlder:
    """Tell the operator: ZooKeeper has had a state for a while that is older than what this replica
    knows. It takes no notice of that, and so neither leads nor follows by it: a member that it
    names may lack what was confirmed since. Epochs with versions, which begin at 0 in each run."""

    found: tuple[int, int]
    known: tuple[int, int]


Effect = (
    ReadState
    | WriteState
    | Register
    | Connect
    | Send
    | Close
    | Canvass
    | Tell
    | Write
    | Journal
    | CutLogs
    | Retire
    | OpenLog
    | OpenClients
    | CloseClients
    | PauseProducers
    | Confirm
    | Known
    | AnswerBarrier
    | LosesConfirmed
    | Damaged
    | StateOlder
)
