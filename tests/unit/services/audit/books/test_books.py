"""Ledger, state and store together: whatever the order and the crashes, the books are right."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka2011.events.monitoring import encode_monitoring
from kafka2011.events.windows import WindowCount
from kafka2011.runtime.clock import ManualClock
from kafka2011.services.audit.books import heartbeats as silence
from kafka2011.services.audit.books.ledger import CellKey, FoldedTotals, FoldLimits, Ledger
from kafka2011.services.audit.books.persistence import load_books, put_back, take_changes
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore, Changes, StoreMismatch
from tests.unit.services.audit.samples import heartbeat, totals_of

WINDOW = 1000
TIERS = ("live", "offline", "warehouse")
AUDIT = PartitionKey("live", "audit", 1, 0)
VIEWS = PartitionKey("live", "page-view", 1, 0)
OFFLINE_VIEWS = PartitionKey("offline", "page-view", 11, 0)


def report(sequence: int, counts: list[tuple[str, int, int]], server: str = "web-1") -> bytes:
    return encode_monitoring(
        server=server,
        service="test",
        instance="run-1",
        sequence=sequence,
        time_ms=1,
        window_ms=WINDOW,
        counts=[WindowCount(topic, start, count, count * 10) for topic, start, count in counts],
    )


def new_state(clock: ManualClock | None = None) -> AuditState:
    state = AuditState(TIERS, WINDOW, clock or ManualClock())
    for key in (AUDIT, VIEWS, OFFLINE_VIEWS):
        state.begin(key, 0)
    return state


def books(state: AuditState) -> dict[CellKey, tuple[list[int], list[int]]]:
    return {key: (cell.produced, cell.counted) for key, cell in state.cells().items()}


def test_deltas_add_up_and_a_repeat_counts_once() -> None:
    state = new_state()
    first, second = report(0, [("page-view", 0, 3)]), report(1, [("page-view", 0, 2)])
    state.add_reports(AUDIT, [first, second], 100)
    state.add_reports(AUDIT, [first], 150)
    state.add_messages(VIEWS, {(0, "web-1"): 5}, {}, 50)
    key = CellKey("page-view", 0, "web-1")
    assert books(state) == {key: ([5, 0, 0], [5, 0, 0])}
    assert totals_of(state.ledger).expected == [5, 5, 5]


def test_a_lost_monitoring_event_is_told() -> None:
    state = new_state()
    state.add_reports(AUDIT, [report(0, []), report(3, [])], 100)
    assert any("monitoring events 1 to 2 of web-1" in note for note in state.notes())


def test_garbage_in_the_audit_topic_is_told_and_does_not_stop_the_reading() -> None:
    state = new_state()
    state.add_reports(AUDIT, [b"garbage", report(0, [("page-view", 0, 3)])], 100)
    assert state.reports_rejected == 1
    assert totals_of(state.ledger).produced == [3, 0, 0]
    assert any("no monitoring event" in note for note in state.notes())


@pytest.mark.parametrize(
    "counts", [[("page-view", 0, -1)], [("page-view", -1000, 1)], [("x" * 300, 0, 1)]]
)
def test_monitoring_events_with_impossible_numbers_are_rejected(
    counts: list[tuple[str, int, int]],
) -> None:
    state = new_state()
    state.add_reports(AUDIT, [report(0, counts)], 100)
    assert state.reports_rejected == 1
    assert state.cells() == {}


def test_producers_with_narrower_windows_are_added_up() -> None:
    state = new_state()
    payload = encode_monitoring(
        server="web-1",
        service="test",
        instance="run-1",
        sequence=0,
        time_ms=1,
        window_ms=WINDOW // 2,
        counts=[WindowCount("page-view", 0, 1, 1), WindowCount("page-view", WINDOW // 2, 2, 1)],
    )
    state.add_reports(AUDIT, [payload], 10)
    assert books(state) == {CellKey("page-view", 0, "web-1"): ([3, 0, 0], [0, 0, 0])}
    assert not any("windows" in note for note in state.notes())


def test_a_producer_in_the_offline_datacenter_owes_the_live_tier_nothing() -> None:
    state = new_state()
    key = PartitionKey("offline", "audit", 11, 0)
    state.begin(key, 0)
    state.add_reports(key, [report(0, [("page-view", 0, 3)])], 100)
    assert totals_of(state.ledger).expected == [0, 3, 3]


# --- folding -------------------------------------------------------------------------------------


def test_windows_that_balance_are_folded_and_others_stay() -> None:
    ledger = Ledger(TIERS, WINDOW)
    even = [WindowCount("page-view", 0, 3, 1), WindowCount("page-view", 1000, 3, 1)]
    ledger.add_report("live", server="w", instance="i", sequence=0, counts=even, now_ms=1)
    for tier in TIERS:
        ledger.add_counts(tier, "page-view", {(0, "w"): 3, (1000, "w"): 3 - (tier == "offline")})
    before = totals_of(ledger)
    assert ledger.fold(5000) == 1
    assert list(ledger.cells) == [CellKey("page-view", 1000, "w")]
    assert totals_of(ledger) == before
    assert ledger.folded[("offline", "page-view")].missing == 0


def test_a_late_pair_for_a_folded_window_balances_by_itself() -> None:
    ledger = Ledger(("live",), WINDOW)
    counts = [WindowCount("page-view", 0, 3, 1)]
    ledger.add_report("live", server="w", instance="i", sequence=0, counts=counts, now_ms=1)
    ledger.add_counts("live", "page-view", {(0, "w"): 3})
    ledger.fold(5000)
    late = [WindowCount("page-view", 0, 1, 1)]
    ledger.add_report("live", server="w", instance="i", sequence=1, counts=late, now_ms=1)
    ledger.add_counts("live", "page-view", {(0, "w"): 1})
    cell = ledger.cells[CellKey("page-view", 0, "w")]
    assert (cell.expected, cell.counted) == ([1], [1])
    assert totals_of(ledger).counted == [4]


def test_the_number_of_cells_is_bounded_and_what_is_folded_keeps_its_fault() -> None:
    ledger = Ledger(("live",), WINDOW, cells_max=100)
    for number in range(1000):
        ledger.add_counts("live", "page-view", {(number * WINDOW, "w"): 1})
        assert len(ledger.cells) <= 200
    assert totals_of(ledger).counted == [1000]
    assert ledger.folded[("live", "page-view")].extra == 1000 - len(ledger.cells)


def fill(ledger: Ledger, windows: range, *, reported: int, counted: int) -> None:
    counts = [WindowCount("page-view", n * WINDOW, reported, 1) for n in windows]
    sequence = windows.start
    ledger.add_report("live", server="w", instance="i", sequence=sequence, counts=counts, now_ms=1)
    ledger.add_counts("live", "page-view", {(n * WINDOW, "w"): counted for n in windows})


def open_windows(ledger: Ledger) -> list[int]:
    return sorted(key.window_start_ms // WINDOW for key in ledger.cells)


def test_room_is_made_from_what_balances_before_what_does_not() -> None:
    ledger = Ledger(("live",), WINDOW, cells_max=100)
    fill(ledger, range(50), reported=2, counted=1)
    fill(ledger, range(50, 90), reported=1, counted=1)
    fill(ledger, range(90, 120), reported=1, counted=0)
    assert len(ledger.cells) == 120
    ledger.make_room(FoldLimits(settled_ms=70 * WINDOW))
    assert open_windows(ledger) == [*range(50), *range(80, 120)]
    assert ledger.folded[("live", "page-view")].missing == 0


def test_no_window_is_folded_for_room_before_it_is_judged() -> None:
    ledger = Ledger(("live",), WINDOW, cells_max=100)
    fill(ledger, range(150), reported=2, counted=1)
    ledger.make_room(FoldLimits(settled_ms=9 * WINDOW))
    assert open_windows(ledger) == list(range(10, 150))
    assert ledger.folded[("live", "page-view")].missing == 10
    # But memory is bounded: above twice as many the oldest go.
    fill(ledger, range(150, 211), reported=2, counted=1)
    assert len(ledger.cells) <= 200
    assert open_windows(ledger)[-1] == 210


def test_what_a_restart_excuses_stays_excused_when_it_is_folded() -> None:
    ledger = Ledger(("live",), WINDOW, cells_max=100)
    fill(ledger, range(150), reported=1, counted=3)
    ledger.add_counts("live", "page-view", {(-1, "unreadable-header"): 5})
    ledger.make_room(FoldLimits(settled_ms=200 * WINDOW, excused_ms=29 * WINDOW))
    folded = ledger.folded[("live", "page-view")]
    assert len(ledger.cells) == 90
    assert (folded.redelivered, folded.extra) == (30 * 2, 30 * 2 + 5)


def test_a_topic_exempt_from_a_tier_folds_without_it() -> None:
    ledger = Ledger(("live", "offline"), WINDOW, exempt={("offline", "debug")})
    counts = [WindowCount("debug", 0, 3, 1)]
    ledger.add_report("live", server="w", instance="i", sequence=0, counts=counts, now_ms=1)
    ledger.add_counts("live", "debug", {(0, "w"): 3})
    assert ledger.fold(5000) == 1
    assert ledger.folded[("offline", "debug")].missing == 0


# --- the store -----------------------------------------------------------------------------------


def open_store(path: Path) -> AuditStore:
    return AuditStore(path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)


def test_a_restart_finds_everything_that_was_written(tmp_path: Path) -> None:
    clock = ManualClock()
    state, store = new_state(clock), open_store(tmp_path)
    state.add_reports(AUDIT, [report(0, [("page-view", 0, 3)]), report(2, [])], 100)
    state.add_messages(VIEWS, {(0, "web-1"): 2, (-1, "unreadable-header"): 1}, {5: 2, 80: 1}, 70)
    state.add_load(
        "page_view",
        tier="warehouse",
        topic="page-view",
        counts={(0, "web-1"): 2},
        delays={900: 2},
        version=7,
    )
    state.skip(OFFLINE_VIEWS, 0, 40, "retired")
    store.write(take_changes(state))
    assert not take_changes(state)
    store.close()

    store = open_store(tmp_path)
    again = AuditState(TIERS, WINDOW, clock)
    load_books(again, store)
    store.close()
    assert books(again) == books(state)
    assert again.progress.positions[VIEWS].next_offset == 70
    assert again.progress.positions[AUDIT].next_offset == 100
    assert again.progress.positions[OFFLINE_VIEWS].next_offset == 40
    assert again.progress.table_versions == {"page_view": 7}
    assert list(again.progress.unread) == list(state.progress.unread)
    assert totals_of(again.ledger) == totals_of(state.ledger)
    assert again.ledger.produced_bytes == 30
    for tier in TIERS:
        assert again.delays[tier].summary() == state.delays[tier].summary()
    # The repeat of a monitoring event is recognised by the new process too.
    again.add_reports(AUDIT, [report(0, [("page-view", 0, 3)])], 130)
    assert totals_of(again.ledger).produced == [3, 0, 0]


def test_what_the_disk_refused_is_in_the_next_snapshot(tmp_path: Path) -> None:
    state, store = new_state(), open_store(tmp_path)
    state.add_reports(AUDIT, [report(0, [("page-view", 0, 3)])], 100)
    state.add_messages(VIEWS, {(0, "web-1"): 3}, {5: 3}, 70)
    state.skip(OFFLINE_VIEWS, 0, 40, "retired")
    refused = take_changes(state)
    state.add_messages(VIEWS, {(0, "web-1"): 1}, {}, 90)
    put_back(state, refused)
    store.write(take_changes(state))
    store.close()
    store = open_store(tmp_path)
    again = AuditState(TIERS, WINDOW, ManualClock())
    load_books(again, store)
    store.close()
    assert books(again) == books(state)
    assert again.progress.positions[VIEWS].next_offset == 90
    assert len(again.progress.unread) == 1


def test_a_transaction_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    broken = Changes(
        positions=[("live", "page-view", 1, 0, 500)],
        cells=[("page-view", 0, "w", "live", 1, None)],  # type: ignore[list-item]
    )
    with pytest.raises(sqlite3.IntegrityError):
        store.write(broken)
    assert store.rows("positions") == []
    store.write(Changes(positions=[("live", "page-view", 1, 0, 10)]))
    assert store.rows("positions") == [("live", "page-view", 1, 0, 10)]
    store.close()


def test_other_windows_need_other_books(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(StoreMismatch, match=r"audit\.window\.ms=1000, not 2000"):
        AuditStore(tmp_path / "audit.sqlite", window_ms=2000, tiers=TIERS)


def test_folded_cells_leave_the_database(tmp_path: Path) -> None:
    state, store = new_state(), open_store(tmp_path)
    state.add_reports(AUDIT, [report(0, [("page-view", 0, 3)])], 100)
    for tier, key in (("live", VIEWS), ("offline", OFFLINE_VIEWS)):
        assert key.tier == tier
        state.add_messages(key, {(0, "web-1"): 3}, {}, 70)
    state.add_load(
        "t", tier="warehouse", topic="page-view", counts={(0, "web-1"): 3}, delays={}, version=1
    )
    store.write(take_changes(state))
    assert len(store.rows("cells")) == 3
    state.fold(10_000, 0)
    store.write(take_changes(state))
    assert store.rows("cells") == []
    again = AuditState(TIERS, WINDOW, ManualClock())
    load_books(again, store)
    assert totals_of(again.ledger) == totals_of(state.ledger)
    store.close()


def test_books_without_redelivered_are_taken_over(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    old = sqlite3.connect(tmp_path / "audit.sqlite")
    old.executescript(
        """
        ALTER TABLE folded DROP COLUMN redelivered;
        INSERT INTO folded VALUES ('live', 'page-view', 4, 10, 11, 12, 1, 2);
        UPDATE meta SET value = '1' WHERE name = 'format';
        """
    )
    old.close()
    for _ in range(2):
        store = open_store(tmp_path)
        state = AuditState(TIERS, WINDOW, ManualClock())
        load_books(state, store)
        store.close()
        assert state.ledger.folded == {("live", "page-view"): FoldedTotals(4, 10, 11, 12, 1, 2, 0)}


def test_what_was_folded_as_redelivered_outlives_a_restart(tmp_path: Path) -> None:
    state, store = AuditState(TIERS, WINDOW, ManualClock(), cells_max=100), open_store(tmp_path)
    fill(state.ledger, range(150), reported=1, counted=3)
    state.ledger.make_room(FoldLimits(settled_ms=200 * WINDOW, excused_ms=200 * WINDOW))
    store.write(take_changes(state))
    again = AuditState(TIERS, WINDOW, ManualClock())
    load_books(again, store)
    store.close()
    assert again.ledger.folded == state.ledger.folded
    assert again.ledger.folded[("live", "page-view")].redelivered == 60 * 2


# --- any order, any crash ------------------------------------------------------------------------

Fact = tuple[str, int, int, int]


@st.composite
def histories(draw: st.DrawFn) -> list[Fact]:
    """Facts: ("report", server, sequence, window), ("read", tier, window, count), and crashes.

    Reports carry a number that follows from their identity, as a producer's repeat does.
    """
    fact = st.one_of(
        st.tuples(st.just("report"), st.integers(0, 1), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("commit"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("refused"), st.just(0), st.just(0), st.just(0)),
    )
    return draw(st.lists(fact, max_size=40))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(histories())
def test_books_equal_a_simple_model_whatever_the_order_and_the_crashes(
    tmp_path_factory: pytest.TempPathFactory, history: list[Fact]
) -> None:
    """Each reader has a log of facts and re-reads from its stored offset after a crash."""
    path = tmp_path_factory.mktemp("books")
    audit_log = [f for f in history if f[0] == "report"]
    tier_logs = [[f for f in history if f[0] == "read" and f[1] == tier] for tier in range(3)]
    keys = [PartitionKey(tier, "page-view", 1, 0) for tier in TIERS]

    def payload(fact: Fact) -> bytes:
        _, server, sequence, _ = fact
        counts = [("page-view", (sequence % 4) * WINDOW, 1 + sequence)]
        return report(sequence, counts, f"web-{server}")

    def read_up_to(state: AuditState, reports: int, reads: list[int]) -> None:
        """Each log read from where the books stand to the given length."""
        start = state.position(AUDIT) or 0
        for number in range(start, reports):
            state.add_reports(AUDIT, [payload(audit_log[number])], number + 1)
        for tier, key in enumerate(keys):
            for number in range(state.position(key) or 0, reads[tier]):
                _, _, window, count = tier_logs[tier][number]
                state.add_messages(key, {(window * WINDOW, "web-0"): count}, {}, number + 1)

    def fresh(store: AuditStore) -> AuditState:
        state = AuditState(TIERS, WINDOW, ManualClock())
        load_books(state, store)
        for key in (AUDIT, *keys):
            if state.position(key) is None:
                state.begin(key, 0)
        return state

    store = AuditStore(path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)
    state = fresh(store)
    reports, reads = 0, [0, 0, 0]
    for kind, first, _, _ in history:
        if kind == "report":
            reports += 1
        elif kind == "read":
            reads[first] += 1
        read_up_to(state, reports, reads)
        if kind == "commit":
            store.write(take_changes(state))
        elif kind == "refused":
            put_back(state, take_changes(state))
        elif kind == "crash":
            store.close()
            store = AuditStore(path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)
            state = fresh(store)
    read_up_to(state, reports, reads)
    store.close()

    produced: Counter[CellKey] = Counter()
    for server, sequence in {(f[1], f[2]) for f in audit_log}:
        key = CellKey("page-view", (sequence % 4) * WINDOW, f"web-{server}")
        produced[key] += 1 + sequence
    counted = [Counter[CellKey](), Counter[CellKey](), Counter[CellKey]()]
    for tier, log in enumerate(tier_logs):
        for _, _, window, count in log:
            counted[tier][CellKey("page-view", window * WINDOW, "web-0")] += count
    cells = state.cells()
    assert set(cells) == set(produced) | {key for tier in counted for key in tier}
    for cell_key, cell in cells.items():
        assert cell.expected == [produced[cell_key]] * 3
        assert cell.counted == [tier[cell_key] for tier in counted]
    assert totals_of(state.ledger).counted == [sum(tier.values()) for tier in counted]


def test_who_was_heard_outlives_a_restart_and_a_disk_that_refuses(tmp_path: Path) -> None:
    state = new_state()
    state.add_reports(AUDIT, [heartbeat(5_000), heartbeat(6_000, server="other")], 10)
    refused = take_changes(state)
    put_back(state, refused)
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)
    store.write(take_changes(state))
    again = new_state()
    load_books(again, store)
    assert again.heartbeats.beats == state.heartbeats.beats
    state.fold(0, 5_500)
    store.write(take_changes(state))
    store.close()
    store = AuditStore(tmp_path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)
    again = new_state()
    load_books(again, store)
    assert [sender.server for sender in again.heartbeats.beats] == ["other"]
    store.close()


def test_a_heartbeat_of_garbage_is_rejected_and_servers_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = new_state()
    state.add_reports(AUDIT, [heartbeat(2**62)], 10)
    assert state.reports_rejected == 1
    monkeypatch.setattr(silence, "SERVERS_MAX", 10)
    state.add_reports(AUDIT, [heartbeat(n, server=f"s{n}") for n in range(1, 31)], 20)
    assert [sender.server for sender in state.heartbeats.beats] == [f"s{n}" for n in range(21, 31)]
