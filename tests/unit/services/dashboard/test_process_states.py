"""States of processes, rates, histories."""

import pytest

from kafka2011.services.dashboard.process_states import ProcessHealth
from kafka2011.services.dashboard.rows.rates import History, Rates, behind_ms

LAG = 10_000


def seen_up() -> ProcessHealth:
    health = ProcessHealth()
    health.note_node(True, 0)
    health.note_scrape(True, 0)
    assert health.judge(0, None, LAG) == "up"
    return health


def test_two_failures_in_a_row_are_down_and_one_is_not() -> None:
    health = seen_up()
    health.note_scrape(False, 1000, "connection refused")
    assert health.judge(1000, None, LAG) == "slow"
    health.note_scrape(False, 2000, "connection refused")
    assert health.judge(2000, None, LAG) == "down"
    assert health.since_ms == 2000
    health.note_scrape(True, 3000)
    assert health.judge(3000, None, LAG) == "up"


def test_node_taken_away_at_once_is_a_clean_stop() -> None:
    health = seen_up()
    health.note_scrape(False, 1000)
    health.note_node(False, 1500)
    health.note_scrape(False, 2000)
    assert health.judge(2000, None, LAG) == "stopped"


def test_node_that_expires_later_was_a_kill() -> None:
    health = seen_up()
    for at in (1000, 2000, 3000, 4000):
        health.note_scrape(False, at)
    health.note_node(False, 6500)
    assert health.judge(7000, None, LAG) == "down"


def test_far_behind_is_lagging() -> None:
    health = seen_up()
    assert health.judge(1000, 10_001, LAG) == "lagging"
    assert health.judge(2000, 9_000, LAG) == "up"


def test_never_seen_is_starting_then_stopped() -> None:
    health = ProcessHealth()
    assert health.judge(5, None, LAG) == "starting"


def test_rate_over_the_window_and_a_counter_that_began_anew() -> None:
    rates = Rates(window_ms=2000)
    assert rates.note("a", 100, 0) == 0
    assert rates.note("a", 200, 1000) == 100
    assert rates.note("a", 400, 2000) == 150
    assert rates.note("a", 400, 4000) == 0
    assert rates.note("a", 5, 5000) == 0
    assert rates.note("a", 15, 6000) == 10


def test_rates_are_forgotten() -> None:
    rates = Rates(window_ms=1000)
    rates.note("a", 1, 0)
    rates.forget(10_000)
    assert rates._seen == {}


def test_history_is_thinned_and_bounded() -> None:
    history = History(keep_ms=10_000, step_ms=1000)
    for at in range(0, 30_000, 100):
        history.note(at, {"x": float(at)})
    assert len(history.rows()) == 11
    assert min(map(int, history.rows())) == 19_000


@pytest.mark.parametrize(
    ("lag", "rate", "expected"), [(0, 0, 0.0), (500, 100, 5000.0), (500, 0, None)]
)
def test_behind(lag: float, rate: float, expected: float | None) -> None:
    assert behind_ms(lag, rate) == expected
