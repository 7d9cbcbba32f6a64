"""Requests for faults: only known actions, with details that a proxy takes."""

import re
from typing import Any

import pytest

from kafka2011.events.topics import TOPICS
from kafka2011.services.dashboard.faults.actions import (
    FaultRefused,
    check_expendable,
    parse_action,
    proxy_faults,
)
from kafka2011.services.frontend.synthetic import KEYED_TOPICS
from tests import ROOT


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"[" * 60_000, b'{"action": "rm", "name": "a"}', b'{"action": "kill", "name": 1}'],
)
def test_unknown_requests_are_refused(body: bytes) -> None:
    with pytest.raises(FaultRefused):
        parse_action(body)


def test_known_requests_are_parsed() -> None:
    assert parse_action(b'{"action": "kill", "name": "a"}')[:2] == ("kill", "a")
    body = {"faults": {"drop_messages": {"topic": "x", "count": 3}}}
    assert proxy_faults("drop", {"topic": "x", "count": 3}) == body


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        ("services/dashboard/static/views/break.js", r"const DROPPED = \[\"([\w-]+)\""),
        ("docs/exercises/loss-drill.md", r'"drop_messages": {"topic": "([\w-]+)"'),
    ],
)
def test_the_drill_drops_of_a_topic_that_goes_through_the_balancer(path: str, topic: str) -> None:
    """Events with a key go straight to their broker: of these a proxy before all drops none."""
    [found] = re.findall(topic, (ROOT / path).read_text(encoding="utf-8"))
    assert found in set(TOPICS) - set(KEYED_TOPICS)


SET = {
    "leader": "broker-1-a",
    "state": "in sync",
    "is_old": False,
    "text": "said of it",
    "members": [{}, {}],
}


def test_the_disk_of_a_leader_is_lost_while_all_have_what_is_on_it() -> None:
    check_expendable([SET | {"leader": None}, SET], "broker-1-a")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("broker-1-b", {}, "does not lead a replica set"),
        ("broker-1-a", {"state": "under-replicated"}, "not now: said of it"),
        ("broker-1-a", {"is_old": True}, "not now: ZooKeeper does not answer"),
        ("broker-1-a", {"members": [{}]}, "the only copy"),
    ],
)
def test_no_other_disk_is_lost(name: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(FaultRefused, match=reason):
        check_expendable([SET | changes], name)
