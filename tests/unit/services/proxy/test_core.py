"""The proxy's decisions: routes, faults as JSON, the next target, the timing of a slow link."""

import random
from typing import Any

import pytest

from kafka2011.services.proxy.balancing import TargetRing
from kafka2011.services.proxy.config import parse_routes
from kafka2011.services.proxy.faults import AfterBytes, DropMessages, Faults, changed, parse_faults
from kafka2011.services.proxy.shaping import Link

TARGETS = (("a", 1), ("b", 2), ("c", 3))


def test_routes_with_and_without_names() -> None:
    routes = parse_routes("127.0.0.1:0>a:1|b:2, wan=0.0.0.0:9092>live:9092")
    assert [route.name for route in routes] == ["route-0", "wan"]
    assert routes[0].targets == (("a", 1), ("b", 2))
    assert routes[1].listen == ("0.0.0.0", 9092)


@pytest.mark.parametrize(
    "text",
    ["", "a:1", "a:1>", "a:1>b", "=a:1>b:2", "x=a:1>b:2,x=a:2>b:2", "a:99999>b:2", "a:1>b:2|"],
)
def test_bad_routes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_routes(text)


def test_a_change_names_only_what_it_changes() -> None:
    faults = parse_faults('{"delay_ms": 100, "hold": "both", "cut_after": null}')
    assert faults == Faults(delay_ms=100, hold=("to_server", "to_client"))
    faults = changed(faults, {"hold": "none", "drop_messages": {"topic": "t", "count": 3}})
    assert faults == Faults(delay_ms=100, drop_messages=DropMessages("t", 3))
    flip = {"direction": "to_client", "after_bytes": 7}
    assert changed(faults, {"clear": True, "flip": flip}) == Faults(flip=AfterBytes("to_client", 7))
    assert changed(faults, faults.as_json()) == faults


@pytest.mark.parametrize(
    "change",
    [
        [],
        {"delay": 1},
        {"delay_ms": -1},
        {"delay_ms": True},
        {"delay_ms": "5"},
        {"cut": 1},
        {"hold": "left"},
        {"hold": ["left"]},
        {"flip": {"direction": "to_client"}},
        {"flip": {"direction": "up", "after_bytes": 1}},
        {"cut_after": 5},
        {"drop_messages": {"topic": "", "count": 1}},
        {"drop_messages": {"topic": "t", "count": 1.5}},
    ],
)
def test_bad_changes_are_refused(change: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        changed(Faults(), change)


def ring() -> TargetRing:
    return TargetRing(TARGETS, retry_min_s=0.1, retry_max_s=1.0)


def first_names(targets: TargetRing, count: int) -> str:
    return "".join(targets.candidates()[0].address[0] for _ in range(count))


def test_targets_take_turns() -> None:
    assert first_names(ring(), 7) == "abcabca"


def test_dead_target_is_passed_over_and_tried_last() -> None:
    targets = ring()
    targets.failed(targets.targets[1], now_s=0)
    assert first_names(targets, 6).count("b") == 0
    assert targets.candidates()[-1].address[0] == "b"
    targets.succeeded(targets.targets[1], is_check=True)
    assert first_names(targets, 6).count("b") == 2
    assert targets.targets[1].connections_total == 0


def test_pause_of_a_dead_target_doubles_to_its_limit() -> None:
    targets = ring()
    pauses = []
    for _ in range(6):
        targets.failed(targets.targets[0], now_s=50)
        pauses.append(round(targets.targets[0].retry_at_s - 50, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert targets.due(50.9) == []
    assert targets.due(51.0) == [targets.targets[0]]
    targets.succeeded(targets.targets[0])
    assert targets.due(100) == []


def test_all_dead_are_all_tried() -> None:
    targets = ring()
    for target in targets.targets:
        targets.failed(target, now_s=0)
    assert len(targets.candidates()) == 3


def test_rate_is_shared_by_all_that_use_the_link() -> None:
    link = Link(random.Random(1))
    link.configure(rate_bytes_s=1000, delay_ms=0, jitter_ms=0)
    assert link.reserve(10.0, 500) == 10.5
    assert link.reserve(10.0, 500) == 11.0
    assert link.reserve(20.0, 100) == 20.1


def test_delay_with_jitter_stays_in_its_bounds() -> None:
    link = Link(random.Random(1))
    link.configure(rate_bytes_s=0, delay_ms=100, jitter_ms=50)
    arrivals = [link.arrival(5.0) - 5.0 for _ in range(1000)]
    assert 0.05 <= min(arrivals) < 0.06
    assert 0.14 < max(arrivals) <= 0.15


def test_window_of_a_narrow_link_is_small() -> None:
    link = Link(random.Random(1))
    assert link.window_bytes == 8 * 2**20
    link.configure(rate_bytes_s=100_000, delay_ms=100, jitter_ms=0)
    assert link.window_bytes == 45_000
    assert link.piece_bytes == 2000
