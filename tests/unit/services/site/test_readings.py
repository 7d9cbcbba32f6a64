"""Two readings make rates, what is unknown makes no event, and headers make call stacks."""

import itertools
from typing import Any

from kafka2011.services.site.readings import Reading, calls, measurements, timings


def reading(name: str, at_ms: int, **usage: Any) -> Reading:
    values: dict[str, Any] = {
        "pid": 1,
        "cpu_s": 10.0,
        "cpu_max": 1,
        "memory_bytes": 1000,
        "disk_read_bytes": 0,
        "disk_written_bytes": 500,
        "open_files": 3,
        "threads": 2,
        "host": "vm",
        "machine": "0123456789",
        "machine_network": "net:1",
        "machine_cores": 2,
        "machine_cpu_s": 100.0,
        "machine_memory_bytes": 10,
        "machine_memory_max_bytes": 20,
        "machine_disk_read_bytes": 0,
        "machine_disk_written_bytes": 0,
        "machine_disk_free_bytes": 5,
        "machine_disk_max_bytes": 50,
        "machine_network_in_bytes": 1000,
        "machine_network_out_bytes": 0,
    }
    return Reading(name, "broker", at_ms, values | usage)


def values(before: list[Reading], now: list[Reading]) -> dict[tuple[str | None, str], float]:
    found = measurements({each.name: each for each in before}, now, {})
    return {(each.process, each.name): each.value for each in found}


def test_the_difference_of_two_readings_is_a_rate() -> None:
    then = reading("live/a", 1_000)
    now = reading("live/a", 3_000, cpu_s=11.0, disk_written_bytes=1500, machine_cpu_s=103.0)
    found = values([then], [now])
    assert found[("live/a", "cpu")] == 0.5
    assert found[("live/a", "disk.written")] == 500
    assert found[("live/a", "memory")] == 1000
    assert found[(None, "cpu")] == 1.5
    assert (found[(None, "cpu.max")], found[(None, "disk.free")]) == (2, 5)


def test_nothing_is_said_of_what_was_not_measured() -> None:
    first = values([], [reading("live/a", 1_000)])
    assert ("live/a", "cpu") not in first
    assert ("live/a", "memory") in first
    again = values([reading("live/a", 1_000)], [reading("live/a", 2_000, pid=2, cpu_s=0.1)])
    assert ("live/a", "cpu") not in again  # another process by now
    fell = values([reading("live/a", 1_000)], [reading("live/a", 2_000, cpu_s=9.0)])
    assert ("live/a", "cpu") not in fell
    none = values([], [reading("live/a", 1_000, memory_bytes=None, open_files=None)])
    assert not {("live/a", "memory"), ("live/a", "open.files")} & none.keys()


def test_bytes_of_a_network_are_the_machines_or_of_the_process_that_is_alone_on_it() -> None:
    then = [reading("live/a", 0), reading("live/b", 0)]
    now = [reading(each.name, 1_000, machine_network_in_bytes=3000) for each in then]
    shared = values(then, now)
    assert shared[(None, "network.in")] == 2000
    assert ("live/a", "network.in") not in shared
    apart = [
        reading(each.name, 1_000, machine_network=f"net:{each.name}", host=each.name,
                machine_network_in_bytes=1000 + number)
        for number, each in enumerate(then, 5)
    ]  # fmt: skip
    found = values(then, apart)
    assert (found[("live/a", "network.in")], found[("live/b", "network.in")]) == (5, 6)
    assert (None, "network.in") not in found
    machines = {each.host for each in measurements({}, apart, {}) if each.process is None}
    assert machines == {"machine-01234567"}  # the containers of one


def test_a_silent_process_has_one_measurement() -> None:
    known = {"live/a": reading("live/a", 0)}
    [found] = measurements(known, [], {"live/a": "broker"})
    assert (found.name, found.value, found.host, found.process) == ("answers", 0, "vm", "live/a")


def test_a_stack_of_calls_is_read_from_the_answer() -> None:
    numbers = itertools.count()
    timing = 'total;dur=9.5, call;dur=7.25;desc="live/site GET /feed", served;dur=1.5'
    first, second = calls(
        "live/site",
        "live/dashboard",
        "GET /api/feed",
        took_ms=11.0,
        timing=timing,
        error=None,
        new_id=lambda: str(next(numbers)),
    )
    assert (first.served_ms, first.parent, second.parent) == (9.5, None, first.span)
    assert second[3:] == ("live/dashboard", "live/site", "GET /feed", 7.25, 1.5, None)
    assert first.trace == second.trace


def test_a_header_of_anything_is_read_without_an_error() -> None:
    assert timings("") == []
    assert timings('db;dur=53, app;dur=47.2;desc="a, b; c"') == [
        ("db", {"dur": "53"}),
        ("app", {"dur": "47.2", "desc": "a, b; c"}),
    ]
    for header in (";;;", "served;dur=x", 'call;desc="', "call;dur=;desc=x", "served, total", "é"):
        found = calls("a", "b", "c", took_ms=1.0, timing=header, error=None, new_id=lambda: "1")
        assert len(found) == 1
