"""Replica sets as rows: the state in words, roles, how far behind; and their logs counted once."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kafka2011.coordination.paths import BrokerAddress
from kafka2011.coordination.replica_sets import decode_view
from kafka2011.services.dashboard.rows.replica_sets import set_rows
from kafka2011.services.dashboard.rows.sections import SectionRows
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedCluster,
    ObservedProcess,
    Row,
)
from tests.unit.services.dashboard.conftest import observations, process

STATE = {
    "version": 1,
    "epoch": 7,
    "leader": "A",
    "isr": ["A", "B", "C"],
    "eligible": [],
    "min_insync": 2,
    "members": [{"name": name, "directory": name.upper()} for name in "abc"],
}


def replica(member: str, end: int, start: int = 0) -> ObservedProcess:
    """The process of a member of broker 1, with the log of x-0."""
    place = {"topic": "x", "partition": "0"}
    return process(
        "broker",
        f"broker-1-{member}",
        kafka2011_broker_log_start=[(place, float(start))],
        kafka2011_broker_log_end=[(place, float(end))],
        kafka2011_broker_messages_in_total=[({"topic": "x"}, end / 10)],
    )


def seen(
    *replicas: ObservedProcess,
    live: str = "ABC",
    joining: str = "",
    leads: str = "a",
    now_ms: int = 0,
    **changes: Any,
) -> Observations:
    value = json.dumps(STATE | changes).encode()
    view = decode_view(1, value, frozenset(live), frozenset(joining))
    cluster = ObservedCluster(
        "live",
        "zk",
        is_answering=True,
        brokers={1: BrokerAddress(f"broker-1-{leads}", 1)},
        sets={1: view},
        topics=("x",),
        partitions={"x": {1: 1}},
    )
    return observations(*replicas, now_ms=now_ms, clusters={"live": cluster})


def row_of(observed: Observations) -> Row:
    [(key, row)] = set_rows(observed).items()
    assert key == "live/1"
    return row


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        ({}, "in sync", "all 3 replicas of broker 1 are in sync"),
        ({"live": "AB"}, "under-replicated", "broker 1 is under-replicated: c away, in sync"),
        ({"isr": ["A", "B"]}, "under-replicated", "broker 1 is under-replicated: c behind"),
        ({"isr": ["A"], "live": "A"}, "nothing confirmed",
         "broker 1 is under-replicated: b away, c away; 1 of min_insync 2: nothing is confirmed"),
        ({"live": "BC"}, "no leader", "broker 1 has no leader: a down"),
        ({"leader": None, "isr": ["A"], "live": "B", "joining": "a"}, "no leader",
         "broker 1 has no leader: a joining with another directory"),
    ],
)  # fmt: skip
def test_the_worst_is_said_of_a_set(changes: dict[str, Any], state: str, text: str) -> None:
    row = row_of(seen(**changes))
    assert (row["state"], row["text"]) == (state, text)


def test_members_have_roles_and_are_behind_by_what_the_leader_still_has() -> None:
    leader, follower, joining = replica("a", 1000, 300), replica("b", 900), replica("c", 0)
    observed = seen(leader, follower, joining, live="AB", joining="c", isr=["A", "B"])
    row = row_of(observed)
    assert (row["leader"], row["epoch"], row["min_insync"]) == ("broker-1-a", 7, 2)
    assert [
        (one["process"], one["role"], one["is_in_sync"], one["behind_bytes"])
        for one in row["members"]
    ] == [
        ("broker-1-a", "leader", True, None),
        ("broker-1-b", "follower", True, 100),
        ("broker-1-c", "joining", False, 700),
    ]


def test_how_far_behind_is_not_known_of_one_that_does_not_answer() -> None:
    leader, silent = replica("a", 1000), replica("b", 900)
    silent.health.note_scrape(False, "no answer in time")
    row = row_of(seen(leader, silent, live="A"))
    assert [(one["role"], one["behind_bytes"], one["process"]) for one in row["members"]] == [
        ("leader", None, "broker-1-a"),
        ("away", None, "broker-1-b"),
        ("away", None, ""),
    ]
    leader.health.note_scrape(False, "no answer in time")
    assert row_of(seen(leader, replica("b", 900)))["members"][1]["behind_bytes"] is None


def test_the_last_state_of_a_zookeeper_that_does_not_answer_is_marked_as_old() -> None:
    observed = seen()
    assert not row_of(observed)["is_old"]
    clusters = {"live": replace(observed.clusters["live"], is_answering=False)}
    assert row_of(observations(clusters=clusters))["is_old"]


def test_logs_of_a_set_are_counted_once_and_are_the_leaders_before_and_after_a_takeover() -> None:
    rows = SectionRows(60_000, 10_000)
    one, other = replica("a", 1000), replica("b", 900)
    sections = rows.sections(seen(one, other))
    assert {key: row["broker"] for key, row in sections["partitions"].items()} == {
        "live/x/1-0": "broker-1-a"
    }
    assert sections["topics"]["live/x"]["size"] == 1000
    grown = [replica("a", 2000), replica("b", 2000)]
    sections = rows.sections(seen(*grown, now_ms=1000))
    assert sections["topics"]["live/x"]["messages_s"] == 100, "not for every copy"
    sections = rows.sections(seen(*grown, leads="b", leader="B", epoch=8, now_ms=2000))
    assert [row["broker"] for row in sections["partitions"].values()] == ["broker-1-b"]
    assert sections["processes"]["live/broker-1-a"]["broker_id"] is None
    sections = rows.sections(observations(*grown, now_ms=3000, clusters={}))
    assert sections["sets"] == {}


def test_consumers_read_from_leaders_alone() -> None:
    rows = SectionRows(60_000, 10_000)
    consumer = process("online-consumer", "online-1")
    sections = rows.sections(seen(replica("a", 1), replica("b", 1), replica("c", 1), consumer))
    assert set(sections["edges"]) == {"live/broker-1-a>live/online-1"}


def test_a_set_that_changes_its_state_is_an_event() -> None:
    rows = SectionRows(60_000, 10_000)
    assert rows.sections(seen())["events"] == {}
    rows.sections(seen(live="AB"))
    rows.sections(seen(live="AB", isr=["A", "B"]))
    events = rows.sections(seen())["events"].values()
    assert [(event["kind"], event["text"]) for event in events] == [
        ("warn", "broker 1 is under-replicated: c away, in sync"),
        ("good", "all 3 replicas of broker 1 are in sync"),
    ]
