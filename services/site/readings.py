"""What readings of processes and their machines say, as measurements and calls. Pure.

Two readings of `runtime.usage` make the rates between them. What a reading does not have makes no
measurement: nothing is estimated.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Usage = Mapping[str, Any]
# What measurements are made of: a number or None each.
FIGURES = (
    *("cpu_s", "cpu_max", "memory_bytes", "disk_read_bytes", "disk_written_bytes"),
    *("open_files", "threads", "machine_cores", "machine_cpu_s"),
    *("machine_memory_bytes", "machine_memory_max_bytes"),
    *("machine_disk_read_bytes", "machine_disk_written_bytes"),
    *("machine_disk_free_bytes", "machine_disk_max_bytes"),
    *("machine_network_in_bytes", "machine_network_out_bytes"),
)
_TIMING = re.compile(r'(\w+)((?:;\s*\w+=(?:"[^"]*"|[^",;]*))*)')
_PARAMETER = re.compile(r';\s*(\w+)=(?:"([^"]*)"|([^",;]*))')


class Reading(NamedTuple):
    """`usage` of the process `name` (<datacenter>/<name>) at `at_ms`."""

    name: str
    kind: str
    at_ms: int
    usage: Usage


class Measurement(NamedTuple):
    """The fields of a service-metric event."""

    name: str
    value: float
    unit: str
    host: str
    process: str | None
    kind: str | None


class Call(NamedTuple):
    """The fields of a service-call event."""

    trace: str
    span: str
    parent: str | None
    caller: str
    callee: str
    operation: str
    took_ms: float
    served_ms: float | None
    error: str | None


def measurements(
    before: Mapping[str, Reading], now: Sequence[Reading], silent: Mapping[str, str]
) -> list[Measurement]:
    """The measurements of every process that answered (`now`) or did not (`silent`, name -> kind),
    and of their machines. `before` has the readings of the last time, by name."""
    found: list[Measurement] = []
    machines: dict[str, list[Reading]] = defaultdict(list)
    for reading in now:
        machines[str(reading.usage.get("machine") or reading.usage["host"])].append(reading)
    for name, readings in machines.items():
        found += _of_machine(name, before, readings)
    for process, kind in silent.items():
        known = before.get(process)
        host = str(known.usage["host"]) if known else ""
        found.append(Measurement("answers", 0, "", host, process, kind))
    return found


def _of_machine(
    machine: str, before: Mapping[str, Reading], readings: Sequence[Reading]
) -> Iterator[Measurement]:
    networks = [reading.usage["machine_network"] for reading in readings]
    for reading in readings:
        # Alone with its interfaces, as in a container: their bytes are its own.
        is_alone = len(set(networks)) > 1 and networks.count(reading.usage["machine_network"]) == 1
        yield from _of_process(before.get(reading.name), reading, has_network=is_alone)
    hosts = {reading.usage["host"] for reading in readings}
    host = hosts.pop() if len(hosts) == 1 else f"machine-{machine[:8]}"
    # Any process that was there before will do.
    pairs = [(before.get(reading.name), reading) for reading in readings]
    then, now = next((pair for pair in pairs if pair[0] is not None), pairs[0])
    for name, value, unit in (
        ("cpu", _rate(then, now, "machine_cpu_s"), "cores"),
        ("cpu.max", now.usage["machine_cores"], "cores"),
        ("memory", now.usage["machine_memory_bytes"], "bytes"),
        ("memory.max", now.usage["machine_memory_max_bytes"], "bytes"),
        ("disk.read", _rate(then, now, "machine_disk_read_bytes"), "bytes/s"),
        ("disk.written", _rate(then, now, "machine_disk_written_bytes"), "bytes/s"),
        ("disk.free", now.usage["machine_disk_free_bytes"], "bytes"),
        ("disk.max", now.usage["machine_disk_max_bytes"], "bytes"),
        *(_network(then, now) if len(set(networks)) == 1 else ()),
    ):
        if value is not None:
            yield Measurement(name, value, unit, host, None, None)


def _of_process(then: Reading | None, now: Reading, *, has_network: bool) -> Iterator[Measurement]:
    if then is not None and then.usage["pid"] != now.usage["pid"]:
        then = None  # it was started again
    for name, value, unit in (
        ("answers", 1, ""),
        ("cpu", _rate(then, now, "cpu_s"), "cores"),
        ("cpu.max", now.usage["cpu_max"], "cores"),
        ("memory", now.usage["memory_bytes"], "bytes"),
        ("disk.read", _rate(then, now, "disk_read_bytes"), "bytes/s"),
        ("disk.written", _rate(then, now, "disk_written_bytes"), "bytes/s"),
        ("open.files", now.usage["open_files"], ""),
        ("threads", now.usage["threads"], ""),
        *(_network(then, now) if has_network else ()),
    ):
        if value is not None:
            yield Measurement(name, value, unit, str(now.usage["host"]), now.name, now.kind)


def _network(then: Reading | None, now: Reading) -> list[tuple[str, float | None, str]]:
    return [
        ("network.in", _rate(then, now, "machine_network_in_bytes"), "bytes/s"),
        ("network.out", _rate(then, now, "machine_network_out_bytes"), "bytes/s"),
    ]


def _rate(then: Reading | None, now: Reading, name: str) -> float | None:
    """The rate per second between two readings; None where one is lacking, or the total fell (a
    process below it has ended)."""
    if then is None or now.at_ms <= then.at_ms:
        return None
    first, last = then.usage[name], now.usage[name]
    if first is None or last is None or last < first:
        return None
    return float((last - first) * 1000 / (now.at_ms - then.at_ms))


def calls(
    caller: str,
    callee: str,
    operation: str,
    *,
    took_ms: float,
    timing: str,
    error: str | None,
    new_id: Callable[[], str],
) -> list[Call]:
    """A call and those that it led to, as the callee's header Server-Timing says: `total` is its
    own time, `call` with `desc="<callee> <operation>"` a call that it made, and `served` after that
    the time that was spent in serving that call."""
    trace, span = new_id(), new_id()
    served_ms, nested = None, []
    for name, parameters in timings(timing):
        duration = _number(parameters.get("dur"))
        if name == "total":
            served_ms = duration
        elif name == "call" and duration is not None:
            inner, _, what = parameters.get("desc", "").partition(" ")
            nested.append(Call(trace, new_id(), span, callee, inner, what, duration, None, None))
        elif name == "served" and nested:
            nested[-1] = nested[-1]._replace(served_ms=duration)
    first = Call(trace, span, None, caller, callee, operation, took_ms, served_ms, error)
    return [first, *nested]


def timings(header: str) -> list[tuple[str, dict[str, str]]]:
    """The entries of a header Server-Timing: name and parameters."""
    return [
        (name, {key: quoted or plain for key, quoted, plain in _PARAMETER.findall(rest)})
        for name, rest in _TIMING.findall(header)
    ]


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
