"""What monitoring events and heartbeats may say, and what the books make of it."""

import pytest

from kafka2011.events.sequences import GAP_WAIT_MS
from kafka2011.services.audit.books import heartbeats
from kafka2011.services.audit.books.progress import PartitionKey
from tests.support.clock import ManualClock
from tests.unit.services.audit.books.samples import AUDIT, TIERS, VIEW, WINDOW, books, new_state
from tests.unit.services.audit.samples import heartbeat, report, totals_of


def produced(sequence: int, *counts: tuple[str, int, int], window_ms: int = WINDOW) -> bytes:
    return report(sequence, counts, server="web-1", window_ms=window_ms)


def test_a_lost_monitoring_event_is_a_gap_once_all_readers_have_passed_it() -> None:
    state = new_state()
    for tier in TIERS:
        state.set_discovered(tier, state.clock())
    state.add_reports(AUDIT, [produced(0), produced(3)], 100)
    state.set_read_to(AUDIT, state.clock() - 1)
    assert state.report_gaps().unknown == [], "another partition may have it"
    state.set_read_to(AUDIT, state.clock())
    ((instance, gap),) = state.report_gaps().unknown
    assert (instance.server, gap.first, gap.last) == ("web-1", 1, 2)
    state.add_reports(AUDIT, [produced(1), produced(2)], 200)
    assert state.report_gaps() == ([], [])


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
        unknown, awaited = state.report_gaps()
        return [gap.first for _, gap in unknown], [gap.first for _, gap in awaited]

    state.add_reports(AUDIT, [produced(0), produced(2)], 100)
    assert read(AUDIT) == ([], []), "the other may have it, and answers"
    assert read(AUDIT, other) == ([1], [])
    clock.advance(1)
    state.set_unreachable(other.tier, "broker", "it does not answer", other.broker_id)
    state.add_reports(AUDIT, [produced(4)], 200)
    assert read(AUDIT) == ([1], [3]), "one that was unknown before stays so"
    clock.advance(GAP_WAIT_MS - 1)
    assert read(AUDIT) == ([1], [3])
    clock.advance(1)
    assert read(AUDIT) == ([1, 3], [])
    state.set_reachable(other.tier, "broker", other.broker_id)
    state.add_reports(other, [produced(3)], 100)
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
    reports = state.progress_of_reports()
    assert (reports.read_to_ms, reports.whole_to_ms) == (800, 500)


@pytest.mark.parametrize(
    "payload",
    [
        b"garbage",
        produced(1, ("page-view", 0, -1)),
        produced(1, ("page-view", -1000, 1)),
        produced(1, ("x" * 300, 0, 1)),
        heartbeat(2**62),
    ],
)
def test_what_no_producer_writes_is_rejected_and_noted_and_the_rest_is_read(payload: bytes) -> None:
    state = new_state()
    state.add_reports(AUDIT, [payload, produced(0, ("page-view", 0, 3))], 100)
    assert state.reports_rejected == 1
    assert books(state) == {VIEW: ([3, 0, 0], [0, 0, 0])}
    assert not state.heartbeats.beats
    assert any("no monitoring event" in note for note in state.notes())


def test_producers_with_narrower_windows_are_added_up() -> None:
    state = new_state()
    half = WINDOW // 2
    payload = produced(0, ("page-view", 0, 1), ("page-view", half, 2), window_ms=half)
    state.add_reports(AUDIT, [payload], 10)
    assert books(state) == {VIEW: ([3, 0, 0], [0, 0, 0])}
    assert not any("windows" in note for note in state.notes())


def test_a_producer_in_the_offline_datacenter_owes_the_live_tier_nothing() -> None:
    state = new_state()
    key = PartitionKey("offline", "audit", 11, 0)
    state.begin(key, 0)
    state.add_reports(key, [produced(0, ("page-view", 0, 3))], 100)
    assert totals_of(state.ledger).expected == [0, 3, 3]


def test_the_number_of_servers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = new_state()
    monkeypatch.setattr(heartbeats, "SERVERS_MAX", 10)
    state.add_reports(AUDIT, [heartbeat(n, server=f"s{n}") for n in range(1, 31)], 20)
    assert [sender.server for sender in state.heartbeats.beats] == [f"s{n}" for n in range(21, 31)]


@pytest.mark.parametrize(
    ("beats", "restarts"),
    [
        ([(0, "a", False), (3000, "a", False)], []),
        ([(0, "a", False), (3001, "a", False)], [3001]),  # it stood still, and its session ended
        ([(0, "a", False), (1000, "b", False)], [1000]),  # it was killed
        ([(0, "a", True), (9000, "b", False)], []),  # a planned stop
        ([(5000, "a", False), (0, "b", False)], []),  # an old one, read late
    ],
)
def test_a_sender_that_died_or_stood_still_was_restarted(
    beats: list[tuple[int, str, bool]], restarts: list[int]
) -> None:
    """Every second a heartbeat is due."""
    state = new_state()
    payloads = [heartbeat(at, instance=name, is_last=is_last) for at, name, is_last in beats]
    state.add_reports(AUDIT, payloads, 100)
    assert [restart.time_ms for restart in state.restarts()] == restarts
