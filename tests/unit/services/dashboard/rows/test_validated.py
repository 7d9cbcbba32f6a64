"""What a group says of itself on the page, from its members' metrics."""

from typing import Any

from kafka2011.services.dashboard.rows.validated import COMPLETE, NUMBERS, STATE, validated_groups
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
        found = validated_groups([one])["live/g"]
        assert found["state"] == state
    assert validated_groups([told["behind"]]) == {
        "live/g": {"state": "behind", "number": 7, "complete_to_ms": 12_500}
    }


def test_a_verdict_without_a_number_is_no_balance() -> None:
    """A lost report makes a window unknown, though as many were read as were reported."""
    for state in ("unknown", "not audited", "pending", "complete"):
        found = validated_groups([member("a", 12.5, state, missing=0, unknown=0)])
        assert found["live/g"] == {"state": state, "number": 0, "complete_to_ms": 12_500}


def test_a_member_that_does_not_answer_says_nothing_and_one_speaks_for_the_group() -> None:
    silent, other = member("a", 5.0, behind=3), member("b", 6.0, behind=0)
    silent.health.failures = 2
    assert validated_groups([silent]) == {}
    assert validated_groups([silent, other])["live/g"]["state"] == "complete"
    assert validated_groups([process("broker", "broker-1", "live")]) == {}
