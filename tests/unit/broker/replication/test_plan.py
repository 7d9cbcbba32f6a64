"""What a joining follower keeps: bytes of the same epochs at the same offsets, and nothing else."""

import pytest

from kafka2011.broker.replication.copies import Row
from kafka2011.broker.replication.plan import Action, Step, plan
from kafka2011.protocol.lineage import Lineage, begun, cut, epoch_at

LEADER: Lineage = ((1, 0), (2, 10), (4, 20))


@pytest.mark.parametrize(
    ("follower", "action", "offset"),
    [
        (Row(0, 30, LEADER), Action.KEEP, 30),
        (Row(0, 15, ((1, 0), (2, 10))), Action.KEEP, 15),
        (Row(0, 0, ()), Action.KEEP, 0),
        (Row(0, 40, LEADER), Action.CUT, 30),
        # An epoch that the leader does not know, in the middle of one that it knows.
        (Row(0, 30, ((1, 0), (2, 10), (3, 15))), Action.CUT, 15),
        # The last common epoch is 1; what it wrote beyond the leader's is cut.
        (Row(0, 30, ((1, 0), (3, 12))), Action.CUT, 10),
        (Row(0, 5, ((3, 0),)), Action.CUT, 0),
        # Retention was faster at the follower, or at the leader.
        (Row(12, 18, ((2, 10),)), Action.KEEP, 18),
        (Row(0, 4, ((1, 0),)), Action.ANEW, 5),
        (Row(31, 40, ((7, 31),)), Action.ANEW, 5),
        (None, Action.ANEW, 5),
        # What the leader keeps is the same, or could be; below it another epoch has written.
        (Row(0, 30, ((3, 0), (2, 10), (4, 20))), Action.ANEW, 5),
        (Row(3, 4, LEADER), Action.ANEW, 5),
        (Row(3, 30, LEADER), Action.KEEP, 30),
    ],
)
def test_a_plan_for_one_log(follower: Row | None, action: Action, offset: int) -> None:
    start = 5 if action is Action.ANEW else 0
    theirs = {"t-0": follower} if follower else {}
    steps = plan({"t-0": Row(start, 30, LEADER)}, theirs)
    assert steps == {"t-0": Step(action, offset, LEADER)}


def test_a_log_that_the_leader_does_not_have_is_set_aside() -> None:
    assert plan({}, {"gone-0": Row(0, 9, ((1, 0),))}) == {"gone-0": Step(Action.ASIDE, 0, ())}


def test_a_lineage_speaks_of_the_bytes_that_there_are() -> None:
    assert [epoch_at(LEADER, offset) for offset in (0, 9, 10, 19, 20, 99)] == [1, 1, 2, 2, 4, 4]
    assert cut(LEADER, 20) == ((1, 0), (2, 10))
    assert cut(LEADER, 0) == ()
    # An epoch that wrote nothing leaves no trace.
    assert begun(begun(LEADER, 5, 30), 6, 30) == (*LEADER, (6, 30))
    assert epoch_at((), 7) == 0
