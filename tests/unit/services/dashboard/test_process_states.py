import pytest

from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.dashboard.process_states import (
    FAILURES_DOWN,
    SILENT_MS_MAX,
    STARTING_MS,
    ProcessHealth,
)
from kafka2011.services.dashboard.sampling.sampler import SCRAPE_TIMEOUT_S

LAG = 10_000
OK, FAILED, LATE, NODE_GONE, GOODBYE = "ok", "failed", "late", "node gone", "goodbye"


def seen_up() -> ProcessHealth:
    health = ProcessHealth()
    health.note_node(True)
    health.note_scrape(True)
    assert health.judge(1, None, LAG) == "up"
    return health


@pytest.mark.parametrize(
    ("events", "states"),
    [
        ([FAILED, FAILED, OK], ["slow", "down", "up"]),
        ([FAILED, GOODBYE, FAILED], ["slow", "slow", "stopped"]),
        # A session that expired is no goodbye, however soon after the first failure.
        ([FAILED, NODE_GONE, FAILED], ["slow", "slow", "down"]),
        ([FAILED] * 4 + [NODE_GONE], ["slow", "down", "down", "down", "down"]),
        ([LATE, LATE, OK], ["slow", "silent", "up"]),
        ([LATE, LATE, NODE_GONE, LATE], ["slow", "silent", "down", "down"]),
        ([LATE, LATE, FAILED], ["slow", "silent", "down"]),
        ([LATE] * 31, ["slow"] + ["silent"] * 29 + ["down"]),
    ],
    ids=[
        "it refused",
        "it stopped",
        "it vanished",
        "it vanished late",
        "it was slow",
        "it hung until its session ended",
        "it hung and died",
        "it hung for longer than sessions last",
    ],
)
def test_a_process_that_was_up(events: list[str], states: list[str]) -> None:
    health = seen_up()
    before, since_ms = "up", 1
    for second, (event, state) in enumerate(zip(events, states, strict=True), 1):
        if event in (NODE_GONE, GOODBYE):
            health.note_node(False, said_goodbye=event == GOODBYE)
        else:
            health.note_scrape(event == OK, "connection refused", is_late=event == LATE)
        is_same = state == before or {state, before} == {"up", "slow"}  # both are called up
        since_ms = since_ms if is_same else second * 1000
        before = state
        assert (health.judge(second * 1000, None, LAG), health.since_ms) == (state, since_ms)


@pytest.mark.parametrize("interval_ms", [1000, 6000], ids=["a page is open", "no page is open"])
def test_how_long_there_was_no_answer_is_said(interval_ms: int) -> None:
    """It counted from the first scrape that failed, with no page open half a dozen seconds late."""
    health = ProcessHealth(is_alive_node=True)
    for now_ms in range(0, 61_000, interval_ms):
        is_ok = now_ms < 36_000 or now_ms > 48_000
        health.note_scrape(is_ok, "no answer within 800 ms", is_late=not is_ok)
        health.judge(now_ms, None, LAG)
        if now_ms == 48_000:
            said = f"no answer for {12 + interval_ms // 1000} s"
            assert (health.state, health.reason) == ("silent", said)
    assert health.state == "up"


def test_a_process_that_hangs_just_after_a_scrape_is_silent_within_three_seconds() -> None:
    """As the page says of each fault: the last failure is there at its deadline."""
    sample_s = DashboardConfig(live_zk_connect="none:1").sample_ms / 1000
    assert FAILURES_DOWN * sample_s + SCRAPE_TIMEOUT_S < 3


def test_far_behind_is_lagging() -> None:
    health = seen_up()
    assert health.judge(1000, 10_001, LAG) == "lagging"
    assert health.judge(2000, 9_000, LAG) == "up"


def test_one_scrape_without_an_answer_does_not_hide_that_a_process_lags() -> None:
    """On a busy machine every second scrape fails: minutes behind was drawn as up and lagging in
    turn, and never lasted long enough to become an event."""
    health = seen_up()
    assert health.judge(1000, 60_000, LAG) == "lagging"
    for now_ms in range(2000, 12_000, 2000):
        health.note_scrape(False, "no answer", is_late=True)
        assert health.judge(now_ms, 60_000, LAG) == "lagging"
        health.note_scrape(True)
        assert health.judge(now_ms + 1000, 60_000, LAG) == "lagging"
    assert health.since_ms == 1000
    health.note_scrape(False, "no answer", is_late=True)
    assert health.judge(13_000, 5_000, LAG) == "slow"


@pytest.mark.parametrize(
    ("node", "starting_ms", "then"),
    [
        ({"said_goodbye": True}, STARTING_MS, "stopped"),  # of the run before
        ({"is_on_record": False}, SILENT_MS_MAX, "down"),  # a ZooKeeper has no record
    ],
)
def test_while_everything_may_be_starting_what_was_not_seen_yet_is_neither_stopped_nor_down(
    node: dict[str, bool], starting_ms: int, then: str
) -> None:
    health = ProcessHealth()
    health.note_node(False, **node)
    for _ in range(FAILURES_DOWN):
        health.note_scrape(False, "not registered")
    assert health.judge(5, None, LAG) == "starting"
    assert health.judge(4 + starting_ms, None, LAG) == "starting"
    assert health.judge(5 + starting_ms, None, LAG) == then


def test_a_zookeeper_that_had_answered_is_down_at_once() -> None:
    health = ProcessHealth()
    health.note_node(False, is_on_record=False)
    health.note_scrape(True)
    assert health.judge(4, None, LAG) == "up"
    for _ in range(FAILURES_DOWN):
        health.note_scrape(False, "it does not serve")
    assert health.judge(5, None, LAG) == "down"


def test_a_process_that_was_never_seen_is_starting() -> None:
    assert ProcessHealth().judge(5, None, LAG) == "starting"
