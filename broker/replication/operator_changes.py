"""What operators' commands write to a set's state, and why they refuse to.

All but one are requests that the leader carries out: it alone knows what it has confirmed
meanwhile. The exception is the unclean election. It makes a directory that may lack what was
confirmed the set's only copy, so it is refused while any directory that lacks nothing lives.

Each function returns the state to write on the version that was read, or raises Refusal.
"""

from collections.abc import Collection
from dataclasses import replace

from kafka2011.broker.replication.set_state import Directory, SetState


class Refusal(ValueError):
    """A change is refused. The text is one line for the operator: why, and what to do."""


def with_member(state: SetState, name: str) -> SetState:
    """Add a member, last in the order of preference; its process starts with an empty
    directory."""
    if not name:
        raise Refusal("a member's name must not be empty")
    if state.entered_for(name) is not None:
        raise Refusal(f"{name} is a member already")
    return replace(state, members=(*state.members, (name, "")))


def without_member(state: SetState, name: str) -> SetState:
    """Remove a member. The leader takes its directory out of the in-sync set."""
    directory = _entered(state, name)
    others = [member for member in state.members if member[0] != name]
    least = max(state.min_insync, state.wanted_min_insync or 0)
    if state.first == name:
        raise Refusal(f"the set begins with the directory of {name}, which was never started")
    if directory and directory == state.leader:
        raise Refusal(f"{name} is the leader: hand over first")
    if directory in state.candidates and state.leader is None:
        raise Refusal(f"no replica leads, and {name} may: it has everything that is confirmed")
    if len(others) < least:
        raise Refusal(f"{len(others)} members could not confirm: min_insync is {least}")
    if directory in state.isr and len(state.isr) - 1 < least:
        raise Refusal(
            f"{len(state.isr)} members are in sync and min_insync is {least}: without {name} "
            "nothing could be confirmed"
        )
    moving = tuple(pair for pair in state.moving if name not in pair)
    return replace(state, members=tuple(others), moving=moving)


def with_preferred(state: SetState, name: str) -> SetState:
    """Put a member first in the order of preference."""
    directory = _entered(state, name)
    others = tuple(member for member in state.members if member[0] != name)
    return replace(state, members=((name, directory), *others))


def with_min_insync(state: SetState, count: int) -> SetState:
    """Require that `count` members have a message before it is confirmed."""
    if not 1 <= count <= len(state.members):
        raise Refusal(f"min_insync is 1 to {len(state.members)}, the number of members")
    if len(state.isr) < count:
        raise Refusal(
            f"{len(state.isr)} members are in sync: nothing could be confirmed with less "
            f"than {count}"
        )
    return replace(state, wanted_min_insync=count)


def with_leader(
    state: SetState, live: Collection[Directory], name: str | None
) -> tuple[SetState, Directory]:
    """Ask for a planned handover to `name`, or without one to the first other member that can lead;
    also returns its directory."""
    if state.leader is None:
        raise Refusal("no replica leads: there is nothing to hand over")
    ready = [one for one in state.members if one[1] in state.isr and one[1] in live]
    if name is None:
        others = [directory for _, directory in ready if directory != state.leader]
        if not others:
            raise Refusal("no other member is in sync and alive")
        return replace(state, wanted_leader=others[0]), others[0]
    directory = _entered(state, name)
    if directory == state.leader:
        raise Refusal(f"{name} leads already")
    if (name, directory) not in ready:
        raise Refusal(f"{name} is not in sync and alive")
    return replace(state, wanted_leader=directory), directory


def without_wanted_leader(state: SetState, directory: Directory) -> SetState | None:
    """Withdraw the request for that leader; None when it does not stand any more."""
    return replace(state, wanted_leader=None) if state.wanted_leader == directory else None


def elected_unclean(
    state: SetState, live: Collection[Directory], name: str, followed: int = 0
) -> SetState:
    """Make `name`, whose directory may lack what is confirmed, the only candidate. The epoch stays:
    the member takes the next one by itself, and what the gone directories have beyond its copy is
    cut when they return.

    `followed`: the latest epoch that a live member has followed. If that is not the state's, an
    older ZooKeeper was put back: no member takes notice of the state, nor is it known from it who
    has everything. The state to write has that epoch.
    """
    directory = _entered(state, name)
    living = [
        member for member, entered in state.members if entered in state.candidates & set(live)
    ]
    unnamed = state.candidates & set(live) - {entered for _, entered in state.members}
    if (living or unnamed) and followed <= state.epoch:
        names = living or sorted(unnamed)
        raise Refusal(
            f"{names[0]} lives, and has everything that is confirmed: it takes over by itself; "
            "stop it if its disk is lost"
            if len(names) == 1
            else f"{', '.join(names)} live, and have everything that is confirmed: one takes over "
            "by itself; stop each whose disk is lost"
        )
    if not state.candidates:
        raise Refusal(f"the set is new: start {state.first}")
    if directory not in live:
        raise Refusal(f"{name} does not run: start it first")
    return replace(
        state,
        epoch=max(state.epoch, followed),
        leader=None,
        isr=frozenset({directory}),
        eligible=frozenset(),
        wanted_leader=None,
    )


def check_can_begin_anew(state: SetState, live: Collection[Directory], name: str) -> Directory:
    """The directory of a follower that may be copied anew; it does not count meanwhile."""
    directory = _entered(state, name)
    if state.leader is None or state.leader not in live:
        raise Refusal("no replica leads: there is nothing to copy from")
    if directory == state.leader:
        raise Refusal(f"{name} is the leader: hand over first")
    if directory not in live:
        raise Refusal(f"{name} does not run")
    others = len(state.isr - {directory})
    if others < state.min_insync:
        raise Refusal(
            f"without {name} {others} members are in sync and min_insync is {state.min_insync}: "
            "nothing could be confirmed meanwhile"
        )
    return directory


def _entered(state: SetState, name: str) -> Directory:
    directory = state.entered_for(name)
    if directory is None:
        known = ", ".join(member for member, _ in state.members)
        raise Refusal(f"{name} is not a member of the set; its members: {known}")
    return directory
