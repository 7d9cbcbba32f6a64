"""What a follower does with each of its logs when it joins a leader: keep, cut, begin anew."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kafka2011.broker.replication.copies import Row
from kafka2011.protocol.lineage import Lineage, divergence, known_from, spliced


class Action(Enum):
    KEEP = auto()
    CUT = auto()  # to `offset`; what is cut goes to quarantine first
    ANEW = auto()  # an empty log at `offset`; what there was goes to quarantine first
    ASIDE = auto()  # the leader has no such partition: its directory goes to quarantine


@dataclass(frozen=True, slots=True)
class Step:
    """What to do with one log. `offset` is its end afterwards. `lineage` is the leader's, which
    holds for what is kept, the same bytes, and for what will come; before it, the follower's own
    entries for what the leader has let go."""

    action: Action
    offset: int
    lineage: Lineage


def plan(ours: Mapping[str, Row], theirs: Mapping[str, Row]) -> dict[str, Step]:
    """The leader's plan, from its own logs and the follower's.

    A follower's watermark plays no part: it lags behind what is confirmed, and a cut to it would
    lose what only another replica knew to be confirmed.
    """
    steps = {name: _step(row, theirs.get(name)) for name, row in ours.items()}
    steps |= {name: Step(Action.ASIDE, 0, ()) for name in theirs if name not in ours}
    return steps


def _step(leader: Row, follower: Row | None) -> Step:
    if follower is None or follower.end < leader.start or leader.end < follower.start:
        return Step(Action.ANEW, leader.start, leader.lineage)
    # Compare from where the follower's log begins, even if the leader's begins later: what stays
    # must be right, and a lineage also covers what retention has removed. Where it no longer does,
    # a byte of the same epoch says as much: below it both have what that epoch's leader had.
    known = known_from(leader.lineage, leader.start)
    start = max(follower.start, known)
    same = divergence(leader.lineage, leader.end, follower.lineage, follower.end, start)
    if same < leader.start:
        return Step(Action.ANEW, leader.start, leader.lineage)
    action = Action.KEEP if same == follower.end else Action.CUT
    # Files of what the follower, too, has let go may still be there, or again after a crash.
    lineage = spliced(follower.lineage, leader.lineage) if known else leader.lineage
    return Step(action, same, lineage)
