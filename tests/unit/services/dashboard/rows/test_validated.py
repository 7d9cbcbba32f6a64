"""What a group says of itself on the page, from its members' metrics."""

from typing import Any

from kafka2011.consumer.counting.verdicts import NUMBERED
from kafka2011.services.dashboard.rows.validated import (
    COMPLETE,
    NUMBERS,
    SINCE,
    STATE,
    WORST_FIRST,
    group_verdicts,
)
from tests.unit.services.dashboard.conftest import process


def member(name: str, complete_s: float | None = None, state: str = "", **numbers: int) -> Any:
    made = process("online-consumer", name, "live")
    made.samples = {
        NUMBERS: [({"group": "g", "verdict": word}, float(n)) for word, n in numbers.items()],
        STATE: [({"group": "g", "verdict": state}, 1.0)] if state else [],
        COMPLETE: [] if complete_s is None else [({"group": "g"}, complete_s)],
    }
    return made


def test_the_worst_verdict_and_the_time_up_to_which_all_is_there() -> None:
    told = {
        "complete": member("a", 12.5, missing=0, behind=0),
        "behind": member("a", 12.5, missing=0, behind=7),
        "missing": member("a", None, missing=2, behind=7),
        "pending": member("a", None, missing=0),
    }
    for state, one in told.items():
        found = group_verdicts([one])["live/g"]
        assert found["state"] == state
    assert group_verdicts([told["behind"]]) == {
        "live/g": {"state": "behind", "number": 7, "complete_to_ms": 12_500, "counted_from_ms": 0}
    }


def test_the_order_of_the_verdicts_is_that_of_the_group() -> None:
    assert WORST_FIRST == NUMBERED


def test_a_verdict_without_a_number_is_no_balance() -> None:
    """A lost report makes a window unknown, though as many were read as were reported."""
    for state in ("unknown", "not audited", "pending", "complete"):
        found = group_verdicts([member("a", 12.5, state, missing=0, unknown=0)])
        row = found["live/g"]
        assert (row["state"], row["number"], row["complete_to_ms"]) == (state, 0, 12_500)


def test_since_when_it_counts_is_there() -> None:
    one = member("a", 12.5, missing=0)
    one.samples[SINCE] = [({"group": "g"}, 3.25)]
    assert group_verdicts([one])["live/g"]["counted_from_ms"] == 3250


def test_a_member_that_does_not_answer_says_nothing_and_one_speaks_for_the_group() -> None:
    silent, other = member("a", 5.0, behind=3), member("b", 6.0, behind=0)
    silent.health.failures = 2
    assert group_verdicts([silent]) == {}
    assert group_verdicts([silent, other])["live/g"]["state"] == "complete"
    assert group_verdicts([process("broker", "broker-1", "live")]) == {}
