"""The one node in ZooKeeper that a replica set's safety rests on, and every way it may change.

Only a leader or a candidate changes `isr`, `eligible` and `min_insync`, but for `founded` and the
unclean election. Each function returns what is to be written; the write is conditional on the
version that was read. What holds after each of them: every directory in `isr` or `eligible` has
flushed all that is confirmed. `isr` is what a leader waits for. Those in `eligible` left it while
nothing could be confirmed, because fewer than `min_insync` were left; so they may lead, too, until
something can be confirmed without them.

The state names directories, not replicas: an empty disk, a clone or a restored backup must not pass
for a copy that is in sync.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

Directory = str  # the id that was made with the data directory


@dataclass(frozen=True, slots=True)
class SetState:
    """A state. `members` are (name, directory) in order of preference; `leader` None: any member of
    `isr` may lead at once. Commands, but for the unclean election, write only `members` and what
    is wanted: the directory to lead by a planned handover, and another `min_insync`."""

    epoch: int
    leader: Directory | None
    isr: frozenset[Directory]
    eligible: frozenset[Directory]
    min_insync: int
    members: tuple[tuple[str, Directory], ...]
    wanted_leader: Directory | None = None
    wanted_min_insync: int | None = None
    first: str | None = None  # the member whose directory is the copy that a new set begins with
    moving: tuple[tuple[str, str], ...] = ()  # (new, old): added to take that one's place

    @property
    def candidates(self) -> frozenset[Directory]:
        """The directories that may lead: each has all that is confirmed."""
        return self.isr | self.eligible

    @property
    def can_confirm(self) -> bool:
        return len(self.isr) >= self.min_insync

    def is_member(self, directory: Directory) -> bool:
        return any(directory == entered for _, entered in self.members)

    def entered_for(self, name: str) -> Directory | None:
        """The directory of the member `name`; "" before its first start."""
        return next((directory for entered, directory in self.members if entered == name), None)

    def rank(self, directory: Directory) -> int:
        """The place in the order of preference, 0 first."""
        return next((i for i, member in enumerate(self.members) if member[1] == directory), 1 << 30)


def elected(state: SetState, candidate: Directory, present: Iterable[Directory]) -> SetState:
    """`candidate` takes over. Any subset of the candidates that contains it is a safe next `isr`:
    all have what is confirmed, and the epoch before confirms nothing more without one of them."""
    isr = state.candidates.intersection(present) | {candidate}
    led = replace(state, epoch=state.epoch + 1, leader=candidate, wanted_leader=None)
    return _with_isr(led, isr)


def without(state: SetState, directories: frozenset[Directory]) -> SetState:
    """The leader no longer waits for `directories`. All in one write: one by one, only the last to
    leave would become eligible, since the set could still confirm without the others."""
    return _with_isr(state, state.isr - directories)


def joined(state: SetState, directory: Directory) -> SetState:
    """The leader waits for `directory`, which has flushed all that is confirmed."""
    return _with_isr(state, state.isr | {directory})


def resigned(state: SetState) -> SetState:
    """Without a leader; the epoch stays until a candidate takes the next one."""
    return replace(state, leader=None)


def entered(state: SetState, name: str, directory: Directory) -> SetState:
    """The member `name` has this directory now. The one it had stays in `isr` until the leader
    takes it out: only the leader knows what it has confirmed meanwhile."""
    members = tuple((n, directory if n == name else old) for n, old in state.members)
    return replace(state, members=members)


def founded(state: SetState, directory: Directory) -> SetState:
    """A new set begins with what `first` has: an empty directory, or a standalone broker's."""
    assert state.first is not None
    return replace(entered(state, state.first, directory), isr=frozenset({directory}), first=None)


def with_min_insync(state: SetState) -> SetState:
    """The leader carries out what is wanted. If the set can confirm with the new number, those that
    were eligible no longer are, in the same write: they may miss the very next message. (So no
    command may do this: it cannot know that the leader's disk still exists.)"""
    count = state.wanted_min_insync or state.min_insync
    changed = replace(state, min_insync=count, wanted_min_insync=None)
    return replace(changed, eligible=frozenset()) if changed.can_confirm else changed


def _with_isr(state: SetState, isr: frozenset[Directory]) -> SetState:
    changed = replace(state, isr=isr, eligible=frozenset())
    if changed.can_confirm:
        return changed
    return replace(changed, eligible=state.candidates - isr)
