"""What a leader knows of a follower on one link."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka2011.broker.replication.plan import Action, Step
from kafka2011.broker.replication.set_state import Directory

MARKS_MAX = 1000  # about so many are remembered


@dataclass(slots=True)
class Member:
    """A follower's progress. Nothing counts before Ready, and nothing of a partition before its
    plan is carried out. What counts belongs to this link and this leadership: an
    acknowledgement of an older one speaks of other bytes, at the same offsets."""

    directory: Directory
    planned: dict[str, Step] | None = None  # the plan that is not carried out yet
    is_ready: bool = False
    flushed: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    # (number, when sent) of marks: the last that was acknowledged, and later ones.
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    is_caught_up: bool = False  # with some moment of this leadership

    def note_mark(self, number: int, now_ms: int, patience_ms: int) -> None:
        """Note that a mark is sent. Of those older than `patience_ms` only the oldest is kept: a
        follower that acknowledges any of them is behind. Of others, one per MARKS_MAX-th of that
        time."""
        marks = self.marks
        while len(marks) > 1 and now_ms - marks[1][1] > patience_ms:
            del marks[1]
        if len(marks) > 1 and marks[-1][1] - marks[-2][1] < patience_ms // MARKS_MAX:
            marks.pop()
        marks.append((number, now_ms))

    def take_mark(self, number: int) -> int | None:
        """Note that everything up to a mark is flushed; return when it was sent, or a moment
        earlier. None when no such mark is waited for."""
        marks = self.marks
        if not marks or not marks[0][0] <= number <= marks[-1][0]:
            return None
        while len(marks) > 1 and marks[1][0] <= number:
            marks.popleft()
        return marks[0][1]

    def carried_out(self) -> None:
        """Record that the plan is carried out: what it kept counts as flushed."""
        assert self.planned is not None
        for name, step in self.planned.items():
            if step.action is not Action.ASIDE:
                self.flushed[name] = self.sent[name] = step.offset
        self.planned = None
        self.is_ready = True

    def flushed_at(self, partition: str) -> int:
        """The flushed end of a partition; -1 while nothing of it counts."""
        return self.flushed.get(partition, -1)

    def has(self, ends: Mapping[str, int]) -> bool:
        """Whether each partition is flushed up to its end in `ends`."""
        return self.is_ready and all(self.flushed_at(name) >= end for name, end in ends.items())

    def needs_from(self, partition: str) -> int | None:
        """The offset from which it may still be sent bytes; None while no plan has said so."""
        step = (self.planned or {}).get(partition)
        if step is not None and step.action is not Action.ASIDE:
            return step.offset
        return self.flushed.get(partition)

    def lacks(self, partitions: Iterable[str]) -> list[str]:
        """The given partitions that it does not have yet."""
        return [name for name in partitions if name not in self.flushed]
