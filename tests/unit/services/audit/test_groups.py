"""A group's verdict is what its first member that answers says; the commands show it."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafka2011.cli.audit_table import group_text
from kafka2011.cli.status import validated_text
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.services.audit.groups import (
    MEMBER_KIND,
    member_status,
    validated_groups,
    verdict_text,
)

TOPIC = {"state": "missing", "counted": 90, "expected": 100, "missing": 8, "behind": 2}
MORE = "more than was reported by shop-9"
WINDOWS = [
    {"start_ms": 0, "state": "extra", "number": 2, "reason": MORE},
    {"start_ms": 10_000, "state": "extra", "number": 2, "reason": MORE},
    {"start_ms": 20_000, "state": "pending", "number": 0, "reason": "window open"},
]
STATUS: dict[str, Any] = {
    "group": "online",
    "validated": {
        "state": "missing",
        "complete_to_ms": 1_700_000_000_000,
        "read_to_ms": 1_700_000_020_000,
        "unread": "",
        "topics": {"a": TOPIC, "b": {"state": "complete", "counted": 5, "expected": 5}},
    },
}


def member(address: str, kind: str = MEMBER_KIND) -> ProcessRecord:
    return ProcessRecord("live", f"at {address}", kind, metrics_address=address)


@pytest.mark.parametrize(
    "odd",
    [
        "text",
        [1],
        {"state": "complete"},
        {"topics": [1]},
        {"topics": {"a": 7}},
        STATUS["validated"] | {"topics": {"a": {"counted": 1}}},
        STATUS["validated"] | {"topics": {"a": TOPIC | {"missing": float("inf")}}},
        STATUS["validated"] | {"complete_to_ms": 10**30},
        STATUS["validated"] | {"read_to_ms": "now"},
    ],
)
def test_what_answers_otherwise_than_a_member_costs_no_other_group_its_verdict(odd: Any) -> None:
    answers = {"1": {"group": "odd", "validated": odd}, "2": STATUS}
    [row] = validated_groups(map(member, answers), answers.__getitem__)
    assert row["group"] == "online"


@pytest.mark.parametrize("address", ["a b:3", "x\n:5", "[::1:5", "h:99999", "no port"])
def test_an_address_that_is_none_gives_no_answer(address: str) -> None:
    assert member_status(address) is None


def test_the_first_member_that_answers_speaks_for_its_group() -> None:
    answers = {
        "1": None,
        "2": {"group": "quiet", "validated": None},
        "3": STATUS,
        "4": STATUS | {"validated": None},
    }
    asked = [*map(member, answers), member(""), member("5", "broker")]
    [row] = validated_groups(asked, answers.__getitem__)
    assert (row["group"], row["state"]) == ("online", "missing")
    assert (row["expected"], row["counted"], row["missing"], row["behind"]) == (105, 95, 8, 2)
    assert verdict_text(row) == "missing 8, behind 2"
    by = "by 2023-11-14 22:13:40 UTC"
    numbers = f"; of its topics 95 messages read, 105 reported {by}"
    end = "complete up to 2023-11-14 22:13:20 UTC"
    said = "read by group online: "
    assert group_text(row) == f"{said}missing 8, behind 2, {end}{numbers}"
    away = row | {"unread": "broker 2 is away"}
    assert "missing 8, behind 2 (at its last look: broker 2 is away), complete up to" in group_text(
        away
    )
    complete = row | {"state": "complete", "missing": 0, "behind": 0, "complete_to_ms": None}
    assert group_text(complete) == f"{said}complete{numbers}"
    complete |= {"complete_to_ms": row["complete_to_ms"], "unread": away["unread"]}
    # The reports of other brokers are newer than the last look that could read all.
    numbers = numbers.replace(by, f"so far (all reports were last read at {by[3:]})")
    assert group_text(complete) == f"{said}{end} (at its last look: broker 2 is away){numbers}"


def test_a_group_that_left_something_out_says_from_when_on_it_is_complete() -> None:
    """It said *complete up to*, as if nothing before had been left out."""
    topics = {
        "a": {"state": "complete", "counted": 5, "expected": 5, "counted_from_ms": 0},
        "b": {
            "state": "complete",
            "counted": 5,
            "expected": 5,
            "counted_from_ms": 1_699_999_000_000,
        },
    }
    validated = {**STATUS["validated"], "state": "complete", "topics": topics}
    [row] = validated_groups([member("1")], {"1": {**STATUS, "validated": validated}}.get)
    since = "of what was produced from 2023-11-14 21:56:40 UTC on"
    assert f"complete up to 2023-11-14 22:13:20 UTC {since}; of its topics" in group_text(row)
    assert validated_text(row) == "complete, counted from 2023-11-14 21:56:40 UTC on"
    assert "produced from" not in group_text(row | {"counted_from_ms": 0})
    open_still = row | {"state": "pending", "complete_to_ms": None}
    assert f"online: pending (nothing is judged yet {since}); of its" in group_text(open_still)
    assert validated_text(open_still) == "pending, counted from 2023-11-14 21:56:40 UTC on"
    topics["b"]["state"] = "not audited"
    [row] = validated_groups([member("1")], {"1": {**STATUS, "validated": validated}}.get)
    assert row["counted_from_ms"] == 0, "what is not audited is not judged from any time on"


@pytest.mark.parametrize("body", [json.dumps(STATUS).encode(), b"[1]", b"no JSON"])
def test_a_member_is_asked_on_its_page(body: bytes) -> None:
    page = MetricsServer(
        CollectorRegistry(),
        lambda: True,
        routes={"/status": lambda: (200, "application/json", body)},
    )
    try:
        found = validated_groups([member(page.address)])
    finally:
        page.close()
    assert [row["group"] for row in found] == (["online"] if body.startswith(b"{") else [])
    assert validated_groups([member(page.address)]) == []


def test_why_messages_are_extra_is_said_beside_their_number() -> None:
    """The audit may excuse them: it knows of more restarts than a group does."""
    topics = {"a": {"state": "extra", "counted": 9, "expected": 5, "extra": 4, "windows": WINDOWS}}
    validated = {**STATUS["validated"], "state": "extra", "complete_to_ms": None, "topics": topics}
    [row] = validated_groups([member("1")], {"1": {**STATUS, "validated": validated}}.get)
    said = f"read by group online: extra 4 ({MORE}); of its topics 9 messages read, 5 reported "
    assert group_text(row).startswith(said)
    assert group_text(row | {"read_to_ms": 0}) == f"{said}so far"
    beside = row | {"redelivered": 7}
    assert f"extra 4 ({MORE}), redelivered 7; of its" in group_text(beside)
    some = {"a": topics["a"] | {"pending": 5}}
    status = {**STATUS, "validated": validated | {"topics": some}}
    [early] = validated_groups([member("1")], {"1": status}.get)
    assert f": extra 4 ({MORE}), pending 5; of its" in group_text(early)
    assert validated_text(early) == "extra 4, pending 5", "it has not judged all yet"
    early |= {"state": "complete", "extra": 0, "complete_to_ms": 1_700_000_000_000}
    assert ": complete up to 2023-11-14 22:13:20 UTC, pending 5; of its" in group_text(early)
    assert validated_text(early | {"state": "pending"}) == "pending 5"
    both = row | {"state": "unknown", "extra": 0, "behind": 12, "reasons": {"unknown": ["a gap"]}}
    assert verdict_text(both) == "unknown, behind 12", "how many are unknown is not known either"
    unknown = row | {"state": "unknown", "extra": 0, "reasons": {"unknown": ["a gap"] * 5}}
    assert ": unknown (a gap; a gap; a gap; and 2 more); of its" in group_text(unknown)
