"""What monitoring events and heartbeats may say, and what the books make of it."""

import pytest

from kafka2011.services.audit.books import heartbeats
from kafka2011.services.audit.books.progress import PartitionKey
from tests.unit.services.audit.books.samples import AUDIT, VIEW, VIEWS, WINDOW, books, new_state
from tests.unit.services.audit.samples import heartbeat, report, totals_of


def produced(sequence: int, *counts: tuple[str, int, int], window_ms: int = WINDOW) -> bytes:
    return report(sequence, counts, server="web-1", window_ms=window_ms)


def test_deltas_add_up_and_a_repeat_counts_once() -> None:
    state = new_state()
    first, second = produced(0, ("page-view", 0, 3)), produced(1, ("page-view", 0, 2))
    state.add_reports(AUDIT, [first, second], 100)
    state.add_reports(AUDIT, [first], 150)
    state.add_messages(VIEWS, {(0, "web-1"): 5}, {}, 50)
    assert books(state) == {VIEW: ([5, 0, 0], [5, 0, 0])}
    assert totals_of(state.ledger).expected == [5, 5, 5]


def test_a_lost_monitoring_event_is_noted() -> None:
    state = new_state()
    state.add_reports(AUDIT, [produced(0), produced(3)], 100)
    assert any("monitoring events 1 to 2 of web-1" in note for note in state.notes())


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
def test_what_no_producer_writes_is_rejected_noted_and_does_not_stop_the_reading(
    payload: bytes,
) -> None:
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
