"""States of processes."""

import pytest

from kafka2011.services.dashboard.process_states import ProcessHealth

LAG = 10_000
OK, FAILED, NODE_GONE, GOODBYE = "ok", "failed", "node gone", "goodbye"


def seen_up() -> ProcessHealth:
    health = ProcessHealth()
    health.note_node(True)
    health.note_scrape(True)
    assert health.judge(0, None, LAG) == "up"
    return health


@pytest.mark.parametrize(
    "events",
    [
        [(1000, FAILED, "slow"), (2000, FAILED, "down"), (3000, OK, "up")],
        [(1000, FAILED, "slow"), (1500, GOODBYE, "slow"), (2000, FAILED, "stopped")],
        # A session that expired is no goodbye, however soon after the first failure.
        [(1000, FAILED, "slow"), (1500, NODE_GONE, "slow"), (2000, FAILED, "down")],
        [(1000, FAILED, "slow"), *[(at, FAILED, "down") for at in (2000, 3000, 4000)],
         (6500, NODE_GONE, "down")],
    ],
)  # fmt: skip
def test_a_process_that_was_up(events: list[tuple[int, str, str]]) -> None:
    health = seen_up()
    before, since_ms = "up", 0
    for at_ms, event, state in events:
        if event in (NODE_GONE, GOODBYE):
            health.note_node(False, said_goodbye=event == GOODBYE)
        else:
            health.note_scrape(event == OK, "connection refused")
        since_ms = since_ms if state == before else at_ms
        before = state
        assert health.judge(at_ms, None, LAG) == state
        assert health.since_ms == since_ms


def test_far_behind_is_lagging() -> None:
    health = seen_up()
    assert health.judge(1000, 10_001, LAG) == "lagging"
    assert health.judge(2000, 9_000, LAG) == "up"


def test_a_process_that_was_never_seen_is_starting() -> None:
    assert ProcessHealth().judge(5, None, LAG) == "starting"
