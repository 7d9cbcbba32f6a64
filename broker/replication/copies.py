"""This replica's copy of one partition, as far as decisions need it: its ends and its lineage."""

from dataclasses import dataclass

from kafka2011.protocol.lineage import Lineage


@dataclass(frozen=True, slots=True)
class Row:
    """A log as one replica describes it to another: first offset, end, lineage."""

    start: int
    end: int
    lineage: Lineage


@dataclass(slots=True)
class Copy:
    """This replica's copy: `start` <= `watermark` <= `flushed` <= `written`.

    `watermark` is what this replica knows to be confirmed; more may be. `flushed` is on this
    replica's disk. Taking one for the other is the mistake that this room exists to prevent.
    """

    start: int
    watermark: int
    flushed: int
    written: int
    lineage: Lineage

    def row(self, end: int) -> Row:
        """This copy up to `end`: a follower's flushed end, a leader's written one."""
        return Row(self.start, end, self.lineage)
