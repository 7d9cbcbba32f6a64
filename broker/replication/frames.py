"""The frames between leader and follower, as values; how they are encoded is decided elsewhere.

A link carries one epoch and one directory, and frames in order. The order of joining is Hello,
Welcome, Table, Plan, Ready, and from then on Data, Mark and Start one way, Ack the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kafka2011.broker.replication.copies import Row
from kafka2011.broker.replication.plan import Step
from kafka2011.broker.replication.set_state import Directory

Offsets = Mapping[str, int]  # partition -> offset


@dataclass(frozen=True, slots=True)
class Hello:
    """A follower asks to join. `accepted` is the highest epoch that it has ever accepted."""

    directory: Directory
    accepted: int


class Verdict(Enum):
    OK = auto()
    NOT_LEADER = auto()
    NO_MEMBER = auto()
    OLD_EPOCH = auto()  # the caller has accepted a later one
    NOT_READY = auto()  # leads, but its epoch is not durable yet


@dataclass(frozen=True, slots=True)
class Welcome:
    verdict: Verdict
    epoch: int


@dataclass(frozen=True, slots=True)
class Table:
    """What the follower has, all of it flushed."""

    rows: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the follower does to its logs before anything in them counts. A later plan on the same
    link is for new partitions; those that it does not name go on."""

    steps: Mapping[str, Step]


@dataclass(frozen=True, slots=True)
class Ready:
    """The plan is carried out, durably."""


@dataclass(frozen=True, slots=True)
class Data:
    """The leader's bytes [offset, end) of a partition: written there, maybe not yet flushed, so
    that both disks flush at the same time."""

    partition: str
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A numbered moment of the leader's, acknowledged once all that was sent before is flushed.
    `flush_age_ms` is how long the leader's oldest unfinished flush has been running."""

    number: int
    watermarks: Offsets
    flush_age_ms: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A follower's progress: `flushed` has the partitions whose flushed end has moved; `mark` is
    the last mark before which everything is flushed, 0 for none."""

    mark: int
    flushed: Offsets


@dataclass(frozen=True, slots=True)
class Start:
    """Where logs of the leader begin now: what is below was confirmed, and is not kept. No start is
    beyond what the follower has acknowledged on this link."""

    starts: Offsets


Frame = Hello | Welcome | Table | Plan | Ready | Data | Mark | Ack | Start
