"""The audit's cells as rows of topic and window."""

from typing import Any

from kafka2011.services.dashboard.rows.audit_cells import cell_rows


def cell(window: int, server: str, **states: tuple[str, int]) -> dict[str, Any]:
    tiers = {
        tier: {"state": state, "counted": 10, "expected": 10, state: n}
        for tier, (state, n) in states.items()
    }
    complete = all(state == "complete" for state, _ in states.values())
    return {
        "topic": "page-view",
        "window_start_ms": window,
        "server": server,
        "produced": 10,
        "complete": complete,
        "tiers": tiers,
    }


def test_a_row_has_the_verdict_of_its_worst_server_and_the_sums_of_all() -> None:
    rows = cell_rows(
        [
            cell(0, "a", live=("complete", 0), offline=("missing", 2)),
            cell(0, "b", live=("pending", 0), offline=("missing", 1)),
        ]
    )
    tiers = rows["page-view|0"]["tiers"]
    assert tiers["live"]["state"] == "pending"
    assert tiers["offline"] == {
        "state": "missing", "counted": 20, "expected": 20, "missing": 3, "extra": 0, "again": 0,
    }  # fmt: skip


def test_old_cells_stay_while_they_are_not_complete() -> None:
    cells = [cell(number, "a", live=("complete", 0)) for number in range(100)]
    cells[3] = cell(3, "a", live=("missing", 1))
    assert "page-view|3" in cell_rows(cells)
    assert "page-view|4" not in cell_rows(cells)
    assert "page-view|99" in cell_rows(cells)
