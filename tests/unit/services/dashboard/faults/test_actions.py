"""Requests for faults: only known actions, with details that a proxy takes."""

import pytest

from kafka2011.services.dashboard.faults.actions import FaultRefused, parse_action, proxy_faults


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
