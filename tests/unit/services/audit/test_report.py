"""The exit status follows from the sums of missing and extra messages."""

import pytest

from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.report import JudgedCell, JudgedTier, report_json
from kafka2011.services.audit.verdicts import Verdict


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([], 0),
        ([Verdict("complete")], 0),
        ([Verdict("pending")], 0),
        ([Verdict("redelivered", redelivered=3)], 0),
        ([Verdict("complete"), Verdict("missing", missing=1)], 1),
        ([Verdict("extra", extra=1)], 1),
        ([Verdict("missing", missing=1, redelivered=1)], 1),
    ],
)
def test_exit_status_is_1_when_anything_is_missing_or_extra(
    verdicts: list[Verdict], status: int
) -> None:
    cells = [
        JudgedCell(CellKey("t", number, "w"), 0, (JudgedTier(0, 0, verdict),))
        for number, verdict in enumerate(verdicts)
    ]
    found = report_json(cells, ("live",), source="disk", window_ms=1, now_ms=0)
    assert found["exit_status"] == status
