"""Requests for faults: only known actions, with details that a proxy takes."""

from typing import Any

import pytest

from kafka2011.services.dashboard.faults.actions import (
    FaultRefused,
    check_expendable,
    parse_action,
    proxy_faults,
)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"action": "rm", "name": "a"}', b'{"action": "kill", "name": 1}']
)
def test_unknown_requests_are_refused(body: bytes) -> None:
    with pytest.raises(FaultRefused):
        parse_action(body)


def test_known_requests_are_parsed() -> None:
    assert parse_action(b'{"action": "kill", "name": "a"}')[:2] == ("kill", "a")
    body = {"faults": {"drop_messages": {"topic": "x", "count": 3}}}
    assert proxy_faults("drop", {"topic": "x", "count": 3}) == body


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
