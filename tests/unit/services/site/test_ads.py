"""Ads: charged once, by the hour, paced against the budget."""

import json

import pytest

from kafka2011.events.topics import CLICK, IMPRESSION
from kafka2011.services.site.ads import HOUR_MS, Ads, verdict
from tests.unit.services.site.events import NOW_MS, event

HOUR_BEGAN_MS = NOW_MS // HOUR_MS * HOUR_MS
START_MS = HOUR_BEGAN_MS + 600_000
BUDGET = 3_600_000  # a micro a millisecond


def ad(time_ms: int, price: int, campaign: str | None = "c") -> dict:
    return event(time_ms, campaign=campaign, price_micros=price)


def spent_evenly(use: Ads, micros_a_second: int, seconds: int) -> int:
    """Spend so much in each second; returns the time."""
    for second in range(seconds):
        time_ms = START_MS + 1_000 * second
        use.take(CLICK, ad(time_ms, micros_a_second), time_ms)
    return START_MS + 1_000 * seconds


@pytest.mark.parametrize(
    ("rate", "wanted", "serve"),
    [(1_000, "on pace", 1.0), (4_000, "ahead", 0.25), (300, "behind", 1)],
)
def test_the_pace_is_known_within_seconds(rate: int, wanted: str, serve: float) -> None:
    use = Ads({"c": BUDGET})
    now_ms = spent_evenly(use, rate, 8)
    [row] = use.shown(now_ms)["campaigns"]
    assert (row["verdict"], row["spent"], row["clicks"]) == (wanted, 8 * rate, 8)
    assert row["pace"] == pytest.approx(rate / 1_000)
    assert row["serve"] == pytest.approx(serve, abs=0.01)


def test_no_pace_is_given_of_a_minute_that_is_not_read_to_its_end() -> None:
    """It was the spend of what was read, called *behind* while the budget was passed."""
    use = Ads({"c": BUDGET})
    now_ms = spent_evenly(use, 1_000, 8)
    use.is_late = True
    [row] = use.shown(now_ms)["campaigns"]
    assert (row["verdict"], row["pace"], row["serve"]) == ("not known", None, None)
    [result] = use.results(now_ms)
    assert (result.fields["spent_micros"], result.fields["serve"]) == (8_000, None)
    assert verdict(5, 5, None, is_late=True) == "spent"


def test_a_pace_is_of_the_last_minute() -> None:
    use = Ads({"c": BUDGET})
    spent_evenly(use, 10_000, 8)
    assert use.shown(START_MS + 120_000)["campaigns"][0]["pace"] == 0


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((5, 0, None), "no budget"),
        ((5, 5, 0.1), "spent"),
        ((1, 5, None), "starting"),
        ((1, 5, 1.05), "on pace"),
    ],
)
def test_verdicts(given, wanted) -> None:
    assert verdict(*given) == wanted


def test_an_event_that_is_sent_again_is_charged_once() -> None:
    use = Ads({"c": BUDGET})
    clicked = ad(START_MS, 100)
    use.take(CLICK, clicked, START_MS)
    restored = Ads({"c": BUDGET})
    restored.restore(json.loads(json.dumps(use.state())))
    for each in (use, restored):
        each.take(CLICK, clicked, START_MS)
        shown = each.shown(START_MS)
        assert (shown["campaigns"][0]["spent"], shown["repeated"]) == (100, 1)


def test_what_is_no_advertisement_costs_nothing() -> None:
    use = Ads({})
    use.take(IMPRESSION, ad(START_MS, 0, campaign=None), START_MS)
    assert use.shown(START_MS)["campaigns"] == []


def test_an_hour_begins_anew_and_a_late_event_counts_in_its_own() -> None:
    use = Ads({"c": BUDGET})
    next_hour = HOUR_BEGAN_MS + HOUR_MS
    use.take(IMPRESSION, ad(next_hour - 1, 7), next_hour - 1)
    use.take(IMPRESSION, ad(next_hour, 1), next_hour)
    use.take(IMPRESSION, ad(next_hour - 2, 2), next_hour + 5)
    assert use.shown(next_hour + 5)["campaigns"][0]["spent"] == 1
    assert use.shown(next_hour - 1)["campaigns"][0]["spent"] == 9
