"""Schedules that broke real systems, or earlier forms of these rules, one by one.

Each is short enough to be followed by hand; docs/replication.md has the same list. What holds
after every step is checked as well (tests/simulation/invariants.py): a schedule that breaks a rule
fails in the middle.
"""

import pytest

from kafka2011.broker.replication.candidate import Candidate
from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.effects import LosesConfirmed, ReadState, StateOlder
from kafka2011.broker.replication.events import (
    Canvassed,
    Connected,
    LookAgain,
    Received,
    StateRead,
    Tick,
)
from kafka2011.broker.replication.frames import Hello, Plan, Verdict, Welcome
from kafka2011.broker.replication.leader import Answer, Leader
from kafka2011.broker.replication.machine import Replica
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.broker.replication.set_state import SetState
from tests.simulation.invariants import Violation
from tests.simulation.mutants import (
    CountsOldAcknowledgements,
    FollowsAnOlderEpoch,
    SettlesByAReading,
)
from tests.simulation.play import LOG, Play


def test_a_new_partition_takes_messages_though_its_leader_was_deposed_before_it_did() -> None:
    """The disk hangs with the journal that the partition waits for; the same replica leads next."""
    play = Play()
    play.must("make", "a", "t-1")
    play.put("a")
    play.must("tick", "a", 11_000)
    play.until(lambda: play.world.registry.state.leader is None, ("ask", "a"))
    play.sync("a")
    play.must("tick", "a", 11_000)
    play.lead("a")
    play.must("put", "a", "t-1")
    play.rest()


@pytest.mark.parametrize("waits", ["make", "take"])
def test_a_leader_without_room_hands_over_all_the_same(waits: str) -> None:
    """Its journal and what waits in memory find no room; all else is at the others."""
    play = Play()
    play.full("a")
    play.must(waits, "a", "t-1" if waits == "make" else LOG)
    play.must("fill", "a")
    play.must("hand_over", "a")
    play.do("drained", "a")
    play.until(lambda: not play.leaders, ("tick", "a", 500), *play.talk)
    assert play.machine("a").context.stepped_back_in == 1


def begin(isr: str, replicas: int = 3, machine: type[Replica] = Replica) -> Play:
    """a leads epoch 1, those of `isr` are in sync; the others run, and have not joined."""
    play = Play(replicas, machine=machine)
    outside = [name for name in play.world.names if name not in isr]
    play.kill(*outside)
    play.until(lambda: play.isr == isr, ("tick", "a", 1_000), *play.talk, ("ask", "a"))
    play.until(lambda: play.known("a") == play.world.registry.state.isr, ("ask", "a"))
    for name in outside:
        play.must("start", name)
    return play


def test_a_follower_does_not_cut_to_its_watermark() -> None:
    # KIP-101. b has flushed a message, and acknowledged it, and does not know that it is confirmed.
    play = begin("ab")
    play.full("a")
    play.put("a")
    play.ship("a", "b")
    play.sync("a", "b")
    play.read("a", "b")
    assert play.confirmed == [1, 2]
    play.kill("b")
    play.must("start", "b")
    play.kill("a")
    play.lead("b")
    assert (play.log("b"), play.quarantined("b")) == ([1, 2], [])


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_logs_that_diverged_in_a_power_loss_become_equal(is_acknowledged: bool) -> None:
    # KIP-101: equal lengths, different bytes.
    play = begin("ab")
    play.put("a")
    play.ship("a", "b")
    play.sync("a")
    if is_acknowledged:
        play.sync("b")
        play.read("a", "b")
        assert play.confirmed == [1]
    play.kill("a")
    play.power("b")
    play.must("start", "b")
    play.lead("b")
    play.put("b")
    play.sync("b")
    play.must("start", "a")
    play.join("a", "b")
    play.ship("b", "a")
    if is_acknowledged:
        assert (play.log("a"), play.log("b"), play.quarantined("a")) == ([1, 2], [1, 2], [])
    else:
        assert (play.log("a"), play.log("b"), play.quarantined("a")) == ([2], [2], [1])


def test_two_short_leaderships_in_a_row_are_told_apart() -> None:
    # KIP-279: c does not know b's epoch at all.
    play = begin("abc")
    play.full("a")
    play.lead("b", "a", "c")
    play.put("b")
    play.sync("b")
    play.kill("b")
    play.lead("a", "c")
    play.kill("a")
    play.lead("c")
    play.put("c")
    play.sync("c")
    play.must("start", "b")
    play.join("b", "c")
    play.ship("c", "b")
    assert (play.log("b"), play.quarantined("b")) == ([1, 3], [2])


def test_a_member_joins_at_the_floor_not_at_a_watermark_that_lags() -> None:
    # KAFKA-7128. The new leader does not know what the old one has confirmed.
    play = begin("ab")
    play.join("c", "a")
    play.put("a", 2)
    play.ship("a", "c")
    play.sync("c")
    play.put("a", 3)
    play.ship("a", "b")
    play.sync("a", "b")
    play.read("a", "b")
    assert play.confirmed == [1, 2, 3, 4, 5]
    play.kill("a")
    play.must("pause", "b")
    play.must("go_on", "b")
    play.lead("b", "a")
    assert play.isr == "b"
    play.join("c", "b")
    play.read("b", "c")
    play.must("tick", "b", 260)
    play.do("ask", "b")
    assert play.isr == "b"
    play.ship("b", "c")
    play.sync("c")
    play.until(lambda: play.isr == "bc", ("frame", "b", "c"), ("frame", "c", "b"), ("ask", "b"))
    play.kill("b")
    play.lead("c")
    assert play.log("c") == [1, 2, 3, 4, 5]


def lead_again(machine: type[Replica], is_read: bool) -> Play:
    """c's acknowledgement up to 5 is of a's first leadership; in the second other bytes follow."""
    play = begin("abc", machine=machine)
    play.put("a", 3)
    play.ship("a", "b")
    play.sync("b")
    play.put("a", 2)
    play.ship("a", "c")
    play.sync("c")
    if is_read:
        play.read("a", "c")
    play.lead("b", "a", "c")
    play.join("c", "b")
    play.join("a", "b")
    assert (play.log("a"), play.log("c")) == ([1, 2, 3], [1, 2, 3])
    play.kill("b")
    play.lead("a", "c")
    play.put("a", 2)
    play.sync("a")
    play.read("a", "c")
    return play


@pytest.mark.parametrize("is_read", [False, True])
def test_an_acknowledgement_of_an_older_leadership_does_not_count(is_read: bool) -> None:
    # KIP-320.
    play = lead_again(Replica, is_read)
    assert play.confirmed == [1, 2, 3]
    play.join("c", "a")
    play.ship("a", "c")
    play.sync("c")
    play.read("a", "c")
    assert play.confirmed == [1, 2, 3, 6, 7]


def test_a_machine_that_counts_old_acknowledgements_is_found() -> None:
    with pytest.raises(Violation, match="I1"):
        lead_again(CountsOldAcknowledgements, is_read=True)


@pytest.mark.parametrize("min_insync", [1, 2])
def test_a_leader_cut_off_from_its_followers(min_insync: int) -> None:
    # Jepsen on Kafka 0.8.
    play = Play(3, min_insync)
    for name in "bc":
        play.must("break", name, "a", 0, 0)
        play.must("pause", name)
    play.until(
        lambda: play.isr == "a",
        ("frame", "b", "a"),
        ("frame", "c", "a"),
        ("tick", "a", 1_000),
        ("ask", "a"),
    )
    play.put("a")
    play.sync("a")
    assert play.confirmed == ([1] if min_insync == 1 else [])
    assert play.eligible == ("" if min_insync == 1 else "bc")
    play.kill("a")
    for name in "bc":
        play.must("go_on", name)
    assert play.do("wipe", "a") == (min_insync == 2)  # with min_insync 1 that is the last copy
    play.rounds()
    assert play.leaders in (("",) if min_insync == 1 else ("b", "c"))
    play.must("start", "a")
    play.rest()
    assert play.log("b") == ([1] if min_insync == 1 else [])


def test_the_last_replica_standing_with_unconfirmed_messages() -> None:
    # KIP-966. c left while there was a set that could confirm; b left when there was none.
    play = Play(3, 2)
    play.kill("c")
    play.until(lambda: play.isr == "ab", ("tick", "a", 1_000), ("ask", "a"), *play.talk)
    play.full("a")
    play.kill("b")
    play.until(lambda: play.isr == "a", ("frame", "b", "a"), ("tick", "a", 1_000), ("ask", "a"))
    assert play.eligible == "b"
    play.put("a")
    play.sync("a")
    play.power("a")
    play.must("wipe", "a")
    play.must("start", "c")
    play.rounds()
    assert play.leaders == ""
    play.must("start", "b")
    play.rounds()
    assert play.leaders == "b"
    assert play.confirmed == play.log("b") == play.log("c") == [1]


@pytest.mark.parametrize("starts_first", [False, True])
def test_a_wiped_disk_and_a_write_that_comes_late(starts_first: bool) -> None:
    # KIP-903: the broker's name was in the set, its data was not.
    play = begin("a", replicas=2)
    play.full("a")
    play.join("b", "a")
    play.ship("a", "b")
    play.sync("b")
    play.until(
        lambda: under_way(play, "a") == "ab",
        ("read", 0, LOG),
        ("frame", "b", "a"),
        ("frame", "a", "b"),
        ("tick", "b", 260),
    )
    play.kill("b")
    play.must("wipe", "b")
    if starts_first:
        play.must("start", "b")
        play.until(lambda: "dir-b-3" in str(play.state), ("ask", "b"))
    play.must("apply", "a")
    assert play.isr == ("a" if starts_first else "?a")
    if not starts_first:
        play.must("start", "b")
    play.kill("a")
    play.rounds()
    assert play.leaders == ""
    play.must("start", "a")
    play.rest()
    assert play.log("b") == play.log("a") == play.confirmed


def under_way(play: Play, name: str) -> str:
    """The in-sync set that is being asked for; empty when none is."""
    request = play.host(name).request
    state = getattr(request and request.effect, "state", None)
    if state is None:
        play.do("ask", name)
        return ""
    return play._names(state.isr)


def confirm_while_a_write_is_late(machine: type[Replica]) -> Play:
    """a's write of {a, b, c} is not answered; it reads {a, b}, and b has flushed a message."""
    play = begin("ab", machine=machine)
    play.join("c", "a")
    play.until(
        lambda: under_way(play, "a") == "abc",
        ("frame", "c", "a"),
        ("frame", "a", "c"),
        ("tick", "c", 260),
    )
    play.must("lose", "a")
    play.must("break", "c", "a", 0, 0)
    play.read("a", "c")
    play.must("ask", "a")
    assert play.isr == "ab"
    play.put("a")
    play.ship("a", "b")
    play.sync("a", "b")
    play.read("a", "b")
    return play


def test_a_write_that_comes_late_after_a_reading() -> None:
    # What KIP-497 is careful about: the reading shows the old set, the write is still on its way.
    play = confirm_while_a_write_is_late(Replica)
    assert play.confirmed == []  # c may be in the set
    play.must("ask", "a")  # a write of what was read, which the late one cannot stand beside
    assert play.confirmed == [1]
    play.must("late", 0)
    assert play.isr == "ab"
    play.kill("a", "b")
    play.rounds()
    assert play.leaders == ""  # c is no candidate


def test_a_machine_that_settles_by_a_reading_is_found() -> None:
    play = confirm_while_a_write_is_late(SettlesByAReading)
    assert play.confirmed == [1]
    with pytest.raises(Violation, match="I1"):
        play.must("late", 0)


def test_a_leader_that_slept_through_its_session() -> None:
    # KAFKA-2729; Jepsen on Redpanda.
    play = begin("ab")
    play.full("a")
    for reader in (0, 1):
        play.must("look_up", reader)
        play.must("read", reader, LOG)
    play.put("a")  # m2, and a barrier behind it
    play.must("barrier", "a")
    play.must("pause", "a")
    play.must("expire", "a")
    play.lead("b")
    play.put("b")
    play.sync("b")
    play.must("look_up", 0)
    play.must("read", 0, LOG)
    assert play.confirmed == [1, 3]
    play.must("go_on", "a")
    play.sync("a")
    assert play.machine("a").fetch(LOG, 1) is Answer.READ  # what was confirmed, and no more
    assert play.machine("a").latest(LOG) == 1
    play.must("read", 1, LOG)
    play.must("renew", "a")
    play.rounds()
    assert play.leaders == "b"
    assert play.world.registry.addresses == [("a", 1), ("b", 1)]
    assert play.world.answered == set()
    assert (play.log("a"), play.quarantined("a")) == ([1, 3], [2])


@pytest.mark.parametrize("is_told", [True, False])
def test_a_leader_that_cannot_read_the_state_serves_none_once_it_hears_of_another(
    is_told: bool,
) -> None:
    """By the new leader, or by a follower of it that asks to join the one before."""
    play = Play()
    play.full("a")
    play.do("lose", "a")
    play.must("tick", "a", 1_100)
    assert play.host("a").request, "which is not answered any more"
    play.lead("b", "c")
    assert play.leaders == "ab"
    if is_told:
        play.must("watch", "a")
    else:
        hello = Hello(play.host("c").disk.directory, 2)
        play.world.feed(play.host("a"), Received(99, hello))
    assert play.leaders == "b"
    play.rest()


def test_a_disk_that_hangs_under_a_living_session() -> None:
    # LavinMQ's lease, kept alive by a process that cannot flush.
    play = begin("ab", replicas=2)
    play.full("a")
    play.put("a")
    play.must("barrier", "a")
    play.ship("a", "b")
    play.sync("b")
    goes_on = [
        *[(verb, name) for name in "ab" for verb in ("ask", "dial", "canvass", "journal", "watch")],
        *play.talk,
        ("tick", "a", 260),
        ("tick", "b", 260),
        ("flush", "b", LOG),
    ]
    play.until(lambda: play.world.registry.state.epoch == 2, *goes_on)
    assert play.isr == "b", "it would wait for the same disk"
    play.until(lambda: play.leaders == "b", *goes_on)
    assert play.world.answered == set()
    assert play.log("b") == [1, 2]


def test_a_flush_that_fails_and_one_that_succeeds_after_it() -> None:
    play = begin("ab", replicas=2)
    play.full("a")
    play.put("a")
    play.must("barrier", "a")
    play.ship("a", "b")
    play.sync("b")
    play.must("fail_flush", "a", LOG)
    assert not play.do("flush", "a", LOG)
    play.rounds(60)
    assert play.leaders == "b"
    assert play.world.answered == set()
    play.must("crash", "a")
    assert play.log("a") == [1]  # what the failed flush was to write is not believed
    play.must("start", "a")
    play.rest()
    assert play.confirmed == play.log("a") == [1, 2]


def test_a_reader_at_the_end_during_two_takeovers() -> None:
    # KIP-207: the end fell, and consumers started over.
    play = begin("abc")
    play.full("a")
    play.put("a", 4)
    play.ship("a", "c")
    play.put("a", 2)
    play.ship("a", "b")
    play.sync("a", "b", "c")
    play.read("a", "b")
    play.read("a", "c")
    play.must("look_up", 0)
    play.must("read", 0, LOG)
    assert len(play.confirmed) == play.world.readers[0].shown[LOG] == 5
    play.kill("a")
    for leader, other in (("b", "c"), ("c", "")):
        play.lead(leader, *other)
        machine = play.machine(leader)
        if leader == "b":
            assert machine.context.copies[LOG].watermark < 5
            assert machine.fetch(LOG, 5) is Answer.EMPTY
            assert machine.latest(LOG) is None
            assert machine.fetch(LOG, 8) is Answer.OUT_OF_RANGE
        play.must("look_up", 0)
        play.must("read", 0, LOG)
        if leader == "b":
            play.kill("b")
    assert play.machine("c").latest(LOG) == 5


def copying_member() -> Play:
    """c has told a that it has one of three messages, which a and b have; its plan is on the way"""
    play = begin("abc", replicas=3)
    play.full("a")
    play.kill("c")
    play.until(lambda: play.isr == "ab", ("tick", "a", 1_000), *play.talk, ("ask", "a"))
    play.full("a")
    play.full("a")
    play.must("start", "c")
    play.until(
        lambda: any(member.planned for member in leader_of(play).members.values()),
        *[(verb, "c") for verb in ("watch", "ask", "dial")],
        ("tick", "c", 260),
        ("frame", "c", "a"),
        ("frame", "a", "c"),
    )
    return play


def leader_of(play: Play) -> Leader:
    leader = play.machine("a").leads
    assert leader is not None
    return leader


def test_what_a_joining_member_still_copies_is_not_removed() -> None:
    play = copying_member()
    assert play.machine("a").retirable(LOG) == 1
    assert not play.do("retire", "a", LOG, 2)
    play.must("retire", "a", LOG, 1)
    play.rest()
    play.must("retire", "a", LOG, 3)
    play.rounds(2)
    assert play.confirmed == [1, 2, 3]
    assert [play.host(name).disk.logs[LOG].start for name in "abc"] == [3, 3, 3]


def test_an_empty_directory_begins_where_the_leader_does() -> None:
    play = begin("abc")
    for _ in range(3):
        play.full("a")
    play.kill("c")
    play.must("wipe", "c")
    play.must("retire", "a", LOG, 2)
    play.must("start", "c")
    play.rest()
    log = play.host("c").disk.logs[LOG]
    assert (log.start, [entry.number for entry in log.entries[2:]]) == (2, [3])


def test_a_follower_whose_disk_is_full_leaves_and_comes_back_by_itself() -> None:
    play = begin("abc")
    play.full("a")
    play.must("fill", "c")
    play.put("a")
    play.must("barrier", "a")
    for name in "bc":
        play.ship("a", name)
    play.sync("a", "b")
    play.read("a", "b")
    assert play.world.answered == set(), "c is waited for"
    play.until(
        lambda: play.isr == "ab",
        ("no_room", "c"),
        ("frame", "c", "a"),
        ("tick", "a", 500),
        ("ask", "a"),
    )
    assert play.world.answered == {1}
    play.rounds(100)  # half a minute: it tries again and again, and takes over from no leader
    assert (play.isr, play.leaders) == ("ab", "a")
    play.must("free", "c")
    play.rest()
    assert play.log("c") == [1, 2]


def test_what_cannot_be_confirmed_is_counted_while_the_set_is_too_small() -> None:
    play = Play(3, 2)
    play.full("a")
    play.kill("b", "c")
    play.put("a", 2)
    assert play.machine("a").unconfirmed_bytes == 0, "they may come back before they leave"
    play.until(
        lambda: play.known("a") == {play.host("a").disk.directory},
        ("tick", "a", 1_000),
        ("ask", "a"),
        *play.talk,
    )
    play.put("a")
    assert play.machine("a").unconfirmed_bytes == 3
    play.must("start", "b")
    play.must("start", "c")
    play.rest()
    assert play.machine("a").unconfirmed_bytes == 0


def follow_an_older_leader(machine: type[Replica]) -> Play:
    """c has joined b's epoch 2 and starts again, with a reading of epoch 1, whose a leads on."""
    play = Play(machine=machine)
    play.must("pause", "a")
    play.lead("b", "c")
    play.join("c", "b")
    play.put("b")
    play.ship("b", "c")
    play.sync("b", "c")
    play.read("b", "c")
    assert play.confirmed == [1]
    play.must("crash", "c")
    play.must("go_on", "a")
    play.must("start", "c")
    history = play.world.registry.history
    epoch_1 = max(version for version, state in enumerate(history) if state.epoch == 1)
    play.must("apply", "c", play.world.registry.version - epoch_1)
    play.must("answer", "c")
    for _ in range(20):
        for action in (("dial", "c"), ("frame", "c", "a", 0), ("frame", "a", "c", 0), ("cut", "c")):
            play.do(*action)
        play.do("tick", "c", 60)
    return play


def test_an_older_leader_is_not_followed_after_a_restart() -> None:
    # Or what was confirmed in the later epoch would be cut.
    assert follow_an_older_leader(Replica).log("c") == [1]


def test_a_machine_that_follows_an_older_leader_is_found() -> None:
    with pytest.raises(Violation, match="I1"):
        follow_an_older_leader(FollowsAnOlderEpoch)


def start_an_older_copy_alone(counts_unseen_starts: bool) -> Play:
    """b gets an older copy of its directory, and is started again and again while a and c are away.
    a, which has what b lacks, is the other candidate."""
    play = begin("ab")
    play.world.counts_unseen_starts = counts_unseen_starts
    play.kill("b")
    play.must("back_up", "b")
    play.must("start", "b")
    play.rest()
    play.full("a")
    play.kill("a", "b", "c")
    play.must("restore", "b")
    for _ in range(5):
        play.must("die_at_start", "b")
    play.must("start", "b")
    play.rounds()
    return play


def test_an_older_copy_never_leads_however_often_it_is_started() -> None:
    play = start_an_older_copy_alone(counts_unseen_starts=False)
    assert play.leaders == ""
    play.must("start", "a")
    play.must("start", "c")
    play.rest()
    assert play.log("b") == [1]


def test_a_count_of_starts_that_zookeeper_has_not_seen_is_found() -> None:
    with pytest.raises(Violation, match="I1"):
        start_an_older_copy_alone(counts_unseen_starts=True)


def test_a_copy_that_misses_something_is_not_cut_before_that_is_durable() -> None:
    play = Play()
    play.kill("a")
    play.must("tick", "b", 16_000)
    play.until(lambda: isinstance(play.machine("b").role, Candidate), ("ask", "b"))
    asked = play.host("b").canvasses[0][0]
    told = Canvassed(asked, play.host("c").disk.directory, 1, {LOG: 9}, {LOG: 9})
    play.world.feed(play.host("b"), told)
    assert not play.machine("b").context.whole
    play.host("b").dials.clear()  # to a, which is gone
    play.lead("c")
    for _ in range(10):
        for action in ("tick", "b", 1_000), ("watch", "b"), ("ask", "b"):
            play.do(*action)
        assert not play.host("b").dials
    play.must("journal", "b")
    play.must("tick", "b", 1_000)
    assert play.host("b").dials


@pytest.mark.parametrize(
    ("step", "whole", "told"),
    [
        (Step(Action.KEEP, 5, ()), True, []),
        (Step(Action.CUT, 3, ()), True, []),
        (Step(Action.CUT, 2, ()), True, [LosesConfirmed(LOG, 3, 2)]),
        (Step(Action.ANEW, 0, ()), True, [LosesConfirmed(LOG, 3, 0)]),
        (Step(Action.ANEW, 9, ()), True, []),  # the leader has let it go
        (Step(Action.ASIDE, 0, ()), True, [LosesConfirmed(LOG, 3, 0)]),
        (Step(Action.ANEW, 0, ()), False, []),
    ],
)
def test_a_copy_that_is_cut_below_what_it_knows_as_confirmed_says_so(
    step: Step, whole: bool, told: list[LosesConfirmed]
) -> None:
    copies = {LOG: Copy(0, 3, 5, 5, ((1, 0),))}
    machine = Replica("b", "B", copies, accepted=1, whole=whole)
    state = SetState(2, "A", frozenset("A"), frozenset(), 1, (("a", "A"), ("b", "B")))
    machine.step(0, LookAgain())
    machine.step(0, StateRead(1, 1, state, frozenset("AB")))
    machine.step(1, Tick())
    machine.step(1, Connected(-1))
    machine.step(1, Received(-1, Welcome(Verdict.OK, 2)))
    wanted = machine.step(1, Received(-1, Plan({LOG: step})))
    assert [one for one in wanted if isinstance(one, LosesConfirmed)] == told


def test_a_state_that_is_older_than_what_was_followed_is_looked_at_now_and_then_and_said() -> None:
    """A backup of ZooKeeper was put back: no later reading shows anything else by itself."""
    machine = Replica("a", "A", {LOG: Copy(0, 3, 5, 5, ((7, 0),))}, accepted=7)
    state = SetState(5, "A", frozenset("A"), frozenset(), 1, (("a", "A"), ("b", "B")))
    looks, told = 0, []
    effects = machine.step(0, LookAgain())
    for now_ms in range(0, 60_000, 100):
        while any(isinstance(one, ReadState) for one in effects):
            looks += 1
            assert looks < 100, "it asks again as soon as it is answered"
            [asked] = [one for one in effects if isinstance(one, ReadState)]
            effects = machine.step(now_ms, StateRead(asked.request, 3, state, frozenset("A")))
            told += [one for one in effects if isinstance(one, StateOlder)]
        effects = machine.step(now_ms, Tick())
    assert machine.leads is None
    assert told == [StateOlder((5, 3), (7, 0))]


def test_an_older_version_of_the_epoch_is_said_too() -> None:
    """Versions count in one run alone: a restart takes it."""
    machine = Replica("b", "B", {}, accepted=5)
    state = SetState(5, "A", frozenset("A"), frozenset(), 1, (("a", "A"), ("b", "B")))
    machine.step(0, LookAgain())
    machine.step(0, StateRead(1, 20, state, frozenset("AB")))
    told = []
    for now_ms in (1_000, 20_000):
        [asked] = [one for one in machine.step(now_ms, LookAgain()) if isinstance(one, ReadState)]
        effects = machine.step(now_ms, StateRead(asked.request, 9, state, frozenset("AB")))
        told += [one for one in effects if isinstance(one, StateOlder)]
    assert told == [StateOlder((5, 9), (5, 20))]


def begun_anew_and_whole() -> Play:
    """b was copied anew, and is whole; that is not durable yet."""
    play = Play()
    play.full("a")
    play.must("begin_anew", "b")
    play.until(lambda: "b" not in play.isr, ("journal", "b"), ("tick", "a", 1_000), ("ask", "a"))
    play.join("b", "a")
    for _ in range(40):
        for action in (
            *(("frame", "b", "a"), ("flush", "b", LOG), ("tick", "b", 100)),
            *(("frame", "a", "b"), ("tick", "a", 100), ("ask", "a")),
        ):
            play.do(*action)
    assert play.machine("b").context.whole
    return play


def test_a_copy_that_is_whole_again_is_in_sync_once_that_is_durable() -> None:
    """Or the set counts on a copy that a restart takes for one that misses something."""
    play = begun_anew_and_whole()
    assert "b" not in play.isr
    play.must("journal", "b")
    play.rest()
    assert "b" in play.isr


def test_a_copy_that_is_whole_again_may_lead_once_that_is_durable() -> None:
    """Nor does it answer a candidate before, which would take it into the set."""
    play = begun_anew_and_whole()
    machine = play.machine("b")
    assert (machine.context.may_lead, machine.canvassed()) == (False, None)
    play.must("journal", "b")
    assert machine.context.may_lead
    assert machine.canvassed() is not None
