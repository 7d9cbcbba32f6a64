"""Places that the audit reads from, how far each is read, and what was passed over unread."""

from dataclasses import dataclass
from typing import NamedTuple

UNREAD_MAX = 1000


class PartitionKey(NamedTuple):
    """One partition of one tier's brokers."""

    tier: str
    topic: str
    broker_id: int
    partition: int


@dataclass(slots=True)
class Position:
    """How far a partition is read. `read_to_ms`: all that was visible then has been counted."""

    next_offset: int
    read_to_ms: int = 0
    lag_bytes: int = 0
    trouble: str = ""


class UnreadRange(NamedTuple):
    """Bytes (or table versions) `first` up to `last` that were passed over unread."""

    time_ms: int
    tier: str
    topic: str
    place: str
    first: int
    last: int
    reason: str
