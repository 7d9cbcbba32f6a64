"""State and store together: whatever the order and the crashes, the books are right."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka2011.services.audit.books.ledger import CellKey, FoldedTotals, FoldLimits
from kafka2011.services.audit.books.persistence import load_books, put_back, take_changes
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore, Changes, StoreMismatch
from tests.support.clock import ManualClock
from tests.unit.services.audit.books.samples import (
    AUDIT,
    OFFLINE_VIEWS,
    TIERS,
    VIEWS,
    WINDOW,
    books,
    new_state,
)
from tests.unit.services.audit.samples import heartbeat, report, totals_of


def open_store(path: Path) -> AuditStore:
    return AuditStore(path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)


def loaded(store: AuditStore) -> AuditState:
    state = AuditState(TIERS, WINDOW, ManualClock())
    load_books(state, store)
    return state


def reopened(path: Path) -> AuditState:
    store = open_store(path)
    try:
        return loaded(store)
    finally:
        store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


def views(sequence: int, count: int = 3, server: str = "web-1", window: int = 0) -> bytes:
    return report(sequence, [("page-view", window, count)], server=server, window_ms=WINDOW)


def add_load(state: AuditState, count: int) -> None:
    state.add_load(
        "page_view",
        tier="warehouse",
        topic="page-view",
        counts={(0, "web-1"): count},
        delays={900: count},
        version=7,
    )


def test_a_restart_finds_everything_that_was_written(tmp_path: Path, store: AuditStore) -> None:
    state = new_state()
    empty = report(2, [], server="web-1", window_ms=WINDOW)
    state.add_reports(AUDIT, [views(0), empty], 100)
    state.add_messages(VIEWS, {(0, "web-1"): 2, (-1, "unreadable-header"): 1}, {5: 2, 80: 1}, 70)
    add_load(state, 2)
    state.skip(OFFLINE_VIEWS, 0, 40, "retired")
    store.write(take_changes(state))
    assert not take_changes(state)

    again = reopened(tmp_path)
    assert books(again) == books(state)
    assert [again.position(key) for key in (VIEWS, AUDIT, OFFLINE_VIEWS)] == [70, 100, 40]
    assert again.progress.table_versions == {"page_view": 7}
    assert list(again.progress.unread) == list(state.progress.unread)
    assert totals_of(again.ledger) == totals_of(state.ledger)
    assert again.ledger.produced_bytes == 300
    for tier in TIERS:
        assert again.delays[tier].summary() == state.delays[tier].summary()
    # The repeat of a monitoring event is recognised by the new process too.
    again.add_reports(AUDIT, [views(0)], 130)
    assert totals_of(again.ledger).produced == [3, 0, 0]


def test_what_the_disk_refused_is_in_the_next_changes(tmp_path: Path, store: AuditStore) -> None:
    state = new_state()
    state.add_reports(AUDIT, [views(0), heartbeat(5_000)], 100)
    state.add_messages(VIEWS, {(0, "web-1"): 3}, {5: 3}, 70)
    state.skip(OFFLINE_VIEWS, 0, 40, "retired")
    refused = take_changes(state)
    state.add_messages(VIEWS, {(0, "web-1"): 1}, {}, 90)
    put_back(state, refused)
    store.write(take_changes(state))
    again = reopened(tmp_path)
    assert books(again) == books(state)
    assert again.position(VIEWS) == 90
    assert len(again.progress.unread) == 1
    assert again.heartbeats.beats == state.heartbeats.beats


def test_servers_forgotten_by_age_leave_the_database(tmp_path: Path, store: AuditStore) -> None:
    state = new_state()
    state.add_reports(AUDIT, [heartbeat(5_000), heartbeat(6_000, server="other")], 10)
    store.write(take_changes(state))
    state.fold(0, 5_500)
    store.write(take_changes(state))
    assert [sender.server for sender in reopened(tmp_path).heartbeats.beats] == ["other"]


def test_a_transaction_is_written_whole_or_not_at_all(store: AuditStore) -> None:
    broken = Changes(
        positions=[("live", "page-view", 1, 0, 500)],
        cells=[("page-view", 0, "w", "live", 1, None)],  # type: ignore[list-item]
    )
    with pytest.raises(sqlite3.IntegrityError):
        store.write(broken)
    assert store.rows("positions") == []
    store.write(Changes(positions=[("live", "page-view", 1, 0, 10)]))
    assert store.rows("positions") == [("live", "page-view", 1, 0, 10)]


def test_other_windows_or_servers_need_other_books(tmp_path: Path, store: AuditStore) -> None:
    path = tmp_path / "audit.sqlite"
    with pytest.raises(StoreMismatch, match=r"audit\.window\.ms=1000, not 2000"):
        AuditStore(path, window_ms=2000, tiers=TIERS)
    with pytest.raises(StoreMismatch, match="blacklist"):
        AuditStore(path, window_ms=WINDOW, tiers=TIERS, servers=("", "west-.*"))


def test_folded_cells_leave_the_database(store: AuditStore) -> None:
    state = new_state()
    state.add_reports(AUDIT, [views(0)], 100)
    for key in (VIEWS, OFFLINE_VIEWS):
        state.add_messages(key, {(0, "web-1"): 3}, {}, 70)
    add_load(state, 3)
    store.write(take_changes(state))
    assert len(store.rows("cells")) == 3
    state.fold(10_000, 0)
    store.write(take_changes(state))
    assert store.rows("cells") == []
    assert totals_of(loaded(store).ledger) == totals_of(state.ledger)


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
        folded = reopened(tmp_path).ledger.folded
        assert folded == {("live", "page-view"): FoldedTotals(4, 10, 11, 12, 1, 2, 0)}


def test_what_was_folded_as_redelivered_outlives_a_restart(store: AuditStore) -> None:
    state = AuditState(TIERS, WINDOW, ManualClock(), cells_max=100)
    for number in range(150):
        state.ledger.add_counts("live", "page-view", {(number * WINDOW, "w"): 2})
    state.ledger.make_room(FoldLimits(settled_ms=200 * WINDOW, excused_ms=200 * WINDOW))
    store.write(take_changes(state))
    folded = loaded(store).ledger.folded
    assert folded == state.ledger.folded
    assert folded["live", "page-view"].redelivered == 60 * 2


# --- any order, any crash ------------------------------------------------------------------------

Fact = tuple[str, int, int, int]
EVENTS = [(st.just(name), *[st.just(0)] * 3) for name in ("commit", "crash", "refused")]
FACTS = st.one_of(
    st.tuples(st.just("report"), st.integers(0, 1), st.integers(0, 6), st.integers(0, 3)),
    st.tuples(st.just("read"), st.integers(0, 2), st.integers(0, 3), st.integers(1, 9)),
    *[st.tuples(*event) for event in EVENTS],
)


class Pipeline:
    """Logs of facts, ("report", server, sequence, _) and ("read", tier, window, count).

    They are read again from the stored offset after a crash. Reports carry a number that follows
    from their identity, as a producer's repeat does.
    """

    def __init__(self, path: Path, history: list[Fact]) -> None:
        self.path = path
        self.reports = [f for f in history if f[0] == "report"]
        self.reads = [[f for f in history if f[0] == "read" and f[1] == n] for n in range(3)]
        self.keys = [PartitionKey(tier, "page-view", 1, 0) for tier in TIERS]
        self.written = [0, 0, 0, 0]  # of the reports, and of each tier's log
        self.open()

    def open(self) -> None:
        self.store = open_store(self.path)
        self.state = loaded(self.store)
        for key in (AUDIT, *self.keys):
            if self.state.position(key) is None:
                self.state.begin(key, 0)

    def read(self) -> None:
        """Each log from where the books stand to what is written."""
        for number in range(self.state.position(AUDIT) or 0, self.written[0]):
            _, server, sequence, _ = self.reports[number]
            payload = views(sequence, 1 + sequence, f"web-{server}", (sequence % 4) * WINDOW)
            self.state.add_reports(AUDIT, [payload], number + 1)
        for tier, key in enumerate(self.keys):
            for number in range(self.state.position(key) or 0, self.written[tier + 1]):
                _, _, window, count = self.reads[tier][number]
                self.state.add_messages(key, {(window * WINDOW, "web-0"): count}, {}, number + 1)

    def step(self, kind: str, first: int) -> None:
        if kind in ("report", "read"):
            self.written[0 if kind == "report" else first + 1] += 1
        self.read()
        if kind == "commit":
            self.store.write(take_changes(self.state))
        elif kind == "refused":
            put_back(self.state, take_changes(self.state))
        elif kind == "crash":
            self.store.close()
            self.open()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(FACTS, max_size=40))
def test_books_equal_a_simple_model_whatever_the_order_and_the_crashes(
    tmp_path_factory: pytest.TempPathFactory, history: list[Fact]
) -> None:
    pipeline = Pipeline(tmp_path_factory.mktemp("books"), history)
    for kind, first, _, _ in history:
        pipeline.step(kind, first)
    pipeline.read()
    pipeline.store.close()

    produced: Counter[CellKey] = Counter()
    for server, sequence in {(f[1], f[2]) for f in pipeline.reports}:
        produced[CellKey("page-view", (sequence % 4) * WINDOW, f"web-{server}")] += 1 + sequence
    counted = [Counter[CellKey](), Counter[CellKey](), Counter[CellKey]()]
    for tier, log in enumerate(pipeline.reads):
        for _, _, window, count in log:
            counted[tier][CellKey("page-view", window * WINDOW, "web-0")] += count
    cells = pipeline.state.cells()
    assert set(cells) == set(produced) | {key for tier in counted for key in tier}
    for key, cell in cells.items():
        assert cell.expected == [produced[key]] * 3
        assert cell.counted == [tier[key] for tier in counted]
