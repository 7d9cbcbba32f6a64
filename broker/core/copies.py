"""Waits until a number of replicas have flushed what a client sent: `request.required.acks`.

Only a leader knows how many have it, and which epoch wrote what; a broker that is no replica knows
its own disk alone.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from kafka2011.broker.log.log import Log
from kafka2011.protocol.lineage import Lineage


class Copies(Protocol):
    """How many replicas hold each log, and which epochs wrote it, as the leader knows."""

    @property
    def members_max(self) -> int:
        """The most replicas that can hold a log: the set's members."""

    def copies_of(self, partition: str, end: int) -> int:
        """How many replicas have flushed the partition up to `end`, this one included."""

    def lineage_of(self, partition: str) -> Lineage:
        """Which epoch wrote which bytes; the leader's is last."""


class CopyWait:
    """One client's wait; `cancel` when the client is gone."""

    def __init__(
        self, ends: Mapping[Log, int], count: int, done: Callable[[bool], None], waits: "CopyWaits"
    ) -> None:
        self.ends = dict(ends)
        self.count = count
        self.done = done
        self._waits = waits

    def cancel(self) -> None:
        self._waits.forget(self)


class CopyWaits:
    """All waits. `leader` is set while this broker is a replica. Loop's thread only."""

    def __init__(self) -> None:
        self.leader: Copies | None = None
        self._waiting: dict[CopyWait, None] = {}

    @property
    def members_max(self) -> int:
        return self.leader.members_max if self.leader is not None else 1

    def lineage(self, log: Log) -> Lineage:
        """Which epochs of the set wrote the log; none for a broker that is no replica."""
        return self.leader.lineage_of(log.name) if self.leader is not None else ()

    def lacking(self, ends: Mapping[Log, int], count: int) -> dict[Log, int]:
        """The logs that fewer than `count` replicas hold up to the given ends."""
        return {log: end for log, end in ends.items() if self._copies(log, end) < count}

    def _copies(self, log: Log, end: int) -> int:
        if self.leader is None:
            return int(log.flushed_end >= end)
        return self.leader.copies_of(log.name, end)

    def wait(self, ends: Mapping[Log, int], count: int, done: Callable[[bool], None]) -> CopyWait:
        """Call `done(True)` once `count` replicas have it; a leadership's end hangs up."""
        wait = CopyWait(ends, count, done, self)
        self._waiting[wait] = None
        return wait

    def forget(self, wait: CopyWait) -> None:
        self._waiting.pop(wait, None)

    def look(self) -> None:
        """End waits that are over; call it when a replica may have flushed more."""
        for wait in [one for one in self._waiting if not self.lacking(one.ends, one.count)]:
            if self._waiting.pop(wait, wait) is None:
                wait.done(True)
