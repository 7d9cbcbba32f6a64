"""What monitoring events and heartbeats may say, and what the books make of it."""

import random

import pytest

from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.services.audit.books import heartbeats
from kafka2011.services.audit.books.heartbeats import Sender
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from tests.support.clock import ManualClock
from tests.unit.services.audit.books.samples import AUDIT, TIERS, VIEW, WINDOW, books, new_state
from tests.unit.services.audit.samples import heartbeat, report, totals_of


def produced(sequence: int, *counts: tuple[str, int, int], window_ms: int = WINDOW) -> bytes:
    return report(sequence, counts, server="web-1", window_ms=window_ms)


def test_a_lost_monitoring_event_is_a_gap_once_all_readers_have_passed_it() -> None:
    state = new_state()
    for tier in TIERS:
        state.set_discovered(tier, state.clock())
    state.reports.add(AUDIT, [produced(0), produced(3)], 100)
    state.set_read_to(AUDIT, state.clock() - 1)
    assert state.reports.gaps().unknown == [], "another partition may have it"
    state.set_read_to(AUDIT, state.clock())
    ((instance, gap),) = state.reports.gaps().unknown
    assert (instance.server, gap.first, gap.last) == ("web-1", 1, 2)
    state.reports.add(AUDIT, [produced(1), produced(2)], 200)
    assert state.reports.gaps() == ([], [])


def test_a_gap_that_a_broker_without_answer_may_fill_waits_for_it_ten_minutes() -> None:
    state = new_state()
    clock = state.clock
    assert isinstance(clock, ManualClock)
    state.begin(other := AUDIT._replace(broker_id=AUDIT.broker_id + 1), 0)

    def read(*partitions: PartitionKey) -> tuple[list[int], list[int]]:
        """The first sequences of what is unknown, and of what is awaited."""
        for tier in TIERS:
            state.set_discovered(tier, clock())
        for key in partitions:
            state.set_read_to(key, clock())
        unknown, awaited = state.reports.gaps()
        return [gap.first for _, gap in unknown], [gap.first for _, gap in awaited]

    state.reports.add(AUDIT, [produced(0), produced(2)], 100)
    assert read(AUDIT) == ([], []), "the other may have it, and answers"
    assert read(AUDIT, other) == ([1], [])
    clock.advance(1)
    state.set_unreachable(other.tier, "broker", "it does not answer", other.broker_id)
    state.reports.add(AUDIT, [produced(4)], 200)
    assert read(AUDIT) == ([1], [3]), "one that was unknown before stays so"
    clock.advance(GAP_WAIT_MS - 1)
    assert read(AUDIT) == ([1], [3])
    clock.advance(1)
    assert read(AUDIT) == ([1, 3], [])
    state.set_reachable(other.tier, "broker", other.broker_id)
    state.reports.add(other, [produced(3)], 100)
    assert read(AUDIT, other) == ([1], [])


def test_a_broker_that_went_away_was_read_up_to_then() -> None:
    state = new_state()
    state.begin(other := AUDIT._replace(broker_id=AUDIT.broker_id + 1), 0)
    for tier in TIERS:
        state.set_discovered(tier, 900)
    state.begin(AUDIT, 0)
    state.set_read_to(AUDIT, 500)
    state.set_unreachable(AUDIT.tier, "broker", "it does not answer", AUDIT.broker_id)
    state.set_read_to(other, 800)
    reports = state.reports.progress()
    assert (reports.read_to_ms, reports.whole_to_ms) == (800, 500)


@pytest.mark.parametrize(
    "payload",
    [
        b"garbage",
        produced(1, ("page-view", 0, -1)),
        produced(1, ("page-view", -1000, 1)),
        produced(1, ("x" * 300, 0, 1)),
        heartbeat(2**62),
        produced(1, *[("page-view", 0, 2**53)] * 1_100),
        produced(1, *[("page-view", 0, 2**39)] * 3),
    ],
)
def test_what_no_producer_writes_is_rejected_and_noted_and_the_rest_is_read(payload: bytes) -> None:
    state = new_state()
    state.reports.add(AUDIT, [payload, produced(0, ("page-view", 0, 3))], 100)
    assert state.reports.rejected == 1
    assert books(state) == {VIEW: ([3, 0, 0], [0, 0, 0])}
    assert not state.reports.heartbeats.beats
    assert any("is not a monitoring event" in note for note in state.notes())


def test_producers_with_narrower_windows_are_added_up() -> None:
    state = new_state()
    half = WINDOW // 2
    payload = produced(0, ("page-view", 0, 1), ("page-view", half, 2), window_ms=half)
    state.reports.add(AUDIT, [payload], 10)
    assert books(state) == {VIEW: ([3, 0, 0], [0, 0, 0])}
    assert not any("windows" in note for note in state.notes())


def test_a_producer_in_the_offline_datacenter_owes_the_live_tier_nothing() -> None:
    state = new_state()
    key = PartitionKey("offline", "audit", 11, 0)
    state.begin(key, 0)
    state.reports.add(key, [produced(0, ("page-view", 0, 3))], 100)
    assert totals_of(state.ledger).expected == [0, 3, 3]


def test_the_number_of_servers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = new_state()
    monkeypatch.setattr(heartbeats, "SERVERS_MAX", 10)
    state.reports.add(AUDIT, [heartbeat(n, server=f"s{n}") for n in range(1, 31)], 20)
    kept = [sender.server for sender in state.reports.heartbeats.beats]
    assert kept == [f"s{n}" for n in range(21, 31)]


@pytest.mark.parametrize(
    ("beats", "restarts"),
    [
        ([(0, "a", False), (3000, "a", False)], []),
        ([(0, "a", False), (3001, "a", False)], [3001]),  # it stood still, and its session ended
        ([(0, "a", False), (1000, "b", False)], [1000]),  # it was killed
        ([(0, "a", True), (9000, "b", False)], []),  # a planned stop
    ],
)
@pytest.mark.parametrize("step", [1, -1])
def test_a_sender_that_died_or_stood_still_was_restarted(
    beats: list[tuple[int, str, bool]], restarts: list[int], step: int
) -> None:
    """Every second a heartbeat is due. They are read in any order."""
    state = new_state()
    payloads = [heartbeat(at, instance=name, is_last=is_last) for at, name, is_last in beats]
    state.reports.add(AUDIT, payloads[::step], 100)
    assert found_restarts(state) == restarts


def read_all(state: AuditState) -> None:
    """Topic `audit` is read up to now."""
    for key in list(state.progress.positions):
        state.set_read_to(key, state.clock())
    state.set_discovered("live", state.clock())


def found_restarts(state: AuditState) -> list[int]:
    read_all(state)
    return [restart.time_ms for restart in state.reports.restarts()]


def partitions(state: AuditState, count: int) -> list[PartitionKey]:
    keys = [AUDIT._replace(partition=number) for number in range(count)]
    for key in keys[1:]:
        state.begin(key, 0)
    return keys


def test_a_healthy_sender_whose_partitions_are_read_one_after_another_was_not_restarted() -> None:
    """66 restarts of it excused what was extra, and copies were redelivered."""
    state, chosen = new_state(), random.Random(1)
    logs = [(key, list[bytes]()) for key in partitions(state, 4)]
    for second in range(600):
        chosen.choice(logs)[1].append(heartbeat(1_000 * second))
    for number, (key, log) in enumerate(logs):
        state.reports.add(key, log, 100)
        state.set_read_to(key, state.clock())
        state.set_discovered("live", state.clock())
        assert state.reports.restarts() == []
        assert number == 3 or len(state.reports.heartbeats.spans[Sender("live", "frontend-1")]) > 1
    assert found_restarts(state) == []
    assert len(state.reports.heartbeats.spans[Sender("live", "frontend-1")]) == 1


def test_a_goodbye_that_is_read_after_the_next_start_is_a_goodbye() -> None:
    state = new_state()
    first, second = partitions(state, 2)
    state.reports.add(first, [heartbeat(1_000), heartbeat(3_000, instance="run-2")], 100)
    state.set_read_to(first, state.clock())
    state.set_discovered("live", state.clock())
    assert state.reports.restarts() == []
    state.reports.add(second, [heartbeat(2_000, is_last=True)], 100)
    assert found_restarts(state) == []
    state.reports.add(second, [heartbeat(0, instance="run-0")], 200)
    assert found_restarts(state) == [], "what comes so late changes nothing"
    state.reports.add(second, [heartbeat(4_000, instance="run-3")], 300)
    assert found_restarts(state) == [4_000]


def test_a_heartbeat_dated_ahead_is_of_the_time_at_which_it_was_read() -> None:
    """It hid silence and restarts until then, and a restart excused all windows until then."""
    state = new_state()
    clock = state.clock
    assert isinstance(clock, ManualClock)
    now_ms = clock()
    state.reports.add(AUDIT, [heartbeat(now_ms), heartbeat(now_ms + 10**10, instance="b")], 100)
    clock.advance(1_000)
    state.reports.add(AUDIT, [heartbeat(clock(), instance="c")], 200)
    assert found_restarts(state) == [now_ms, now_ms + 1_000]
    clock.advance(60_000)
    read_all(state)
    assert [since_ms for _, since_ms in state.reports.silent()] == [now_ms + 1_000]


def test_the_spans_of_a_sender_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "SPANS_MAX", 10)
    state = new_state()
    state.reports.add(AUDIT, [heartbeat(10_000 * number) for number in range(30)], 100)
    assert len(state.reports.heartbeats.spans[Sender("live", "frontend-1")]) == 10
    assert found_restarts(state) == [10_000 * number for number in range(21, 30)]
