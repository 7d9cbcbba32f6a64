"""Alerts begin and end by their rules, figures are the newest by their own time."""

import json
import math
import random
from typing import Any

import pytest

from kafka2011.events.topics import SERVICE_CALL, SERVICE_METRIC
from kafka2011.services.site.operations import Operations, quantile
from tests.unit.services.site.events import NOW_MS, event

ROUND_MS = 5_000
PROCESS = "live/broker-1"


def metric(name: str, value: float, time_ms: int, process: str | None = PROCESS) -> Any:
    kind = "broker" if process else None
    return event(time_ms, name=name, value=value, unit="", host="vm", process=process, kind=kind)


def call(took_ms: float, time_ms: int, error: str | None = None, **fields: Any) -> Any:
    values: dict[str, Any] = {
        "trace": f"t{took_ms}",
        "span": "1",
        "parent": None,
        "caller": "live/site",
        "callee": PROCESS,
        "operation": "GET /usage",
        "took_ms": took_ms,
        "served_ms": None,
        "error": error,
    }
    return event(time_ms, **values | fields)


def take(use: Operations, *events: Any) -> None:
    for each in events:
        topic = SERVICE_CALL if "took_ms" in each else SERVICE_METRIC
        use.take(topic, each, max(NOW_MS, each["header"]["time"]))


def alerts(use: Operations, now_ms: int = NOW_MS) -> set[tuple[str, str]]:
    return {(each["alert"], each["subject"]) for each in use.shown(now_ms)["alerts"]}


def rounds(use: Operations, values: list[dict[str, float]], process: str | None = PROCESS) -> int:
    """Takes one round after the other; returns the time of the last."""
    for number, found in enumerate(values):
        at_ms = NOW_MS + number * ROUND_MS
        take(use, *(metric(name, value, at_ms, process) for name, value in found.items()))
    return NOW_MS + (len(values) - 1) * ROUND_MS


def test_a_process_that_does_not_answer_twice_is_an_alert_until_it_does() -> None:
    use = Operations()
    up, down = {"answers": 1.0}, {"answers": 0.0}
    at_ms = rounds(use, [up, down])
    assert alerts(use, at_ms) == set()
    at_ms = rounds(use, [up, down, down])
    assert alerts(use, at_ms) == {("does not answer", PROCESS)}
    [row] = use.shown(at_ms)["processes"]
    assert row["answers"] is False
    at_ms = rounds(use, [up, down, down, up])
    shown = use.shown(at_ms)
    assert shown["alerts"] == []
    assert shown["over"][0]["over_ms"] == at_ms
    results = use.results(at_ms)
    assert [each.fields["is_over"] for each in results] == [False, True]
    assert len({(each.time_ms, each.key) for each in results}) == 2
    assert use.results(at_ms) == []


@pytest.mark.parametrize(("cores", "is_busy"), [(1.0, True), (2.0, False)])
def test_a_process_is_busy_by_the_cores_that_it_can_use(cores: float, is_busy: bool) -> None:
    use = Operations()
    busy = {"cpu": 0.95, "cpu.max": cores}
    at_ms = rounds(use, [busy] * 2)
    assert alerts(use, at_ms) == set()
    at_ms = rounds(use, [busy] * 3)
    assert (("busy", PROCESS) in alerts(use, at_ms)) is is_busy
    # Between the bounds it stays, below the lower one it is over.
    at_ms = rounds(use, [busy] * 3 + [{"cpu": 0.85, "cpu.max": cores}] * 3)
    assert (("busy", PROCESS) in alerts(use, at_ms)) is is_busy
    at_ms = rounds(use, [busy] * 3 + [{"cpu": 0.1, "cpu.max": cores}] * 3)
    assert alerts(use, at_ms) == set()


def test_a_machine_has_rules_of_its_own() -> None:
    use = Operations()
    full = {"cpu": 1.99, "cpu.max": 2.0, "memory": 99.0, "memory.max": 100.0}
    at_ms = rounds(use, [full | {"disk.free": 1.0, "disk.max": 100.0}] * 6, process=None)
    assert alerts(use, at_ms) == {("processor", "vm"), ("memory", "vm"), ("disk", "vm")}
    [host] = use.shown(at_ms)["hosts"]
    assert (host["name"], host["cpu"], host["network_in"]) == ("vm", 1.99, None)


def test_calls_that_fail_or_are_slow_are_alerts() -> None:
    use = Operations()
    take(use, *(call(1.0, NOW_MS, error="refused") for _ in range(3)))
    take(use, metric("answers", 1.0, NOW_MS))
    assert alerts(use) == {("errors", PROCESS)}
    take(use, *(call(800.0, NOW_MS + n) for n in range(3)), metric("answers", 1.0, NOW_MS + 9))
    assert alerts(use) == {("errors", PROCESS), ("slow", PROCESS)}
    later = NOW_MS + 70_000
    take(use, *(call(2.0, later) for _ in range(3)), metric("answers", 1.0, later))
    assert alerts(use, later) == set()


def test_latency_is_of_the_last_minute_and_failed_calls_have_none() -> None:
    use = Operations()
    took = [float(n) for n in range(1, 101)]
    random.Random(1).shuffle(took)
    take(use, *(call(ms, NOW_MS - 1000) for ms in took), call(9999.0, NOW_MS, error="refused"))
    take(use, call(7777.0, NOW_MS - 61_000))
    shown = use.shown(NOW_MS)["calls"]
    assert shown == {"calls": 101, "errors": 1, "p50_ms": 50.0, "p99_ms": 99.0}
    assert quantile([], 0.5) is None


def test_the_slowest_call_is_shown_with_what_it_led_to() -> None:
    use = Operations()
    take(
        use,
        call(3.0, NOW_MS, trace="other"),
        # Read in another order.
        call(4.0, NOW_MS, trace="a", span="3", parent="2", caller="live/b", callee="live/c"),
        call(9.0, NOW_MS, trace="a", span="1", callee="live/a"),
        call(8.0, NOW_MS, trace="a", span="2", parent="1", caller="live/a", callee="live/b"),
    )
    stack = use.shown(NOW_MS)["slowest"]
    assert [(each["depth"], each["callee"]) for each in stack] == [
        (0, "live/a"),
        (1, "live/b"),
        (2, "live/c"),
    ]


def test_a_stack_that_names_itself_ends() -> None:
    use = Operations()
    take(use, call(9.0, NOW_MS, span="1"), call(9.0, NOW_MS, span="1", parent="1"))
    assert 0 < len(use.shown(NOW_MS)["slowest"]) <= 20


def test_the_order_of_reading_does_not_matter() -> None:
    events = [metric("answers", float(n % 3 > 0), NOW_MS + n * ROUND_MS) for n in range(6)]
    events += [metric("memory", 1000.0 + n, NOW_MS + n * ROUND_MS) for n in range(6)]
    rng = random.Random(3)
    at_ms = NOW_MS + 5 * ROUND_MS
    wanted = None
    for _ in range(10):
        use = Operations()
        take(use, *events)
        wanted = wanted or use.shown(at_ms)["processes"]
        assert use.shown(at_ms)["processes"] == wanted
        rng.shuffle(events)


def test_what_is_measured_no_more_was_stopped() -> None:
    use = Operations()
    take(use, *(metric("answers", 0.0, NOW_MS + n) for n in range(2)))
    assert alerts(use)
    later = NOW_MS + 40_000
    take(use, metric("answers", 1.0, later, "live/other"))
    assert [each["name"] for each in use.shown(later)["processes"]] == ["live/other"]
    assert alerts(use, later) == set()


def test_without_any_measurement_the_last_ones_stay() -> None:
    use = Operations()
    take(use, metric("answers", 1.0, NOW_MS))
    shown = use.shown(NOW_MS + 3_600_000)
    assert (len(shown["processes"]), shown["measured_ms"]) == (1, NOW_MS)


def test_a_random_figure_of_before_is_left_out() -> None:
    use = Operations()
    use.take(SERVICE_METRIC, event(name="gc.pause", value=1.0, unit="ms"), NOW_MS)
    old = event(name="gc.pause", value=1.0, unit="ms", host="", process=None, kind=None)
    use.take(SERVICE_METRIC, old, NOW_MS)
    assert use.shown(NOW_MS)["hosts"] == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_left_out(value: float) -> None:
    use = Operations()
    take(use, metric("cpu", value, NOW_MS), call(value, NOW_MS))
    assert (use.shown(NOW_MS)["processes"], use.shown(NOW_MS)["calls"]["calls"]) == ([], 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_time_of_the_callee_that_is_no_number_is_not_known(value: float) -> None:
    use = Operations()
    take(use, call(3.0, NOW_MS, served_ms=value))
    assert [each["served_ms"] for each in use.shown(NOW_MS)["slowest"]] == [None]


def test_figures_that_nothing_shows_are_not_kept() -> None:
    use = Operations()
    take(use, *(metric(f"figure-{number}", 1.0, NOW_MS) for number in range(9)))
    take(use, metric("threads", 5.0, NOW_MS), metric("figure", 1.0, NOW_MS + 1))
    [row] = use.shown(NOW_MS)["processes"]
    assert row["threads"] == 5.0
    assert json.dumps(use.state()).count("figure") == 0


def test_a_restored_state_shows_and_says_the_same() -> None:
    use = Operations()
    take(use, call(3.0, NOW_MS), metric("cpu", 0.5, NOW_MS), metric("cpu.max", 1.0, NOW_MS))
    take(use, *(metric("answers", 0.0, NOW_MS + n, "live/gone") for n in range(2)))
    again = Operations()
    again.restore(json.loads(json.dumps(use.state())))
    assert again.shown(NOW_MS) == use.shown(NOW_MS)
    assert again.results(NOW_MS) == use.results(NOW_MS)
    assert again.state() == use.state()
