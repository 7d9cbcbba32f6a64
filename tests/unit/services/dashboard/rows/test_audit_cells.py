"""The audit's cells as rows of topic and window."""

import re
from pathlib import Path
from typing import Any

from kafka2011.services import dashboard
from kafka2011.services.dashboard.rows.audit_cells import (
    SHOWN,
    AuditRows,
    cell_rows,
    whole_windows,
)


def cell(window: int, server: str, **states: tuple[str, int]) -> dict[str, Any]:
    """`states`: by tier, its verdict and the number of messages that this is about."""
    return {
        "topic": "page-view",
        "window_start_ms": window,
        "server": server,
        "produced": 10,
        "complete": all(state == "complete" for state, _ in states.values()),
        "tiers": {
            tier: {"state": state, "counted": 10, "expected": 10, state: count}
            for tier, (state, count) in states.items()
        },
    }


def test_a_row_has_the_verdict_of_its_worst_server_and_the_sums_of_all() -> None:
    one = cell(0, "a", live=("complete", 0), offline=("missing", 2))
    other = cell(0, "b", live=("pending", 0), offline=("missing", 1))
    wrong = dict.fromkeys(("missing", "unknown", "behind", "extra", "again"), 0)
    sums = {"counted": 20, "expected": 20, **wrong}
    assert cell_rows([one, other])["page-view|0"]["tiers"] == {
        "live": {**sums, "state": "pending"},
        "offline": {**sums, "state": "missing", "missing": 3},
    }


def test_the_page_gets_all_of_the_audit_that_its_headline_asks_for() -> None:
    """It was green beside what it never got: up to when all is read, and what was deleted."""
    script = Path(dashboard.__file__).with_name("static") / "app.js"
    asked = set(re.findall(r"\baudit\.([a-z_]+)\b(?!\.js)", script.read_text()))
    assert asked - {"js"} - {*SHOWN, "rates", "unheard_since_ms"} == set()
    assert "reports_caught_up" in asked


def test_what_was_missing_and_is_unknown_now_is_no_good_news() -> None:
    """*Nothing missing any more*, in green, beside a table that was taken away."""
    events: list[tuple[str, str]] = []
    rows = AuditRows(1000, lambda _, kind, subject, text: events.append((kind, text)))
    for now_ms, (missing, unknown) in enumerate(((7, 0), (0, 5), (3, 0), (0, 0))):
        live = {"missing": missing, "unknown": unknown, "count": 0, "read_to_ms": 0}
        times = {"now_ms": now_ms, "reports_read_to_ms": 0}
        rows.rows({**times, "produced": 0, "tiers": {"live": live}}, now_ms)
    assert events == [
        ("bad", "7 messages missing in live"),
        ("warn", "nothing missing any more in live, 5 unknown"),
        ("bad", "3 messages missing in live"),
        ("good", "nothing missing any more in live"),
    ]


def test_of_a_list_that_was_cut_the_last_window_goes_since_it_may_not_be_whole() -> None:
    cells = [cell(window, server) for window in (2, 1, 0) for server in "ab"]
    assert whole_windows(cells, 0) == (cells, 0)
    assert whole_windows(cells[:5], 9) == (cells[:4], 10)
    assert whole_windows(cells[:2], 9) == (cells[:2], 9), "there is no other"


def test_old_cells_stay_while_they_are_not_complete() -> None:
    cells = [cell(number, "a", live=("complete", 0)) for number in range(100)]
    cells[3] = cell(3, "a", live=("missing", 1))
    newest = range(40, 100)
    assert list(cell_rows(cells)) == [f"page-view|{number}" for number in (3, *newest)]
