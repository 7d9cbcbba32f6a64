"""State and store together: whatever the order and the crashes, the books are right."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.consumer.log_tail import tail_of
from kafka2011.services.audit.books.heartbeats import RESTARTS_MAX
from kafka2011.services.audit.books.ledger import CellKey, FoldedTotals, FoldLimits, Instance
from kafka2011.services.audit.books.persistence import load_books, put_back, take_changes
from kafka2011.services.audit.books.progress import (
    DELETED_UNREAD,
    UNREAD_MAX,
    Election,
    PartitionKey,
)
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore, BooksInUse, Changes, StoreMismatch
from tests.support.clock import ManualClock
from tests.unit.services.audit.books import samples
from tests.unit.services.audit.books.samples import (
    AUDIT,
    OFFLINE_VIEWS,
    TIERS,
    VIEW,
    VIEWS,
    WINDOW,
)
from tests.unit.services.audit.samples import heartbeat, report


def open_store(path: Path) -> AuditStore:
    return AuditStore(path / "audit.sqlite", window_ms=WINDOW, tiers=TIERS)


def loaded(store: AuditStore) -> AuditState:
    state = AuditState(TIERS, WINDOW, ManualClock(), cells_max=100)
    load_books(state, store)
    return state


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def state() -> AuditState:
    return samples.new_state(cells_max=100)


def test_books_are_of_one_service_at_a_time(tmp_path: Path) -> None:
    """Two that write the same books count what one has read and the other has not twice."""
    first = open_store(tmp_path)
    with pytest.raises(BooksInUse, match=f"another audit keeps its books in {tmp_path}: stop it"):
        open_store(tmp_path)
    first.close()
    open_store(tmp_path).close()


def contents(state: AuditState) -> dict[str, object]:
    """All that a store keeps of the books."""
    ledger, progress = state.ledger, state.progress
    return {
        "cells": samples.books(state),
        "seen": {key: seen.sequences.ranges() for key, seen in (ledger.seen | ledger.idle).items()},
        "folded": ledger.folded,
        "sums": (ledger.produced_bytes, state.reports.rejected),
        "offsets": {key: at.next_offset for key, at in progress.positions.items()},
        "tails": {key: at.tail for key, at in progress.positions.items()},
        "versions": progress.table_versions,
        "unread": progress.newest_unread(5_000),
        "retained": (ledger.retained.from_ms, ledger.retained.cuts()),
        "delays": {tier: meter.summary() for tier, meter in state.delays.items()},
        "heartbeats": (state.reports.heartbeats.beats, state.reports.heartbeats.spans),
        "restarts": state.reports.restarts(),
        "notes": state.remarks.kept(),
    }


def views(sequence: int, count: int = 3, server: str = "web-1", window: int = 0) -> bytes:
    return report(sequence, [("page-view", window, count)], server=server, window_ms=WINDOW)


def fill(state: AuditState, count: int = 3) -> None:
    """Three reported, `count` in each tier, and something of all else."""
    empty = report(2, [], server="web-1", window_ms=WINDOW)
    beats = [heartbeat(5_000), heartbeat(5_400, instance="run-2")]
    state.reports.add(AUDIT, [views(0), empty, *beats, b"garbage"], 100)
    state.add_messages(VIEWS, {(0, "web-1"): count}, {5: 2, 80: 1}, 70)
    state.note("of what is read again")
    state.note("of what is not read again", is_kept=True)
    state.skip(OFFLINE_VIEWS, 0, 40, "retired")
    state.add_messages(OFFLINE_VIEWS, {(0, "web-1"): count}, {}, 50)
    state.add_load(
        "page_view",
        tier="warehouse",
        topic="page-view",
        counts={(0, "web-1"): count},
        delays={900: count},
        version=7,
    )


def test_a_restart_finds_everything_that_was_written(store: AuditStore, state: AuditState) -> None:
    fill(state, count=2)
    state.add_messages(VIEWS, {(-1, "unreadable-header"): 1}, {}, 75, tail_of(b"what stands there"))
    store.write(take_changes(state))
    assert not take_changes(state)
    again = loaded(store)
    assert contents(again) == contents(state)
    # The repeat of a monitoring event is recognised by the new process too.
    again.reports.add(AUDIT, [views(0)], 130)
    assert samples.books(again) == samples.books(state)


def test_no_sum_passes_what_the_store_can_hold(
    store: AuditStore, state: AuditState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One report of 1,100 times 2**53 messages ended the audit, and each start after it."""
    monkeypatch.setattr("kafka2011.services.audit.books.ledger.PRODUCED_MAX", 2**41)
    state.reports.add(AUDIT, [views(0, 2**40), views(1, 2**40)], 100)
    store.write(take_changes(state))
    for each in (state, again := loaded(store)):
        each.reports.add(AUDIT, [views(2, 1)], 200)
        assert each.reports.rejected == 1
        store.write(take_changes(each))
    assert again.ledger.produced_messages == 2**41


def test_the_tail_of_an_earlier_offset_is_not_that_of_the_position(
    store: AuditStore, state: AuditState
) -> None:
    """As after a range that was skipped, or with an older version in between."""
    fill(state)
    state.add_messages(VIEWS, {}, {}, 75, tail_of(b"what stands there"))
    store.write(take_changes(state))
    assert loaded(store).tail(VIEWS) is not None
    state.skip(VIEWS, 75, 90, "not readable")
    store.write(take_changes(state))
    assert loaded(store).tail(VIEWS) is None


def test_what_the_disk_refused_is_in_the_next_changes(store: AuditStore, state: AuditState) -> None:
    fill(state)
    refused = take_changes(state)
    state.add_messages(VIEWS, {(0, "web-1"): 1}, {}, 90)
    put_back(state, refused)
    store.write(take_changes(state))
    assert contents(loaded(store)) == contents(state)


def test_what_is_folded_or_forgotten_leaves_the_database(
    store: AuditStore, state: AuditState
) -> None:
    fill(state)
    state.reports.add(AUDIT, [heartbeat(6_000, server="other")], 110)
    store.write(take_changes(state))
    assert len(store.rows("cells")) == 3
    state.fold(10_000, 5_500)
    store.write(take_changes(state))
    assert store.rows("cells") == []
    assert [server for _, server, *_ in store.rows("heartbeats")] == ["other"]
    assert contents(loaded(store)) == contents(state)


def test_what_was_folded_as_redelivered_outlives_a_restart(
    store: AuditStore, state: AuditState
) -> None:
    for number in range(150):
        state.ledger.add_counts("live", "page-view", {(number * WINDOW, "w"): 2})
    state.ledger.make_room(FoldLimits(settled_ms=200 * WINDOW, excused_ms=200 * WINDOW))
    store.write(take_changes(state))
    assert loaded(store).ledger.folded == state.ledger.folded
    assert state.ledger.folded["live", "page-view"].redelivered == 60 * 2


def test_a_transaction_is_written_whole_or_not_at_all(store: AuditStore) -> None:
    broken = Changes(
        positions=[("live", "page-view", 1, 0, 500)],
        cells=[("page-view", 0, "w", "live", 1, None, 0)],  # type: ignore[list-item]
    )
    with pytest.raises(sqlite3.IntegrityError):
        store.write(broken)
    assert store.rows("positions") == []
    store.write(Changes(positions=[("live", "page-view", 1, 0, 10)]))
    assert store.rows("positions") == [("live", "page-view", 1, 0, 10)]


def test_other_windows_or_servers_need_other_books(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    path = tmp_path / "audit.sqlite"
    with pytest.raises(StoreMismatch, match=r"audit\.window\.ms=1000, not 2000"):
        AuditStore(path, window_ms=2000, tiers=TIERS)
    with pytest.raises(StoreMismatch, match="blacklist"):
        AuditStore(path, window_ms=WINDOW, tiers=TIERS, servers=("", "west-.*"))


def test_books_of_older_formats_are_taken_over(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    old = sqlite3.connect(tmp_path / "audit.sqlite")
    old.executescript(
        """
        ALTER TABLE folded DROP COLUMN redelivered;
        ALTER TABLE folded DROP COLUMN not_audited;
        ALTER TABLE cells DROP COLUMN counted_ms;
        ALTER TABLE sequences DROP COLUMN first_ms;
        ALTER TABLE sequences DROP COLUMN last_ms;
        ALTER TABLE sequences DROP COLUMN known_ms;
        ALTER TABLE sequences DROP COLUMN oldest_ms;
        ALTER TABLE sequences DROP COLUMN newest_ms;
        ALTER TABLE finals DROP COLUMN known_ms;
        ALTER TABLE heartbeats DROP COLUMN instance;
        ALTER TABLE heartbeats DROP COLUMN spans;
        INSERT INTO heartbeats VALUES ('live', 'web-1', 5, 1000, 0);
        INSERT INTO sequences VALUES ('web-1', 'a', 0, 4, 5);
        INSERT INTO folded VALUES ('live', 'page-view', 4, 10, 11, 12, 1, 2);
        INSERT INTO cells VALUES ('page-view', 0, 'web-1', 'live', 2, 3);
        UPDATE meta SET value = '1' WHERE name = 'format';
        """
    )
    old.close()
    for _ in range(2):
        store = open_store(tmp_path)
        ledger = loaded(store).ledger
        assert ledger.folded == {("live", "page-view"): FoldedTotals(4, 10, 11, 12, 1, 2, 0)}
        [heard] = loaded(store).reports.heartbeats.spans.values()
        assert heard == [(5, 5, 1000, False, "", 0)]
        assert ledger.cells[VIEW].counted_ms == [0, 0, 0], "long ago"
        assert ledger.seen[Instance("web-1", "a")].sequences.ranges() == [(0, 4, 0, 0, 5, 0, 0)]
        store.close()


def test_of_the_unread_ranges_the_lost_logs_stay_and_the_store_keeps_as_many(
    store: AuditStore, state: AuditState
) -> None:
    """A thousand unread ranges took a lost log out of the verdict; the store kept all of them."""
    state.skip(VIEWS, 100, 0, "it was lost")
    for number in range(UNREAD_MAX + 5):
        state.note_unread(VIEWS, number, number + 1, "damaged")
        if number % 400 == 0:
            store.write(take_changes(state))
    store.write(take_changes(state))
    assert [each.first for each in state.progress.lost_logs()] == [100]
    assert len(store.rows("unread")) == UNREAD_MAX + 1
    again = loaded(store)
    assert contents(again) == contents(state)
    assert again.progress.lost_logs() == state.progress.lost_logs()
    assert again.progress.unread_count == UNREAD_MAX + 6


def test_a_gap_is_as_old_after_a_restart_as_before(store: AuditStore, state: AuditState) -> None:
    """Each restart gave it ten minutes again, whatever had been read of its instance since."""
    clock = state.clock
    assert isinstance(clock, ManualClock)
    state.reports.add(AUDIT, [views(0), views(2), heartbeat(5_000, last_sequence=9)], 100)
    known = sorted(gap for _, gap in state.ledger.report_gaps(clock()))
    clock.advance(60_000)
    state.reports.add(AUDIT, [views(3)], 200)
    store.write(take_changes(state))
    again = loaded(store)
    assert sorted(gap for _, gap in again.ledger.report_gaps(clock())) == known
    assert {gap.seen_ms for gap in known} == {clock() - 60_000}


def test_a_repeat_after_a_restart_is_one_wherever_the_clock_was_when_it_was_made(
    store: AuditStore, state: AuditState
) -> None:
    """The store had the times of a range's first and last event only."""
    ahead = report(1, [], server="web-1", time_ms=9_000_000)
    others = [report(n, [], server="web-1", time_ms=5_000 + n) for n in (0, 2)]
    state.reports.add(AUDIT, [others[0], ahead, others[1]], 100)
    store.write(take_changes(state))
    again = loaded(store)
    again.reports.add(AUDIT, [ahead], 150)
    assert len(again.ledger.seen) == 1, "none has a sequence that was used before"


def test_books_that_say_only_that_the_oldest_reports_were_deleted(
    store: AuditStore, state: AuditState
) -> None:
    """Those of the formats before: from then on that the instances without a beginning begin."""
    state.reports.add(AUDIT, [report(7, [], time_ms=5_000), report(8, [], time_ms=9_000)], 100)
    assert list(state.ledger.report_gaps(state.clock()))
    store.write(take_changes(state))
    store.write(Changes(meta=[("is_history_cut", "1")]))
    again = loaded(store)
    assert again.ledger.retained.from_ms == {("live", "audit"): 5_000}
    assert list(again.ledger.report_gaps(state.clock())) == []


# --- any order, any crash ------------------------------------------------------------------------

Fact = tuple[str, int, int, int]
FACTS = st.one_of(
    st.tuples(st.just("report"), st.integers(0, 1), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 2), st.integers(0, 3), st.integers(1, 9)),
    st.sampled_from([(kind, 0, 0, 0) for kind in ("commit", "crash", "refused")]),
)


class Pipeline:
    """Logs of facts, ("report", server, sequence, _) and ("read", tier, window, count).

    They are read again from the stored offset after a crash. Reports carry a number that follows
    from their identity, as a producer's repeat does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reports: list[Fact] = []
        self.reads: list[list[Fact]] = [[], [], []]  # by tier
        self.keys = [PartitionKey(tier, "page-view", 1, 0) for tier in TIERS]
        self.open()

    def open(self) -> None:
        self.store = open_store(self.path)
        self.state = loaded(self.store)
        for key in (AUDIT, *self.keys):
            if self.state.position(key) is None:
                self.state.begin(key, 0)

    def read(self) -> None:
        """Each log from where the books stand to its end."""
        for number in range(self.state.position(AUDIT) or 0, len(self.reports)):
            _, server, sequence, _ = self.reports[number]
            payload = views(sequence, 1 + sequence, f"web-{server}", (sequence % 4) * WINDOW)
            self.state.reports.add(AUDIT, [payload], number + 1)
        for key, log in zip(self.keys, self.reads, strict=True):
            for number in range(self.state.position(key) or 0, len(log)):
                _, _, window, count = log[number]
                self.state.add_messages(key, {(window * WINDOW, "web-0"): count}, {}, number + 1)

    def step(self, fact: Fact) -> None:
        kind, tier, *_ = fact
        if kind == "report":
            self.reports.append(fact)
        elif kind == "read":
            self.reads[tier].append(fact)
        self.read()
        if kind == "commit":
            self.store.write(take_changes(self.state))
        elif kind == "refused":
            put_back(self.state, take_changes(self.state))
        elif kind == "crash":
            self.store.close()
            self.open()


@settings(deadline=None)
@given(st.lists(FACTS, max_size=40))
def test_books_equal_a_simple_model_whatever_the_order_and_the_crashes(
    tmp_path_factory: pytest.TempPathFactory, history: list[Fact]
) -> None:
    pipeline = Pipeline(tmp_path_factory.mktemp("books"))
    for fact in history:
        pipeline.step(fact)
    pipeline.read()
    pipeline.store.close()
    expected: dict[CellKey, tuple[list[int], list[int]]]
    expected = defaultdict(lambda: ([0, 0, 0], [0, 0, 0]))  # produced, counted
    for server, sequence in {(fact[1], fact[2]) for fact in pipeline.reports}:
        key = CellKey("page-view", (sequence % 4) * WINDOW, f"web-{server}")
        expected[key][0][0] += 1 + sequence
    for tier, log in enumerate(pipeline.reads):
        for _, _, window, count in log:
            expected[CellKey("page-view", window * WINDOW, "web-0")][1][tier] += count
    assert samples.books(pipeline.state) == expected


def test_a_stop_before_a_cut_log_is_read_loses_nothing_of_what_is_left(
    store: AuditStore, state: AuditState
) -> None:
    """*Now*, which stands for the time of the first message until that is read, was that of all."""
    state.begin(AUDIT, 0)
    state.skip(AUDIT, 0, 5_000, DELETED_UNREAD)
    cut_ms = state.ledger.retained.reports_from_ms
    store.write(take_changes(state))
    again = loaded(store)
    assert again.is_without_beginning(AUDIT)
    first_ms = cut_ms - 3_600_000
    again.begins(AUDIT, [first_ms])
    assert first_ms <= again.ledger.retained.reports_from_ms < cut_ms
    store.write(take_changes(again))
    assert contents(loaded(store)) == contents(again)


def test_the_store_has_as_many_restarts_as_the_heartbeats_keep(
    store: AuditStore, state: AuditState
) -> None:
    for first in (0, 600):
        rows = [("live", f"server-{n}", n) for n in range(first, first + 600)]
        store.write(Changes(restarts=rows))
    assert len(store.rows("restarts")) == RESTARTS_MAX
    kept = loaded(store).reports.heartbeats.restarts
    assert sorted(at_ms for _, at_ms in kept) == list(range(200, 1200))


def test_elections_that_books_of_earlier_versions_have_are_not_entered_again(
    store: AuditStore,
) -> None:
    """They have the highest epoch alone; a set that is made anew has smaller ones."""

    def elections(*found: tuple[int, int]) -> list[Election]:
        return [Election(epoch, at_ms, {}, "an election") for epoch, at_ms in found]

    store.write(Changes(table_versions=[("unclean elections of live broker 1", 8)]))
    for found, is_new in (
        (((3, 10), (8, 20)), False),
        (((3, 10), (8, 20)), False),
        (((3, 30),), True),
        (((3, 30),), False),
        (((3, 30), (9, 40)), True),
    ):
        books = loaded(store)
        assert books.add_elections("live", 1, elections(*found)) is is_new
        store.write(take_changes(books))


def test_a_set_that_was_made_anew_beside_books_of_earlier_versions_has_new_elections(
    store: AuditStore,
) -> None:
    store.write(Changes(table_versions=[("unclean elections of live broker 1", 8)]))
    books = loaded(store)
    assert not books.add_elections("live", 1, [])
    assert books.add_elections("live", 1, [Election(3, 30, {}, "an election")])
