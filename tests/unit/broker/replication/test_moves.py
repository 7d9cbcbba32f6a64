"""The steps of a move: each follows from the state alone and loses no copy."""

from dataclasses import replace

import pytest

from kafka2011.broker.replication import operator_changes, set_state
from kafka2011.broker.replication.moves import Phase, Step, step
from kafka2011.broker.replication.operator_changes import Refusal
from kafka2011.broker.replication.set_state import SetState

STATE = SetState(3, "A", frozenset("ABC"), frozenset(), 2, (("a", "A"), ("b", "B"), ("c", "C")))
LIVE = frozenset("ABCD")


@pytest.mark.parametrize("old", ["a", "b"])
def test_a_member_is_replaced_in_its_place_and_the_set_never_has_fewer(old: str) -> None:
    state, live = STATE, frozenset("ABC")
    seen = []
    for _ in range(10):
        now = step(state, live, old, "d")
        seen.append(now.phase)
        if now.phase is Phase.DONE:
            break
        if now.state is not None:
            state = now.state
        elif now.phase is Phase.START:
            state, live = set_state.entered(state, "d", "D"), LIVE
        elif now.phase is Phase.COPY:
            state = set_state.joined(state, "D")
        else:  # the leader carries it out
            assert state.wanted_leader == "D"
            state = set_state.elected(state, "D", state.isr)
        assert {"B", "C"} - {old.upper()} <= state.isr
        assert len(state.isr) >= 3
    takes_over = [Phase.HAND_OVER] * 2 if old == "a" else []
    assert seen == [
        Phase.ADD, Phase.START, Phase.COPY, *takes_over, Phase.REMOVE, Phase.DONE,
    ]  # fmt: skip
    names = [name for name, _ in state.members]
    assert names == ["d" if name == old else name for name in "abc"]
    assert state.moving == ()


@pytest.mark.parametrize(
    ("state", "old", "new", "text"),
    [
        (STATE, "b", "b", "cannot be replaced by itself"),
        (STATE, "x", "y", "neither x nor y is a member"),
        (replace(STATE, isr=frozenset(), first="a", epoch=0), "b", "d", "the set is new"),
        (
            replace(STATE, isr=frozenset("BC"), leader="C", moving=(("c", "b"),)),
            "b",
            "c",
            "1 members could",
        ),
        (STATE, "a", "b", "b is a member already, and was not added in the place of a"),
        (STATE, "b", "c", "c is a member already"),
    ],
)
def test_what_is_refused(state: SetState, old: str, new: str, text: str) -> None:
    members = state.members[1:] if "1 members" in text else state.members
    with pytest.raises(Refusal, match=text):
        step(replace(state, members=members), LIVE, old, new)


def test_the_disk_of_the_old_one_may_be_gone() -> None:
    state = replace(STATE, isr=frozenset("AC"), members=(*STATE.members, ("d", "D")))
    state = replace(state, moving=(("d", "b"),))
    assert step(state, frozenset("ACD"), "b", "d").phase is Phase.COPY
    last = step(set_state.joined(state, "D"), frozenset("ACD"), "b", "d")
    assert last.state is not None
    assert [name for name, _ in last.state.members] == ["a", "c", "d"]


def test_while_another_member_is_behind_the_old_one_stays() -> None:
    state = replace(STATE, isr=frozenset("BD"), leader="D", members=(*STATE.members, ("d", "D")))
    state = replace(state, moving=(("d", "b"),))
    assert step(state, LIVE, "b", "d") == Step(Phase.REMOVE)
    assert step(set_state.joined(state, "A"), LIVE, "b", "d").state is not None
    assert step(state, frozenset("AB"), "b", "d") == Step(Phase.START)


def test_a_move_that_is_given_up_leaves_nothing_of_it() -> None:
    added = step(STATE, LIVE, "b", "d").state
    assert added is not None
    assert added.moving == (("d", "b"),)
    assert operator_changes.without_member(added, "d") == STATE
