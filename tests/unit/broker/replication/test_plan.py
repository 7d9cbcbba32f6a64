"""What a joining follower keeps: bytes of the same epochs at the same offsets, and nothing else."""

import pytest

from kafka2011.broker.replication.copies import Row
from kafka2011.broker.replication.plan import Action, Step, plan
from kafka2011.protocol.lineage import LEAST, Lineage, begun, cut, epoch_at, pruned

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


PRUNED: Lineage = ((4, 20), (5, 28))  # of LEADER and one more, at a log that begins at 25


@pytest.mark.parametrize(
    ("follower", "action", "offset", "lineage"),
    [
        # It has what the leader has let go, of epochs that the leader has forgotten.
        (Row(0, 30, (*LEADER, (5, 28))), Action.KEEP, 30, (*LEADER, (5, 28))),
        (Row(0, 26, LEADER), Action.KEEP, 26, (*LEADER, (5, 28))),
        (Row(0, 25, LEADER), Action.KEEP, 25, (*LEADER, (5, 28))),
        (Row(22, 26, ((4, 20),)), Action.KEEP, 26, PRUNED),
        # Its files of before may be there yet.
        (Row(25, 26, LEADER), Action.KEEP, 26, (*LEADER, (5, 28))),
        # Of another epoch just below the leader's start, or before what it remembers.
        (Row(0, 25, ((1, 0), (2, 10), (3, 18))), Action.ANEW, 25, PRUNED),
        (Row(0, 30, ((1, 0), (3, 24))), Action.ANEW, 25, PRUNED),
        (Row(0, 30, ((1, 0), (2, 10), (4, 20), (6, 27))), Action.CUT, 27, (*LEADER, (5, 28))),
        (Row(0, 24, LEADER), Action.ANEW, 25, PRUNED),
        (None, Action.ANEW, 25, PRUNED),
    ],
)
def test_a_leader_that_has_forgotten_who_wrote_what_it_let_go(
    follower: Row | None, action: Action, offset: int, lineage: Lineage
) -> None:
    theirs = {"t-0": follower} if follower else {}
    steps = plan({"t-0": Row(25, 30, PRUNED)}, theirs)
    assert steps == {"t-0": Step(action, offset, lineage)}


def test_a_log_that_the_leader_does_not_have_is_set_aside() -> None:
    assert plan({}, {"gone-0": Row(0, 9, ((1, 0),))}) == {"gone-0": Step(Action.ASIDE, 0, ())}


def test_a_lineage_speaks_of_the_bytes_that_there_are() -> None:
    assert [epoch_at(LEADER, offset) for offset in (0, 9, 10, 19, 20, 99)] == [1, 1, 2, 2, 4, 4]
    assert cut(LEADER, 20) == ((1, 0), (2, 10))
    assert cut(LEADER, 0) == ()
    # What is compared is the byte below a start as well; of what is older nothing is needed.
    assert pruned(LEADER, 20, 1) == ((2, 10), (4, 20))
    assert pruned(LEADER, 21, 1) == ((4, 20),)
    assert pruned(LEADER, 0, 1) == pruned(LEADER, 99) == LEADER
    assert len(pruned(tuple((epoch, epoch) for epoch in range(3000)), 5000)) == LEAST
    # An epoch that wrote nothing leaves no trace.
    assert begun(begun(LEADER, 5, 30), 6, 30) == (*LEADER, (6, 30))
    assert epoch_at((), 7) == 0
