"""A group's counts against the monitoring events: the words, and when each may be said."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from kafka2011.consumer.broker_addresses import BrokerAddresses
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.partition_counts import PartitionCounts
from kafka2011.consumer.counting.reported import INSTANCES_MAX, RANGES_MAX, WINDOWS_MAX, Reported
from kafka2011.consumer.counting.validation import Validation
from kafka2011.consumer.counting.verdicts import (
    REPORT_WAIT_MS,
    REPORTS_BEHIND,
    Look,
    State,
    TopicVerdict,
    Validated,
    judge,
)
from kafka2011.consumer.errors import ConsumerStateError
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.header import UNREADABLE
from kafka2011.events.monitoring import REPEATED, encode_heartbeat, encode_monitoring
from kafka2011.events.retention import SLACK_MS
from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.events.windows import WindowCount
from tests.support.clock import ManualClock
from tests.support.memory_deployment import Deployment, one_stream
from tests.support.scripted_server import ScriptedBroker
from tests.unit.events.samples import page_view

WINDOW_MS = 1_000
NAME = TopicPartition("t", 0, 0)
LATER_MS = 100_000


def report(
    sequence: int,
    counts: Iterable[tuple[int, int]],
    *,
    server: str = "s",
    instance: str = "i",
    time_ms: int = 3_000,
    window_ms: int = WINDOW_MS,
) -> bytes:
    """A monitoring event of (window, count) of topic t."""
    return encode_monitoring(
        server=server,
        service="site",
        instance=instance,
        sequence=sequence,
        time_ms=time_ms,
        window_ms=window_ms,
        counts=[WindowCount("t", start, count, 10 * count) for start, count in counts],
    )


def heartbeat(instance: str, time_ms: int, *, last_sequence: int | None = None) -> bytes:
    """One of server s; the goodbye where the last sequence is given."""
    return encode_heartbeat(
        server="s",
        service="site",
        instance=instance,
        time_ms=time_ms,
        interval_ms=5_000,
        is_last=last_sequence is not None,
        last_sequence=-1 if last_sequence is None else last_sequence,
    )


def goodbye(last_sequence: int, time_ms: int, instance: str = "i") -> bytes:
    return heartbeat(instance, time_ms, last_sequence=last_sequence)


def reported(*payloads: bytes, looks: int = 2) -> Reported:
    made = Reported(WINDOW_MS)
    made.add(payloads)
    for _ in range(looks):
        made.end_look(0)
    return made


def verdict(
    found: Reported,
    cells: dict[tuple[int, str], int],
    *,
    to: int = 50,
    ends: int | None = 50,
    since_ms: int = 0,
    read_to_ms: int = LATER_MS,
    now_ms: int = 0,
    is_final: bool = False,
) -> TopicVerdict:
    """Of topic t with one partition, counted up to `to`; its end is `ends` behind the reports."""
    counts = PartitionCounts(0, to, since_ms, WINDOW_MS, 0, cells)
    asked = {} if ends is None else {at: {NAME: ends} for at in found.expected}
    now_ms = max(read_to_ms, now_ms)
    return judge(Look(found, {NAME: counts}, asked, read_to_ms, now_ms, is_final))["t"]


TWO = (report(0, [(0, 3)]), report(1, [(0, 1), (1_000, 2)]))


def test_what_was_reported_and_counted_is_complete_up_to_the_last_window_that_is_over() -> None:
    found = verdict(reported(*TWO), {(0, "s"): 4, (1_000, "s"): 2}, read_to_ms=4_500)
    assert (found.state, found.counted, found.expected) == ("complete", 6, 6)
    assert found.complete_to_ms == 3_000, "quiet windows are complete too"
    found = verdict(reported(*TWO), {(0, "s"): 4, (1_000, "s"): 2}, read_to_ms=2_999)
    assert (found.state, found.complete_to_ms) == ("complete", 1_000)
    assert [(one.start_ms, one.state) for one in found.open_windows] == [(1_000, "pending")]
    found = verdict(reported(*TWO), {(0, "s"): 4, (1_000, "s"): 2}, read_to_ms=1_500, is_final=True)
    assert (found.state, found.complete_to_ms) == ("complete", 2_000)


def test_a_window_that_is_over_waits_for_reports_and_is_not_called_open() -> None:
    """A broker was away: windows that had ended half an hour before were *window open*."""
    cells = {(0, "s"): 4, (1_000, "s"): 2}
    found = verdict(reported(*TWO), cells, read_to_ms=0, now_ms=2_500)
    reasons = [(one.state, one.reason) for one in found.open_windows]
    assert reasons == [("pending", REPORTS_BEHIND), ("pending", "window open")]


def test_nothing_is_complete_up_to_a_time_of_the_future() -> None:
    """A clock is ahead: what it dated was reported and read."""
    ahead = reported(report(0, [(0, 3), (10_000_000, 2)]))
    cells = {(0, "s"): 3, (10_000_000, "s"): 2}
    found = verdict(ahead, cells, read_to_ms=1_500, is_final=True)
    assert (found.state, found.complete_to_ms) == ("complete", 2_000)


def test_a_topic_is_not_called_unreported_while_a_broker_is_away_that_may_have_its_reports() -> (
    None
):
    found = Reported(WINDOW_MS)
    for is_whole, state in ((False, "pending"), (True, "not audited")):
        found.end_look(0, is_whole=is_whole)
        assert verdict(found, {(0, "s"): 4}).state == state


def test_a_report_that_is_read_twice_counts_once() -> None:
    assert verdict(reported(*TWO, *TWO), {(0, "s"): 4, (1_000, "s"): 2}).state == "complete"


def test_what_the_group_has_not_come_to_is_behind_and_only_then_missing() -> None:
    cells = {(0, "s"): 4, (1_000, "s"): 1}
    for to, ends, state in ((49, 50, "behind"), (50, None, "behind"), (50, 50, "missing")):
        found = verdict(reported(*TWO), cells, to=to, ends=ends)
        assert (found.state, found.numbers) == (state, {state: 1})
        assert found.complete_to_ms == 1_000


def test_a_lost_report_makes_its_windows_unknown_and_one_on_its_way_pending() -> None:
    late = (report(0, [(0, 1)], time_ms=900), report(2, [(1_000, 1)], time_ms=1_900))
    cells = {(0, "s"): 2, (1_000, "s"): 1, (9_000, "s"): 1}
    for looks, states in (
        (1, ["pending", "pending", "extra"]),
        (2, ["unknown", "unknown", "extra"]),
    ):
        found = verdict(reported(*late, looks=looks), cells)
        assert [one.state for one in found.open_windows] == states
    filled = reported(*late, report(1, [(0, 1)], time_ms=1_000))
    assert verdict(filled, cells).numbers == {"extra": 1}
    last = reported(report(0, [(0, 1)], time_ms=900), goodbye(1, 1_900))
    assert verdict(last, {(0, "s"): 1}).state == "unknown"


@pytest.mark.parametrize("restored_first", [False, True])
def test_an_event_that_has_the_sequence_of_another_is_no_repeat(restored_first: bool) -> None:
    """A journal was restored from a backup. Its report was dropped as a repeat: what it counted was
    extra, and what was lost of that hidden behind *complete*."""
    old = [report(0, [(0, 3)], time_ms=1_500), report(1, [(0, 1)], time_ms=2_500)]
    new = [report(1, [(59_000, 2)], time_ms=60_000), report(2, [(59_000, 1)], time_ms=61_000)]
    parts = [*new, *old] if restored_first else [*old, *new]
    found = verdict(reported(*parts, old[0]), {(0, "s"): 4, (59_000, "s"): 3})
    states = [(one.start_ms, one.state, one.number) for one in found.open_windows]
    later = [] if restored_first else [(59_000, "unknown", 2)]
    assert states == [(0, "unknown", 1 if restored_first else 0), *later]


def test_windows_from_before_counting_began_are_not_spoken_of() -> None:
    found = verdict(reported(*TWO), {(1_000, "s"): 2}, since_ms=500)
    assert (found.state, found.expected, found.counted_from_ms) == ("complete", 2, 500)
    found = verdict(reported(*TWO), {}, since_ms=LATER_MS)
    assert (found.state, found.complete_to_ms) == ("pending", None)


@pytest.mark.parametrize(
    ("state", "since_ms", "said"),
    [
        ("complete", 2_000, ("complete", 3_000)),
        ("pending", 2_000, ("complete", 3_000)),
        ("pending", 3_000, ("pending", None)),
        ("complete", 3_000, ("pending", None)),
        ("missing", 9_000, ("missing", None)),
        ("not audited", 9_000, ("complete", 3_000)),
    ],
)
def test_a_group_is_complete_up_to_a_time_after_that_from_which_it_counts_or_pending(
    state: State, since_ms: int, said: tuple[State, int | None]
) -> None:
    """Of two topics, of which one is counted anew, it was complete up to a time before that."""
    whole = verdict(reported(*TWO), {(0, "s"): 4, (1_000, "s"): 2}, read_to_ms=4_500)
    assert (whole.state, whole.complete_to_ms) == ("complete", 3_000)
    to_ms = 9_999 if state == "complete" else None if state == "pending" else 3_000
    anew = replace(whole, state=state, counted_from_ms=since_ms, complete_to_ms=to_ms)
    found = Validated({"t": whole, "u": anew}, LATER_MS)
    assert (found.state, found.complete_to_ms) == said
    assert found.counted_from_ms == (0 if state == "not audited" else since_ms)


def test_a_lost_report_of_a_producer_whose_clock_was_set_back_is_of_the_windows_between() -> None:
    hour_ms = 3_600_000
    ahead = report(0, [], time_ms=hour_ms)
    found = reported(ahead, report(2, [], time_ms=2 * WINDOW_MS))
    assert found.is_lost(2 * WINDOW_MS, 0)
    assert not found.is_lost(hour_ms + WINDOW_MS, 0)


def test_more_than_was_reported_is_extra_and_redelivered_where_the_producer_came_back() -> None:
    cells = {(0, "s"): 6, (1_000, "s"): 2}
    assert verdict(reported(*TWO), cells).numbers == {"extra": 2}
    again = report(0, [(1_000, 0)], instance="second", time_ms=1_500)
    assert verdict(reported(*TWO, again), cells).numbers == {"redelivered": 2}
    resent = goodbye(0, 1_500, instance="i+1500")
    assert verdict(reported(*TWO, resent), cells).numbers == {"redelivered": 2}
    unreported = goodbye(2, 4_000, instance="i+1500")
    assert reported(*TWO, unreported).is_lost(3_000, WINDOW_MS), "TWO ends with sequence 1"
    found = verdict(reported(*TWO, again), cells | {(0, "other"): 1, UNREADABLE: 3})
    assert found.numbers == {"extra": 6}, "of another server, and without a header"
    assert "other" in found.open_windows[1].reason


def test_a_loss_and_a_copy_of_two_servers_do_not_cancel_out() -> None:
    both = reported(report(0, [(0, 3)]), report(0, [(0, 3)], server="b"))
    assert verdict(both, {(0, "s"): 2, (0, "b"): 4}).numbers == {"missing": 1}


def test_a_topic_that_nothing_was_reported_of_is_not_audited() -> None:
    counts = {NAME: PartitionCounts(0, 9, 0, WINDOW_MS, 0, {(0, "s"): 1})}
    found = judge(Look(Reported(WINDOW_MS), counts, {}, LATER_MS, LATER_MS))
    assert found["t"].state == "not audited"


def test_counts_that_cannot_be_read_make_no_word() -> None:
    found = judge(Look(reported(*TWO), {NAME: None}, {}, LATER_MS, LATER_MS))["t"]
    assert (found.state, found.complete_to_ms) == ("pending", None)


def test_reports_are_bounded_and_those_that_do_not_fit_are_rejected() -> None:
    made = reported(*(report(n, [(n * 1_000, 1)]) for n in range(WINDOWS_MAX + 1)))
    assert len(made.expected) <= WINDOWS_MAX
    assert min(start for _, start in made.expected) >= made.kept_from_ms > 0
    made.add([b"junk", report(0, [(0, 1)], instance="wide", window_ms=3_000)])
    assert made.rejected == 2
    made.add([report(0, [(500, 1)], instance="narrow", window_ms=500)])
    assert made.expected.get(("t", 0)) is None or made.rejected == 2


# --- through a connector --------------------------------------------------------------------------


def test_a_consumer_validates_what_it_has_read(deployment: Deployment) -> None:
    broker = deployment.broker_of_t([page_view(100, "s"), page_view(200, "s")])
    deployment.topic("audit", {0: 1})
    broker.append("audit", 0, [report(0, [(0, 3)])])
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        stream = one_stream(consumer)
        for _ in range(2):
            next(stream)
        assert consumer.validate().topics["t"].counted == 0, "nothing is confirmed"
        consumer.commit_offsets()
        found = consumer.validate().topics["t"]
        assert (found.state, found.numbers) == ("missing", {"missing": 1})
        broker.append("t", 0, [page_view(300, "s")])
        broker.append("audit", 0, [report(1, [(1_000, 1)])])
        next(stream)
        consumer.commit_offsets()
        found = consumer.validate().topics["t"]
        assert (found.complete_to_ms, found.numbers) == (1_000, {"missing": 1})
        broker.append("t", 0, [page_view(1_300, "s")])
        next(stream)
        consumer.commit_offsets()
        assert consumer.validate().state == "complete"
    with deployment.connector() as plain, pytest.raises(ConsumerStateError, match=r"audit\.enable"):
        plain.validate()


@pytest.mark.parametrize("is_all_gone", [True, False])
def test_what_retention_had_deleted_the_reports_of_is_not_judged(
    deployment: Deployment, *, is_all_gone: bool
) -> None:
    """It was unknown for ever: the reports that were deleted are missing in the sequences."""
    old, new_ms = [page_view(100, "s"), page_view(200, "s")], 100_000
    broker = deployment.broker_of_t(old)
    deployment.topic("audit", {0: 2})
    broker.retire("audit", 0, broker.append("audit", 0, [report(n, [(0, 1)]) for n in range(3)]))
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        stream = one_stream(consumer)

        def state() -> str:
            consumer.commit_offsets()
            consumer.validate()
            return consumer.validate().state

        if is_all_gone:
            for _ in old:
                next(stream)
            assert state() == "not audited"
        broker.append("audit", 0, [report(3, [(0, 1)], time_ms=new_ms - 70_000)])
        broker.append("audit", 1, [report(4, [(0, 1)], time_ms=new_ms - 69_000)])
        broker.append("t", 0, [page_view(new_ms + n, "s") for n in range(3)])
        broker.append("audit", 1, [report(5, [(new_ms, 3)], time_ms=new_ms + 1_500)])
        for _ in range(3 + (0 if is_all_gone else len(old))):
            next(stream)
        # Nothing was left: what was made before the first look is not known to be reported whole.
        assert state() == ("pending" if is_all_gone else "complete")
        assert consumer.validate().topics["t"].numbers == {}
        broker.append("audit", 1, [report(7, [], time_ms=new_ms + 2_500)])
        assert state() == ("pending" if is_all_gone else "unknown"), "that one was not deleted"


@pytest.mark.parametrize(("rounds", "state"), [(9, "missing"), (0, "behind")])
def test_a_group_that_reads_on_is_judged_by_the_ends_of_the_first_look(
    deployment: Deployment, rounds: int, state: str
) -> None:
    """From outside it is always a little behind: there is always something new."""
    broker = deployment.broker_of_t([page_view(100, "s"), page_view(200, "s")])
    deployment.topic("audit", {0: 1})
    broker.append("audit", 0, [report(0, [(0, 3)])])
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        stream, left = one_stream(consumer), [*range(rounds)]

        def wait() -> bool:
            if not left:
                return False
            broker.append("t", 0, [page_view(left.pop() + 5_000, "s")])
            next(stream)
            consumer.commit_offsets()
            return True

        next(stream)
        consumer.commit_offsets()
        group = consumer.config.group_id
        brokers = BrokerAddresses(deployment.admin, consumer.config)
        found = Validation(deployment.admin, group, brokers).settled(wait).topics["t"]
    assert [(one.start_ms, one.state) for one in found.open_windows][:1] == [(0, state)]
    assert len(left) == (rounds and rounds - 1), "no longer than it takes"


def test_a_broker_that_is_away_makes_no_word_of_what_it_may_have(deployment: Deployment) -> None:
    first, second = deployment.broker(0), deployment.broker(1)
    deployment.topic("t", {0: 1, 1: 1})
    deployment.topic("audit", {0: 1, 1: 1})
    first.append("t", 0, [page_view(100, "s")])
    second.append("t", 0, [page_view(200, "s")])
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        stream = one_stream(consumer)
        for _ in range(2):
            next(stream)
        consumer.commit_offsets()
        for path in ("/brokers/ids/1", "/brokers/topics/t/1", "/brokers/topics/audit/1"):
            deployment.admin.delete(path)
        first.append("audit", 0, [report(0, [(0, 3)])])
        found = consumer.validate()
        assert found.topics["t"].state == "pending"
        assert "broker 1 is away" in found.unread


def test_a_broker_that_goes_as_its_reports_are_read_is_named_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was *broker 0: broker 0 is not registered*."""
    deployment.broker_of_t([page_view(100, "s")])
    deployment.topic("audit", {0: 1})
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        next(one_stream(consumer))
        consumer.commit_offsets()
        monkeypatch.setattr(BrokerAddresses, "find", lambda self, broker_id: None)
        assert consumer.validate().unread == "broker 0 is not registered"


def test_a_broker_that_hangs_is_waited_for_once_in_a_look(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was once for each partition with reports, and once for each topic."""
    broker = deployment.broker_of_t([page_view(100, "s")])
    deployment.topic("audit", {0: 3})
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        next(one_stream(consumer))
        consumer.commit_offsets()
        asked: list[int] = []
        client = BrokerAddresses.client

        def counted(self: BrokerAddresses, broker_id: int) -> SimpleConsumer:
            asked.append(broker_id)
            return client(self, broker_id, 50)

        monkeypatch.setattr(BrokerAddresses, "client", counted)
        broker.is_silent = True
        unread = consumer.validate().unread
        broker.is_silent = False
    assert "no answer within 50 ms" in unread
    assert asked == [0]


@contextlib.contextmanager
def one_more_than_reported(
    deployment: Deployment, clock: ManualClock
) -> Iterator[tuple[ScriptedBroker, Callable[[], Validation]]]:
    """A group that has counted two messages of a window, of which one was reported; the broker, and
    what begins to validate the group."""
    broker = deployment.broker_of_t([page_view(100, "s"), page_view(200, "s")])
    deployment.topic("audit", {0: 1})
    broker.append("audit", 0, [report(0, [(0, 1)]), heartbeat("i", clock())])
    settings = {"audit_enable": True, "event_forms": FORMS_2011, "window_ms": WINDOW_MS}
    with deployment.connector(**settings) as consumer:
        stream = one_stream(consumer)
        for _ in range(2):
            next(stream)
        consumer.commit_offsets()
        group, brokers = (
            consumer.config.group_id,
            BrokerAddresses(deployment.admin, consumer.config),
        )
        yield broker, lambda: Validation(deployment.admin, group, brokers, clock)


@pytest.mark.parametrize("is_reported", [True, False])
def test_what_was_counted_before_its_report_is_read_is_pending_until_it_must_be_there(
    deployment: Deployment, *, is_reported: bool
) -> None:
    """It was extra, though the report followed within a second."""
    clock = ManualClock(LATER_MS)
    with one_more_than_reported(deployment, clock) as (broker, begun):
        watched = begun()

        def state() -> str:
            clock.advance(REPORT_WAIT_MS // 2)
            return watched.look().state

        assert [state() for _ in range(2)] == ["pending"] * 2
        assert watched.look().topics["t"].numbers == {"pending": 1}, "one is not judged yet"
        clock.advance(REPORT_WAIT_MS)
        assert state() == "pending", "its producer is silent, and may report it when it goes on"
        broker.append("audit", 0, [heartbeat("i", clock() + 5_000)])
        if is_reported:
            broker.append("audit", 0, [report(1, [(0, 1)])])
        assert state() == ("complete" if is_reported else "extra")
        if not is_reported:  # of a group that does not run there is nothing to wait for
            found = begun().settled(lambda: False)
            assert found.state == "extra"


def test_a_producer_that_is_silent_later_takes_back_no_verdict(deployment: Deployment) -> None:
    """What had been redelivered was pending for as long as its producer was paused."""
    clock = ManualClock(LATER_MS)
    with one_more_than_reported(deployment, clock) as (broker, begun):
        watched = begun()
        assert watched.look().state == "pending"
        clock.advance(REPORT_WAIT_MS)
        broker.append("audit", 0, [heartbeat("i", clock())])
        for _ in range(2):
            assert watched.look().state == "extra"
            clock.advance(10 * REPORT_WAIT_MS)
        late = begun()
        late.look()
        assert late.look().state == "extra", "also where the first look comes in the pause"


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_long_history_may_be_read_partition_by_partition(is_whole: bool) -> None:
    # What each partition of topic audit lacks is in the next one, or at a broker that is away.
    sequences = range(6 * RANGES_MAX)
    found = Reported(WINDOW_MS)
    found.add(report(sequence, [(0, 1)]) for sequence in sequences[::3])
    found.add(report(sequence, [(0, 1)]) for sequence in sequences[1::3])
    if not is_whole:
        found.end_look(0, is_whole=False)
    found.add(report(sequence, [(0, 1)]) for sequence in sequences[2::3])
    found.end_look(0)
    assert found.expected["t", 0] == {"s": len(sequences)}


def test_gaps_beyond_all_that_are_kept_stay_lost() -> None:
    """As where one of two partitions of topic audit was lost: the oldest gaps were closed, and
    their windows complete or extra."""
    found = Reported(WINDOW_MS)
    sequences = range(1, 3 * RANGES_MAX, 2)
    found.add(report(number, [], time_ms=number * WINDOW_MS) for number in sequences)
    for _ in range(2):
        found.end_look(0)
    assert all(found.is_lost(number * WINDOW_MS, 0) for number in range(sequences[-1]))
    assert not found.is_lost((sequences[-1] + 1) * WINDOW_MS, 0)


def test_a_gap_is_no_loss_while_a_broker_is_away_that_may_have_what_fills_it() -> None:
    found = reported(report(0, [(0, 1)]), report(2, [(0, 1)]))
    found.end_look(0)
    assert found.is_lost(3_000, 0), "of two whole looks"
    found.add([report(4, [(0, 1)], time_ms=9 * WINDOW_MS)])
    for _ in range(3):
        found.end_look(0, is_whole=False)
        assert found.is_lost(3_000, 0), "what was lost before stays so"
        assert (found.is_awaited(8 * WINDOW_MS, 0), found.is_lost(8 * WINDOW_MS, 0)) == (
            True,
            False,
        )
    found.end_look(0)
    assert found.is_lost(8 * WINDOW_MS, 0)


def test_what_is_on_a_broker_that_never_comes_back_is_lost_in_the_end() -> None:
    found = reported(report(0, [(0, 1)]), report(2, [(0, 1)]), looks=0)
    for now_ms, is_lost in ((5, False), (4 + GAP_WAIT_MS, False), (5 + GAP_WAIT_MS, True)):
        found.end_look(now_ms, is_whole=False)
        assert (found.is_lost(3_000, 0), found.is_awaited(3_000, 0)) == (is_lost, not is_lost)
    found.add([report(1, [(0, 1)])])
    found.end_look(6 + GAP_WAIT_MS, is_whole=False)
    assert not found.is_lost(3_000, 0), "it came back all the same"


def test_a_producer_that_sends_again_and_again_is_still_known() -> None:
    found = reported(report(0, [(0, 1)]))
    for number in range(INSTANCES_MAX + 1):
        found.add([heartbeat(f"i{REPEATED}{4_000 + number}", 4_000 + number)])
    found.add([report(1, [(0, 1)])])
    for _ in range(2):
        found.end_look(0)
    assert not found.is_lost(0, 0)
    assert found.restarted_ms("s") == [4_000 + INSTANCES_MAX]


def test_a_window_whose_other_reports_are_dropped_is_not_taken_up_again() -> None:
    """Partitions of topic audit are read one after another: the second has old windows again."""
    found = Reported(WINDOW_MS)
    windows = range(2 * WINDOWS_MAX)
    found.add(report(2 * n, [(n * WINDOW_MS, 1)], time_ms=n * WINDOW_MS) for n in windows)
    kept_from_ms = found.kept_from_ms
    found.add(report(2 * n + 1, [(n * WINDOW_MS, 1)], time_ms=n * WINDOW_MS) for n in windows)
    assert found.kept_from_ms >= kept_from_ms > 0
    assert set(map(tuple, (servers.items() for servers in found.expected.values()))) == {
        (("s", 2),)
    }


def test_an_instance_that_is_heard_of_is_not_the_one_that_is_forgotten() -> None:
    found = Reported(WINDOW_MS)
    found.add([report(0, [(0, 1)])])
    others = [f"other-{number}" for number in range(INSTANCES_MAX + 200)]
    for number, other in enumerate(others):
        found.add([report(0, [(0, 1)], server=other, instance=other)])
        if number % 100 == 0:
            found.add([report(1 + number // 100, [(0, 1)])])
    for _ in range(2):
        found.end_look(0)
    assert not found.is_lost(0, 0)


def test_garbage_behind_the_cut_does_not_hide_when_the_reports_begin() -> None:
    """No window up to the first look was judged."""
    found = Reported(WINDOW_MS)
    found.begins([b"junk"] * 30 + [report(7, [], time_ms=3_000)], 10 * SLACK_MS)
    assert found.kept_from_ms == 3_000 + SLACK_MS
