"""Replicas whose disk takes nothing more: the others go on without them."""

import pytest

from kafka2011.broker.replication.follower import Follower
from kafka2011.broker.replication.leader import Leader
from kafka2011.broker.replication.member import MARKS_MAX, Member
from tests.simulation.play import LOG, Play


@pytest.mark.parametrize("ends", ["crash", "hand_over"])
def test_a_leader_that_cannot_journal_its_epoch_lets_another_lead(ends: str) -> None:
    """Nothing showed before that its disk is full, for nothing was written."""
    play = Play(3, min_insync=2)
    play.full("a")
    play.must("fill", "b")
    if ends == "crash":
        play.kill("a")
    else:
        play.must("hand_over", "a")
    play.until(lambda: epoch_of(play) == 3 and play.leaders, *everything(play))
    leader = "a" if ends == "hand_over" else "c"
    assert (play.leaders, "b" in play.isr) == (leader, False), "it would wait for the same disk"
    play.rounds(200)
    assert (play.leaders, epoch_of(play)) == (leader, 3), "b does not try again"
    play.must("free", "b")
    play.do("start", "a")
    play.rest()


def epoch_of(play: Play) -> int:
    return play.world.registry.state.epoch


def everything(play: Play) -> list[tuple[object, ...]]:
    """Actions by which everything that can goes on, and half a second passes."""
    verbs = ("watch", "ask", "dial", "canvass", "cut", "journal", "drained", "no_room")
    return [
        *[(verb, name) for name in play.world.names for verb in verbs],
        *[("flush", name, log) for name in play.world.names for log in (LOG, "t-1")],
        *play.talk,
        *[("tick", name, 500) for name in play.world.names],
    ]


def test_a_leader_that_is_not_ready_counts_as_silent() -> None:
    """It does not step back while it knows of no other; the one that comes back takes over."""
    play = Play(3, min_insync=2)
    play.full("a")
    play.must("fill", "b")
    play.kill("a")
    play.must("pause", "c")
    play.until(lambda: isinstance(play.machine("b").role, Leader), *everything(play))
    assert (play.isr, play.eligible) == ("b", "ac")
    play.must("go_on", "c")
    play.until(lambda: play.leaders, *everything(play))
    assert play.leaders == "c"


def test_a_replica_alone_waits_for_room_for_its_epoch() -> None:
    play = Play(1)
    play.full("a")
    play.must("fill", "a")
    play.kill("a")
    play.must("start", "a")
    play.rounds(200)
    assert epoch_of(play) == 2
    play.must("free", "a")
    play.rest()


def test_a_follower_that_cannot_make_a_new_partition_leaves_the_set() -> None:
    play = Play(3, min_insync=2)
    play.full("a")
    play.must("fill", "c")
    play.must("make", "a", "t-1")
    play.until(lambda: play.do("put", "a", "t-1"), *everything(play))
    confirmed = play.world.judge.confirmed["t-1"]
    play.until(lambda: confirmed, *everything(play))
    assert play.isr == "ab"
    play.must("free", "c")
    play.rest()


def test_a_mark_is_acknowledged_once_what_was_to_be_made_before_it_is_there() -> None:
    """Then at once: partitions that are made without a break keep no follower out."""
    play = Play(2)
    play.full("a")
    play.must("make", "a", "t-1")
    play.until(lambda: play.do("journal", "a"), ("tick", "a", 10))
    follower = play.machine("b").role
    assert isinstance(follower, Follower)
    play.until(lambda: follower._is_extending, ("frame", "a", "b"))
    play.read("a", "b")
    leader = play.machine("a").leads
    assert leader is not None
    before = dict(leader._seen_ms)
    play.must("tick", "a", 260)
    play.read("b", "a")
    play.read("a", "b")
    assert leader._seen_ms == before
    play.until(lambda: play.do("journal", "b"), ("cut", "b"))
    play.read("a", "b")
    assert leader._seen_ms != before


def test_of_marks_that_are_not_acknowledged_a_bounded_number_is_remembered() -> None:
    """An acknowledgement says as much as if there were all: behind, or since when it is not."""
    member, patience_ms = Member("B"), 10_000
    sent = {number: number // 5 for number in range(1, 1_000_000)}  # five in a millisecond
    for number, now_ms in sent.items():
        member.note_mark(number, now_ms, patience_ms)
    assert len(member.marks) < 2 * MARKS_MAX
    now_ms = sent[999_999]
    assert member.take_mark(1_000_000) is None, "it was not sent"
    for number in (1, 500_000, 960_000, 999_990, 999_999):
        taken = member.take_mark(number)
        assert taken is not None
        if now_ms - sent[number] > patience_ms:
            assert now_ms - taken > patience_ms
        else:
            assert 0 <= sent[number] - taken <= patience_ms // MARKS_MAX
    assert member.take_mark(999_999) == now_ms
    assert member.take_mark(5) is None, "a later one was acknowledged"
    assert len(member.marks) == 1
