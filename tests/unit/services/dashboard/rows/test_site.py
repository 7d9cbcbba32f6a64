"""The age of what becomes visible, and the rows of the page Site."""

import json
from typing import Any

import pytest

from kafka2011.services.dashboard.rows.site import AGES_MS, HISTORY_MS, SiteRows, new_ages, quantile


def ages(bins: dict[int, int], older: int = 0) -> dict[str, Any]:
    return {
        "bin_ms": 100,
        "bins": {str(number): count for number, count in bins.items()},
        "older": older,
    }


def answer(bins: dict[int, int], older: int = 0, events: int = 0) -> dict[str, Any]:
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
        (ages({10: 5}, 1), ages({12: 1}, 4), [(750, 1), (800, 3)]),
        (ages({10: 5}), ages({10: 2, 11: 1}), [(850, 1)]),  # it was started again
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
    assert sections["site"]["latency"] == {"p50_ms": 950, "p99_ms": 950, "shown": 9}
    assert sections["site_latency"] == {"3000": {"p50_ms": 950, "p99_ms": 950}}
    sections = rows.sections([answer({10: 1, 20: 9}, events=10)], 3_000 + AGES_MS)
    assert sections["site"]["latency"]["p50_ms"] is None
    assert sections["site_latency"].keys() == {"3000"}
    assert not rows.sections([], 3_001 + HISTORY_MS)["site_latency"]
    json.dumps(sections)


def test_without_the_process_there_are_no_rows() -> None:
    assert SiteRows().sections([], 1_000) == {"site": {}, "site_latency": {}}
