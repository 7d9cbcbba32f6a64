"""Rates of counters, messages a second by the audit."""

from typing import Any

from kafka2011.services.rates import MessageRates, Rates


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


def test_a_counter_that_is_read_more_rarely_than_the_window_has_its_mean_rate() -> None:
    """Noted with each sample of the others, at the time at which it was read."""
    rates = Rates()
    found = []
    for read_s in (10, 10, 40, 40, 40, 70):
        found.append(rates.note("k", read_s * 100.0, read_s * 1000))
        assert len(rates._seen["k"]) <= 2
        rates.forget(read_s * 1000 + 29_000)
    assert found == [None, None, 100, 100, 100, 100]


def test_after_the_clock_went_back_rates_begin_anew() -> None:
    rates = Rates()
    found = [rates.note("k", count, at_ms) for count, at_ms in ((5, 9000), (6, 1000), (9, 2000))]
    assert found == [None, None, 3]


def summary(
    now_s: int, produced: int, live: int, *, read_to_s: int | None = None
) -> dict[str, Any]:
    read_to_ms = 1000 * (now_s if read_to_s is None else read_to_s)
    tiers = {"live": {"count": live, "read_to_ms": read_to_ms}}
    times = {"now_ms": now_s * 1000, "reports_read_to_ms": read_to_ms}
    return {**times, "produced": produced, "tiers": tiers}


def test_what_an_earlier_run_has_counted_is_no_rate() -> None:
    """740,214 messages of before were 250,761 a second when the audit answered first."""
    rates = MessageRates()
    assert rates.note(summary(10, 740_214, 740_000)) == {"produced": None, "live": None}
    assert rates.note(summary(11, 742_214, 743_000)) == {"produced": 2000, "live": 3000}


def test_what_the_audit_makes_up_for_is_no_rate_of_that_moment() -> None:
    """2,000 a second were 57,774 when an audit that had hung for 33 s went on."""
    rates = MessageRates(3_000)
    for second in range(5):
        rates.note(summary(second, 2000 * second, 2000 * second))
    for second, counted in ((37, 10_000), (38, 40_000), (39, 60_000)):
        found = rates.note(summary(second, counted, counted, read_to_s=4))
        assert found == {"produced": None, "live": None}
    for second in range(40, 50):
        found = rates.note(summary(second, 2000 * second, 2000 * second))
        assert found == {"produced": 2000, "live": 2000}, second
