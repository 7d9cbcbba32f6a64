"""Rates of counters, histories of values."""

import pytest

from kafka2011.services.dashboard.rows.rates import ARRIVALS_MAX, Arrivals, History, Rates


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
    rates.forget(20_000)
    assert rates._seen == {}
    assert rates.rate("a") is None


def test_history_is_thinned_and_bounded() -> None:
    history = History(keep_ms=10_000, step_ms=1000)
    for at in range(0, 30_000, 100):
        history.note(at, {"x": float(at)})
    assert len(history.rows()) == 11
    assert min(map(int, history.rows())) == 19_000


@pytest.mark.parametrize(
    ("lag", "age"),
    [
        (None, None),
        (0, 0.0),
        (50, 17_000.0),  # came in the last second in which any came
        (150, 18_000.0),
        (1000, 19_000.0),  # what came first of all that was seen
        (2000, 40_000.0),  # as much again, as if at the same rate
    ],
)
def test_what_is_not_read_is_as_old_as_its_first_byte_whatever_came_since(
    lag: float | None, age: float | None
) -> None:
    """A rate of this moment says nothing of then: all may wait for a broker that hangs."""
    arrivals = Arrivals()
    for at_ms, counter in ((0, 5000), (1000, 5800), (2000, 5900), (3000, 6000), (20_000, 6000)):
        arrivals.note({"broker-1": counter}, at_ms)
    assert arrivals.age_ms(lag, 20_000) == age


def test_a_broker_that_began_again_brings_what_it_has_since() -> None:
    arrivals = Arrivals()
    assert arrivals.age_ms(100, 0) is None
    arrivals.note({"a": 1000, "b": 10}, 0)
    assert arrivals.age_ms(100, 0) is None, "of what was there at the first look nothing is known"
    arrivals.note({"a": 300, "b": 10, "c": 7000}, 1000)
    arrivals.note({"a": 400, "b": 10, "c": 7000}, 5000)
    assert [arrivals.age_ms(lag, 5000) for lag in (100, 101, 400)] == [0.0, 4000.0, 4000.0]


def test_times_of_arrivals_are_bounded() -> None:
    arrivals = Arrivals()
    for number in range(10 * ARRIVALS_MAX):
        arrivals.note({"a": number}, number)
    assert len(arrivals._came) <= ARRIVALS_MAX
    assert arrivals.age_ms(1, 10 * ARRIVALS_MAX) == 1.0


def test_a_counter_that_is_read_more_rarely_than_the_window_has_its_mean_rate() -> None:
    """Noted with each sample of the others, at the time at which it was read."""
    rates = Rates()
    found = []
    for read_s in (10, 10, 40, 40, 40, 70):
        found.append(rates.note("k", read_s * 100.0, read_s * 1000))
        assert len(rates._seen["k"]) <= 2
        rates.forget(read_s * 1000 + 29_000)
    assert found == [None, None, 100, 100, 100, 100]
