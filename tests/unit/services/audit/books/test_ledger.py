"""What is folded, when, and that nothing changes its verdict by it."""

import itertools

import pytest

from kafka2011.events.windows import WindowCount
from kafka2011.services.audit.books.ledger import OTHER_TOPICS, CellKey, FoldLimits, Ledger
from tests.unit.services.audit.samples import totals_of

WINDOW = 1000
SEQUENCES = itertools.count()


def fill(
    ledger: Ledger, windows: range, *, reported: int, counted: int, topic: str = "page-view"
) -> None:
    """Numbers of the live tier, the same in each window."""
    counts = [WindowCount(topic, n * WINDOW, reported, 1) for n in windows]
    ledger.add_report(
        "live", server="w", instance="i", sequence=next(SEQUENCES), counts=counts, now_ms=1
    )
    ledger.add_counts("live", topic, {(n * WINDOW, "w"): counted for n in windows})


def crowded() -> Ledger:
    return Ledger(("live",), WINDOW, cells_max=100)


def open_windows(ledger: Ledger) -> list[int]:
    return sorted(key.window_start_ms // WINDOW for key in ledger.cells)


def test_windows_that_balance_are_folded_and_others_stay() -> None:
    ledger = Ledger(("live", "offline", "warehouse"), WINDOW)
    fill(ledger, range(2), reported=3, counted=3)
    for tier in ("offline", "warehouse"):
        ledger.add_counts(tier, "page-view", {(0, "w"): 3, (1000, "w"): 3 - (tier == "offline")})
    before = totals_of(ledger)
    assert ledger.fold(5000) == 1
    assert list(ledger.cells) == [CellKey("page-view", 1000, "w")]
    assert totals_of(ledger) == before
    assert ledger.folded["offline", "page-view"].missing == 0


def test_a_late_pair_for_a_folded_window_balances_by_itself() -> None:
    ledger = Ledger(("live",), WINDOW)
    fill(ledger, range(1), reported=3, counted=3)
    ledger.fold(5000)
    fill(ledger, range(1), reported=1, counted=1)
    cell = ledger.cells[CellKey("page-view", 0, "w")]
    assert (cell.expected, cell.counted) == ([1], [1])
    assert totals_of(ledger).counted == [4]


def test_a_topic_exempt_from_a_tier_folds_without_it() -> None:
    ledger = Ledger(("live", "offline"), WINDOW, exempt={("offline", "debug")})
    fill(ledger, range(1), reported=3, counted=3, topic="debug")
    assert ledger.fold(5000) == 1
    assert ledger.folded["offline", "debug"].missing == 0


def test_the_number_of_cells_is_bounded_and_what_is_folded_keeps_its_fault() -> None:
    ledger = crowded()
    for number in range(1000):
        ledger.add_counts("live", "page-view", {(number * WINDOW, "w"): 1})
        assert len(ledger.cells) <= 200
    assert totals_of(ledger).counted == [1000]
    assert ledger.folded["live", "page-view"].extra == 1000 - len(ledger.cells)


def test_topics_that_only_reports_name_are_in_one_sum_beyond_all_that_have_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client may report as many topics as it invents. Of one that a tier has it stays known
    whether it was reported: what is not is no surplus of the others."""
    monkeypatch.setattr("kafka2011.services.audit.books.ledger.FOLDED_MAX", 3)
    ledger = Ledger(("live",), WINDOW, cells_max=5)
    for number in range(10):
        fill(ledger, range(2), reported=3, counted=0, topic=f"invented{number}")
    fill(ledger, range(20), reported=0, counted=1, topic="json")
    fill(ledger, range(30, 31), reported=2, counted=2, topic="late")
    ledger.fold(31 * WINDOW)
    others = ledger.folded["live", OTHER_TOPICS]
    assert others.missing == others.produced > 0
    assert others.extra == others.counted == 0
    assert ledger.folded["live", "json"].counted > 0
    assert ledger.folded["live", "late"].produced == 2
    assert len(ledger.folded) == 3 + len({OTHER_TOPICS, "json", "late"})
    assert totals_of(ledger).produced == [62]
    assert totals_of(ledger).counted == [22]


def test_room_is_made_from_what_balances_before_what_does_not() -> None:
    ledger = crowded()
    fill(ledger, range(50), reported=2, counted=1)
    fill(ledger, range(50, 90), reported=1, counted=1)
    fill(ledger, range(90, 120), reported=1, counted=0)
    assert len(ledger.cells) == 120
    ledger.make_room(FoldLimits(settled_ms=70 * WINDOW))
    assert open_windows(ledger) == [*range(50), *range(80, 120)]
    assert ledger.folded["live", "page-view"].missing == 0


def test_no_window_is_folded_for_room_before_it_is_judged() -> None:
    ledger = crowded()
    fill(ledger, range(150), reported=2, counted=1)
    ledger.make_room(FoldLimits(settled_ms=9 * WINDOW))
    assert open_windows(ledger) == list(range(10, 150))
    assert ledger.folded["live", "page-view"].missing == 10
    # But memory is bounded: above twice as many the oldest go.
    fill(ledger, range(150, 211), reported=2, counted=1)
    assert len(ledger.cells) <= 200
    assert open_windows(ledger)[-1] == 210


@pytest.mark.parametrize("excused_windows", [30, 60])
def test_what_a_restart_excuses_stays_excused_when_it_is_folded(excused_windows: int) -> None:
    ledger = crowded()
    fill(ledger, range(150), reported=1, counted=3)
    ledger.add_counts("live", "page-view", {(-1, "unreadable-header"): 5})
    excused_ms = (excused_windows - 1) * WINDOW
    ledger.make_room(FoldLimits(settled_ms=200 * WINDOW, excused_ms=excused_ms))
    folded = ledger.folded["live", "page-view"]
    assert len(ledger.cells) == 90
    assert folded.redelivered == excused_windows * 2
    assert folded.extra == (60 - excused_windows) * 2 + 5


def test_a_long_history_is_counted_whole_in_whatever_order_its_partitions_are_read() -> None:
    ledger = Ledger(("live",), WINDOW)
    count = 20_000
    partitions = [range(start, count, 4) for start in (2, 0, 3, 1)]
    for number in itertools.chain(*partitions):
        counts = [WindowCount("page-view", 0, 1, 1)]
        assert ledger.add_report(
            "live", server="w", instance="i", sequence=number, counts=counts, now_ms=1
        )
    ledger.add_counts("live", "page-view", {(0, "w"): count})
    cell = ledger.cells[CellKey("page-view", 0, "w")]
    assert (cell.expected, cell.counted) == ([count], [count])
    assert list(ledger.report_gaps(10**12)) == []
