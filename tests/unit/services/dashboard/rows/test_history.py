"""Histories of values, ages of bytes."""

import pytest

from kafka2011.services.dashboard.rows.history import ARRIVALS_MAX, Arrivals, History


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
