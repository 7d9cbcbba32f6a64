"""Rates of counters, histories of values."""

import pytest

from kafka2011.services.dashboard.rows.rates import History, Rates, behind_ms


def test_rate_over_the_window_and_a_counter_that_began_anew() -> None:
    rates = Rates(window_ms=2000)
    assert rates.note("a", 100, 0) is None
    assert rates.note("a", 200, 1000) == 100
    assert rates.note("a", 400, 2000) == 150
    assert rates.note("a", 400, 4000) == 0
    assert rates.note("a", 5, 5000) is None
    assert rates.note("a", 15, 6000) == 10


def test_rates_are_forgotten() -> None:
    rates = Rates(window_ms=1000)
    rates.note("a", 1, 0)
    rates.forget(10_000)
    assert rates._seen == {}
    assert rates.rate("a") is None


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
