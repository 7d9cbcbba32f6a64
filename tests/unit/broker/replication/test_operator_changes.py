"""What operators' commands write, and what they refuse: nothing of it takes what is confirmed from
the directories that have it."""

from dataclasses import replace

import pytest

from kafka2011.broker.replication import operator_changes
from kafka2011.broker.replication.operator_changes import Refusal
from kafka2011.broker.replication.set_state import SetState

# a leads; all are in sync
STATE = SetState(
    7,
    "A",
    frozenset("ABC"),
    frozenset(),
    2,
    (("a", "A"), ("b", "B"), ("c", "C")),
)
# b and c have left one after the other: b may lead as well
ALONE = replace(STATE, isr=frozenset("A"), eligible=frozenset("B"))
NEW = SetState(0, None, frozenset(), frozenset(), 2, (("a", ""), ("b", ""), ("c", "")), first="a")
LIVE = frozenset("ABC")


def test_members_come_last_and_go_by_name() -> None:
    more = operator_changes.with_member(STATE, "d")
    assert more.members == (*STATE.members, ("d", ""))
    assert operator_changes.without_member(more, "d") == STATE
    assert operator_changes.without_member(STATE, "b").members == (("a", "A"), ("c", "C"))
    assert operator_changes.with_preferred(STATE, "c").members == (
        ("c", "C"),
        ("a", "A"),
        ("b", "B"),
    )
    # Two that were never started have the same directory, "".
    assert operator_changes.without_member(operator_changes.with_member(NEW, "d"), "b").members == (
        *(("a", ""), ("c", ""), ("d", "")),
    )


@pytest.mark.parametrize(
    ("state", "name", "text"),
    [
        (STATE, "x", "x is not a member of the set; its members: a, b, c"),
        (STATE, "a", "a is the leader: hand over first"),
        (replace(STATE, leader=None), "b", "no replica leads, and b may"),
        (replace(STATE, isr=frozenset("AB")), "b", "2 members are in sync and min_insync is 2"),
        (replace(STATE, wanted_min_insync=3), "b", "2 members could not confirm"),
        (NEW, "a", "begins with the directory of a"),
    ],
)
def test_a_member_that_is_needed_is_not_removed(state: SetState, name: str, text: str) -> None:
    with pytest.raises(Refusal, match=text):
        operator_changes.without_member(state, name)


def test_no_command_changes_who_may_lead_but_the_unclean_election() -> None:
    for changed in (
        operator_changes.with_member(STATE, "d"),
        operator_changes.without_member(STATE, "b"),
        operator_changes.with_preferred(STATE, "b"),
        operator_changes.with_min_insync(STATE, 3),
        operator_changes.with_leader(STATE, LIVE, "b")[0],
    ):
        assert (changed.isr, changed.eligible, changed.min_insync, changed.leader) == (
            *(STATE.isr, STATE.eligible, STATE.min_insync, STATE.leader),
        )


def test_a_handover_is_requested_to_one_that_has_everything() -> None:
    assert operator_changes.with_leader(STATE, LIVE, "c") == (
        replace(STATE, wanted_leader="C"),
        "C",
    )
    assert operator_changes.with_leader(STATE, LIVE, None)[1] == "B"
    assert operator_changes.with_leader(STATE, frozenset("AC"), None)[1] == "C"
    requested = replace(STATE, wanted_leader="C")
    assert operator_changes.without_wanted_leader(requested, "C") == STATE
    assert operator_changes.without_wanted_leader(requested, "B") is None


@pytest.mark.parametrize(
    ("state", "live", "name", "text"),
    [
        (replace(STATE, leader=None), LIVE, "b", "no replica leads"),
        (STATE, LIVE, "a", "a leads already"),
        (ALONE, LIVE, "b", "b is not in sync and alive"),
        (STATE, frozenset("A"), "b", "b is not in sync and alive"),
        (ALONE, LIVE, None, "no other member is in sync and alive"),
        (STATE, LIVE, "x", "x is not a member"),
    ],
)
def test_a_handover_that_cannot_be_is_refused(
    state: SetState, live: frozenset[str], name: str | None, text: str
) -> None:
    with pytest.raises(Refusal, match=text):
        operator_changes.with_leader(state, live, name)


@pytest.mark.parametrize(("state", "count"), [(STATE, 4), (ALONE, 2)])
def test_more_than_are_in_sync_is_no_min_insync(state: SetState, count: int) -> None:
    with pytest.raises(Refusal):
        operator_changes.with_min_insync(state, count)


def test_an_unclean_election_needs_that_nobody_lives_who_has_everything() -> None:
    gone = replace(ALONE, leader="A")
    chosen = operator_changes.elected_unclean(gone, frozenset("C"), "c")
    assert (chosen.leader, chosen.isr, chosen.eligible) == (None, frozenset("C"), frozenset())
    assert (chosen.epoch, chosen.min_insync, chosen.members) == (7, 2, STATE.members)
    for state, live, name, text in (
        (gone, LIVE, "c", "a, b live, and have everything that is confirmed: one"),
        (gone, frozenset("BC"), "c", "b lives, and has everything"),
        (
            replace(gone, eligible=frozenset("X")),
            frozenset("XC"),
            "c",
            "X lives, and has everything",
        ),
        (gone, frozenset("C"), "a", "a does not run"),
        (gone, frozenset(), "c", "c does not run"),
        (NEW, frozenset(), "b", "the set is new: start a"),
    ):
        with pytest.raises(Refusal, match=text):
            operator_changes.elected_unclean(state, live, name)


def test_an_election_over_an_older_state_has_the_epoch_that_was_followed() -> None:
    chosen = operator_changes.elected_unclean(STATE, LIVE, "b", STATE.epoch + 3)
    assert (chosen.epoch, chosen.leader, chosen.isr) == (STATE.epoch + 3, None, frozenset("B"))
    with pytest.raises(Refusal, match="have everything"):
        operator_changes.elected_unclean(STATE, LIVE, "b", STATE.epoch)


def test_only_a_follower_that_is_not_needed_begins_anew() -> None:
    assert operator_changes.check_can_begin_anew(STATE, LIVE, "b") == "B"
    one = replace(STATE, min_insync=1, isr=frozenset("AB"))
    assert operator_changes.check_can_begin_anew(one, LIVE, "b") == "B"
    for state, live, name, text in (
        (STATE, LIVE, "a", "a is the leader"),
        (replace(STATE, leader=None), LIVE, "b", "no replica leads"),
        (STATE, frozenset("BC"), "b", "no replica leads"),
        (STATE, frozenset("AC"), "b", "b does not run"),
        (replace(STATE, isr=frozenset("AB")), LIVE, "b", "without b 1 members are in sync"),
    ):
        with pytest.raises(Refusal, match=text):
            operator_changes.check_can_begin_anew(state, live, name)
