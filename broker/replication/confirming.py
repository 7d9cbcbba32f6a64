"""What a leader has confirmed.

A watermark moves to an offset when this replica and every directory of the in-sync set have
flushed up to it, and the set is large enough. The set that counts is not the one last read, but
the union of the known one and every requested one that may have been written: ZooKeeper holds one
of them.
"""

from enum import IntEnum

from kafka2011.broker.replication.context import Context, Role
from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.effects import AnswerBarrier, Confirm
from kafka2011.broker.replication.events import BarrierAsked
from kafka2011.broker.replication.member import Member
from kafka2011.broker.replication.set_state import Directory, SetState


class Phase(IntEnum):
    FLUSHING = 0
    JOURNALLING = 1
    CLEARING = 2  # the old address
    GAP = 3
    SERVING = 4


class Confirming(Role):
    """The part of a leadership that confirms; the other is `leader.Leader`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.state is not None
        self.epoch = context.state.epoch
        self.phase = Phase.FLUSHING
        self.members: dict[int, Member] = {}  # by link
        # What ZooKeeper holds is `known` or, where a write was not answered, one of `asked`.
        self.known: SetState = context.state
        self.asked: list[SetState] = []
        self._has_moved = False  # a watermark, since the last mark
        self._barriers: list[BarrierAsked] = []

    def _advance_all(self) -> None:
        for name in self.context.copies:
            self._advance(name)

    def _advance(self, partition: str) -> None:
        """Move a partition's watermark as far as it is confirmed."""
        copy = self.context.copies[partition]
        end = self._confirmed_end(partition, copy)
        if end <= copy.watermark:
            return
        copy.watermark = end
        self._has_moved = True
        self.context.effects.append(Confirm(self.epoch, partition, end))
        self._answer_barriers()

    def _confirmed_end(self, partition: str, copy: Copy) -> int:
        if self.phase < Phase.CLEARING or not self._can_confirm():
            return copy.watermark
        end = self._own_end(copy)
        for directory in self._needed() - {self.context.directory}:
            end = min(end, self._flushed_at(directory, partition))
        return end

    def _can_confirm(self) -> bool:
        return self.known.can_confirm

    def _own_end(self, copy: Copy) -> int:
        return copy.flushed

    def _needed(self) -> frozenset[Directory]:
        return self.known.isr.union(*(state.isr for state in self.asked))

    def _flushed_at(self, directory: Directory, partition: str) -> int:
        for member in self.members.values():
            if member.directory == directory and member.is_ready:
                return member.flushed_at(partition)
        return -1

    def copies_of(self, partition: str, end: int) -> int:
        """How many replicas, in sync or not, have flushed up to `end`. This says nothing about what
        survives a takeover: that takes the whole in-sync set."""
        own = self._own_end(self.context.copies[partition])
        ends = [m.flushed_at(partition) for m in self.members.values() if m.is_ready]
        return sum(flushed >= end for flushed in (own, *ends))

    def _answer_barriers(self) -> None:
        copies = self.context.copies
        waiting = []
        for asked in self._barriers:
            if all(copies[name].watermark >= end for name, end in asked.ends.items()):
                self.context.effects.append(AnswerBarrier(asked.barrier))
            else:
                waiting.append(asked)
        self._barriers = waiting

    def barrier_asked(self, asked: BarrierAsked) -> None:
        self._barriers.append(asked)
        self._answer_barriers()
