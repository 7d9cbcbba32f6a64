"""What the benchmarks of whole deployments and of growth compute from what they measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.deployment import Use, rates
from benchmarks.growth import figures
from benchmarks.growth.curves import CURVES
from benchmarks.pipeline import Carried, rates_between
from benchmarks.scale import Size, audit_cells, audit_looks, producers


def test_a_process_is_charged_with_what_it_used_between_the_two_moments() -> None:
    before = {1: ("a", Use(2.0, 10, 5)), 2: ("b", Use(1.0, 0, 0))}
    after = {1: ("a", Use(2.5, 2**20, 2**19)), 2: ("b", Use(1.1, 0, 0)), 3: ("b", Use(0.9, 0, 0))}
    found = {rate.name: rate for rate in rates(before, after, 10.0)}
    assert found["a"].cpu_ms_per_s == pytest.approx(50)
    assert (found["a"].resident_mib, found["a"].proportional_mib) == (1.0, 0.5)
    assert found["b"].cpu_ms_per_s == pytest.approx(100), "one that began meanwhile counts whole"


@pytest.mark.parametrize(("warehouse", "keeps_up"), [(981, True), (900, False)])
def test_a_rate_is_carried_where_every_tier_keeps_up(warehouse: int, *, keeps_up: bool) -> None:
    before = {"live": 100, "offline": 90, "warehouse": 0}
    after = {"live": 2100, "offline": 2080, "warehouse": 2 * warehouse}
    per_s = rates_between(before, after, 2.0)
    assert Carried(1000, per_s, {}, True, 1.0, []).keeps_up is keeps_up


def test_each_curve_is_drawn_beside_its_law(tmp_path: Path) -> None:
    assert figures.law_through((1, 2, 4), 3.0, 2.0) == [3.0, 12.0, 48.0]
    for curve in CURVES:
        points = [{line.figure: 1.0 + value for line in curve.lines} for value in curve.values]
        for path in figures.draw(curve, points[:2], tmp_path):
            assert path.stat().st_size > 1000


def test_what_is_simulated_grows_as_the_page_says() -> None:
    size = Size(brokers=4, topics=10, producers=20, topics_each=4)
    once, more = producers(size), producers(replace(size, brokers=16, producers=80))
    assert 14 < more["death_requests"] / once["death_requests"] < 18
    assert audit_looks(size)["by_watches"] == 1
    assert audit_cells(size)["cells"] == size.cells
