"""The steps in which one member of a set is replaced by another, without loss.

The new member joins and copies everything while the old one stays; then it leads, if the old one
did; then the old one leaves. What is next follows from the set's state alone, so an interrupted
move goes on where it was, in any process.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from kafka2011.broker.replication import operator_changes
from kafka2011.broker.replication.operator_changes import Refusal
from kafka2011.broker.replication.set_state import Directory, SetState


class Phase(Enum):
    ADD = "is added"
    START = "waits for its broker: start it, with an empty directory"
    COPY = "copies what the set has"
    HAND_OVER = "takes over"
    REMOVE = "has everything; the old one leaves as soon as enough are in sync without it"
    DONE = "is in its place"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a move. `state` is to be written; None: wait until the set has changed."""

    phase: Phase
    state: SetState | None = None


def step(state: SetState, live: Collection[Directory], old: str, new: str) -> Step:
    """The next step of a move. Raises Refusal."""
    if old == new:
        raise Refusal(f"{old} cannot be replaced by itself: choose another name")
    goes, comes = state.entered_for(old), state.entered_for(new)
    if comes is None:
        if goes is None:
            raise Refusal(f"neither {old} nor {new} is a member")
        if not state.candidates:
            raise Refusal(f"the set is new: start {state.first}")
        added = _beside(operator_changes.with_member(state, new), old, new)
        return Step(Phase.ADD, replace(added, moving=(*state.moving, (new, old))))
    if goes is not None and (new, old) not in state.moving:
        raise Refusal(
            f"{new} is a member already, and was not added in the place of {old}: without {old} "
            "the set would have one copy less; choose a name that no member has"
        )
    if comes not in state.isr or comes not in live:
        return Step(Phase.COPY if comes in live else Phase.START)
    if goes is None:
        return Step(Phase.DONE)
    if state.leader is None:
        return Step(Phase.HAND_OVER)
    if goes == state.leader:
        if state.wanted_leader == comes:
            return Step(Phase.HAND_OVER)
        return Step(Phase.HAND_OVER, operator_changes.with_leader(state, live, new)[0])
    least = max(state.min_insync, state.wanted_min_insync or 0)
    if len(state.isr - {goes}) < least < len(state.members):
        return Step(Phase.REMOVE)
    return Step(Phase.REMOVE, operator_changes.without_member(state, old))


def _beside(state: SetState, old: str, new: str) -> SetState:
    """Put the new member next to the old in preference, to have its place when that is gone."""
    members = [member for member in state.members if member[0] != new]
    index = next(i for i, member in enumerate(members) if member[0] == old)
    members.insert(index + 1, (new, ""))
    return replace(state, members=tuple(members))
