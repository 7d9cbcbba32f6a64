"""The age of what becomes visible, and the rows of the page Site."""

import json
from typing import Any

import pytest

from kafka2011.services.dashboard.rows.site import AGES_MS, HISTORY_MS, SiteRows, new_ages, quantile


def ages(bins: dict[int, int], older: dict[int, int] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps({"bins": bins, "older": older or {}}))
    return {"bin_ms": 100, **found}


def answer(
    bins: dict[int, int], older: dict[int, int] | None = None, events: int = 0
) -> dict[str, Any]:
    found = {
        "at_ms": 1,
        "events": events,
        "missed_bytes": 0,
        "begun_anew": 0,
        "shown": {"views": events},
    }
    return {"uses": {"trending": {**found, "ages": ages(bins, older)}}}


@pytest.mark.parametrize(
    ("before", "now", "wanted"),
    [
        (None, ages({10: 5}), []),
        (ages({10: 5}), ages({10: 5}), []),
        (ages({10: 5}), ages({10: 7, 12: 1}), [(950, 2), (750, 1)]),
        # Without an event of this moment they were 0 ms old, and else 20 s at most.
        (ages({10: 5}), ages({}, {76_000: 4}), [(76_000, 4)]),
        (ages({10: 5}, {76_000: 1}), ages({12: 1}, {76_000: 4}), [(750, 1), (76_000, 3)]),
        # It was started again, which these show.
        (ages({10: 5}), ages({10: 2, 11: 1}), []),
        (ages({}, {76_000: 5}), ages({11: 1}, {76_000: 4}), []),
        (ages({}, {76_000: 5}), ages({11: 1}, {30_000: 4}), []),
    ],
)
def test_the_age_is_of_what_is_more_than_before(before, now, wanted) -> None:
    assert new_ages(before, now, 2_000) == wanted


@pytest.mark.parametrize(
    ("part", "wanted"), [(0.5, 10), (0.98, 10), (0.99, 10), (0.991, 900), (1, 900)]
)
def test_quantiles(part: float, wanted: int) -> None:
    assert quantile([(900, 1), (10, 99)], part) == wanted
    assert quantile([], part) is None


def test_rows_are_the_last_answers_and_the_latency_of_the_last_minute() -> None:
    rows = SiteRows()
    rows.sections([answer({10: 1})], 1_100)
    sections = rows.sections([answer({10: 1, 20: 9}, events=10)], 3_000)
    assert sections["site"]["trending"]["views"] == 10
    latency = {"p50_ms": 950, "p99_ms": 950, "shown": 9, "is_after_pause": False}
    assert sections["site"]["latency"] == latency
    assert sections["site_latency"] == {"3000": {"p50_ms": 950, "p99_ms": 950}}
    sections = rows.sections([answer({10: 1, 20: 9}, events=10)], 3_000 + AGES_MS)
    assert sections["site"]["latency"]["p50_ms"] is None
    assert sections["site_latency"].keys() == {"3000"}
    assert not rows.sections([], 3_001 + HISTORY_MS)["site_latency"]
    json.dumps(sections)


@pytest.mark.parametrize("sample_ms", [1_000, 60_000])
def test_after_a_pause_no_ages_are_taken_and_that_is_said(sample_ms: int) -> None:
    rows = SiteRows()
    now_ms = 1_000_000_000

    def after(pause_ms: int, events: int = 1) -> dict[str, Any]:
        """A sample, with more events of 500 ms before."""
        nonlocal now_ms
        now_ms += pause_ms
        seen[now_ms // 100 - 5] = events
        latency: dict[str, Any] = rows.sections([answer(seen)], now_ms)["site"]["latency"]
        return latency

    seen: dict[int, int] = {}
    after(0)
    assert after(sample_ms)["p99_ms"] == 450
    for _ in range(20):
        latency = after(10 * sample_ms)
        assert latency["p99_ms"] in (None, 450)
        assert latency["is_after_pause"]
    assert latency["shown"] == 0
    latency = after(sample_ms)
    assert (latency["p99_ms"], latency["is_after_pause"]) == (450, False)
    assert not rows.sections([answer(seen)], now_ms + 10 * sample_ms)["site"]["latency"][
        "is_after_pause"
    ], "nothing came"


def test_a_first_look_after_pauses_only_forgets_their_ages() -> None:
    rows = SiteRows()
    for at_ms in (10_000, 20_000, 30_000):
        rows.sections([answer({at_ms // 100 - 95: 1})], at_ms)
    latency = rows.sections([answer({303: 1})], 31_000)["site"]["latency"]
    assert (latency["p99_ms"], latency["shown"]) == (650, 1)


def test_without_the_process_there_are_no_rows() -> None:
    assert SiteRows().sections([], 1_000) == {"site": {}, "site_latency": {}}
