"""Operations: what each process and machine uses, how fast and how well the processes answer one
another, and alerts.

Every figure is of the newest measurements by their own time, in whatever order they were read.
Alerts follow rules with stated bounds; an alert is over when its rule's lower bound is kept again,
or when the subject is no longer measured because it was stopped.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafka2011.events.codec import Record
from kafka2011.events.topics import SERVICE_CALL, SERVICE_METRIC, SITE_OPERATIONS
from kafka2011.services.site.use import Result, Use, time_of

CALLS_MS = 60_000  # of which latency and errors are shown
CALLS_MAX = 5_000
SUBJECTS_MAX = 500
VALUES_KEPT = 6  # of one measurement of a subject
FORGOTTEN_MS = 30_000  # a subject that is not measured for so long was stopped
OVER_KEPT = 10
STACK_MAX = 20

SILENT_ROUNDS = 2
BUSY_ROUNDS, BUSY, BUSY_OVER = 3, 0.9, 0.8  # parts of the cores that it can use
MACHINE_ROUNDS, MACHINE_BUSY, MACHINE_OVER = 6, 0.95, 0.85
MEMORY, MEMORY_OVER = 0.95, 0.9  # used part
DISK, DISK_OVER = 0.05, 0.07  # free part
SLOW_MS, SLOW_OVER_MS, SLOW_CALLS = 500.0, 250.0, 3  # the median of the last minute's calls
ERRORS, ERRORS_OVER = 3, 1  # failed calls of the last minute

SILENT: Final = "does not answer"


class Verdict(NamedTuple):
    """What a rule says of a subject. `is_on`: its alert begins (True), ends (False), or stays as it
    was (None)."""

    alert: str
    is_on: bool | None
    evidence: str


def quantile(ordered: list[float], part: float) -> float | None:
    """The value that `part` of the values do not exceed; None without values."""
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)] if ordered else None


def bounded(alert: str, value: float | None, high: float, low: float, evidence: str) -> Verdict:
    """The alert begins at `high` or above, ends below `low`; unknown values change nothing."""
    if value is None:
        return Verdict(alert, None, evidence)
    return Verdict(alert, True if value >= high else False if value < low else None, evidence)


class Subject:
    """A process (`kind`) or a machine: its last values of each measurement, newest last."""

    def __init__(self, host: str, kind: str | None) -> None:
        self.host = host
        self.kind = kind
        self.measured_ms = 0
        self._values: dict[str, list[tuple[int, float]]] = {}

    def note(self, name: str, time_ms: int, value: float) -> None:
        values = dict(self._values.get(name, ()))
        values[time_ms] = value  # a value that was sent twice counts once
        self._values[name] = sorted(values.items())[-VALUES_KEPT:]
        self.measured_ms = max(self.measured_ms, time_ms)

    def value(self, name: str) -> float | None:
        """The newest value; None when the newest round has none."""
        values = self._values.get(name)
        if not values or values[-1][0] < self.measured_ms:
            return None
        return values[-1][1]

    def mean(self, name: str, rounds: int) -> float | None:
        """The mean of the last `rounds` values; None while there are fewer."""
        values = self._values.get(name, [])[-rounds:]
        return sum(value for _, value in values) / rounds if len(values) == rounds else None

    def all_are(self, name: str, wanted: float, rounds: int) -> bool:
        values = self._values.get(name, [])[-rounds:]
        return len(values) == rounds and all(value == wanted for _, value in values)

    def state(self) -> list[Any]:
        return [self.host, self.kind, self._values]

    @classmethod
    def restored(cls, state: list[Any]) -> "Subject":
        found = cls(state[0], state[1])
        for name, values in state[2].items():
            for time_ms, value in values:
                found.note(name, time_ms, value)
        return found


class Operations(Use):
    name = "operations"
    topics = (SERVICE_METRIC, SERVICE_CALL)
    result_topic = SITE_OPERATIONS

    def __init__(self) -> None:
        self._subjects: dict[str, Subject] = {}
        self._calls: deque[list[Any]] = deque(maxlen=CALLS_MAX)
        self._alerts: dict[str, dict[str, Any]] = {}
        self._over: deque[dict[str, Any]] = deque(maxlen=OVER_KEPT)
        self._new: list[dict[str, Any]] = []

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        time_ms = time_of(event)
        if topic == SERVICE_CALL:
            self._take_call(event, time_ms, now_ms)
            return
        process = event.get("process")
        host = event.get("host") or ""
        if (process is None and not host) or not math.isfinite(event["value"]):
            return  # an event of an earlier version: a random figure
        if event["name"] not in KEPT:
            return
        key = process or host
        subject = self._subjects.get(key)
        if subject is None:
            self._forget(now_ms)
            if len(self._subjects) >= SUBJECTS_MAX:
                return
            subject = self._subjects[key] = Subject(host, event.get("kind"))
        subject.host = host or subject.host
        subject.note(event["name"], time_ms, event["value"])
        for verdict in self._verdicts(key, subject, event["name"], now_ms):
            self._apply(verdict, key, time_ms)

    def _take_call(self, event: Record, time_ms: int, now_ms: int) -> None:
        if time_ms <= now_ms - CALLS_MS or not math.isfinite(event["took_ms"]):
            return
        fields = ("trace", "span", "parent", "caller", "callee", "operation")
        call = [time_ms, *(event[name] for name in fields)]
        served_ms = event["served_ms"]
        if served_ms is not None and not math.isfinite(served_ms):
            served_ms = None
        self._calls.append([*call, event["took_ms"], served_ms, event["error"]])

    # --- alerts -------------------------------------------------------------------------------

    def _verdicts(self, key: str, subject: Subject, name: str, now_ms: int) -> list[Verdict]:
        """The verdicts of the rules that a measurement of that name is for."""
        if subject.kind is None:
            return _machine_verdicts(subject, name)
        if name == "cpu.max":  # it follows cpu in the same round
            mean, most = subject.mean("cpu", BUSY_ROUNDS), subject.value("cpu.max") or 1
            said = f"{mean or 0:.2f} cores of the {most:.0f} that it can use"
            part = None if mean is None else mean / most
            return [bounded("busy", part, BUSY, BUSY_OVER, said)]
        if name != "answers":
            return []
        if subject.value("answers"):
            return [Verdict(SILENT, False, "answers"), *self._call_verdicts(key, now_ms)]
        is_silent = subject.all_are("answers", 0.0, SILENT_ROUNDS)
        said = f"no answer to the last {SILENT_ROUNDS} measurements"
        return [Verdict(SILENT, True if is_silent else None, said)]

    def _call_verdicts(self, key: str, now_ms: int) -> list[Verdict]:
        took, errors = self._calls_of(key, now_ms)
        median = quantile(took, 0.5) if len(took) >= SLOW_CALLS else None
        slow = f"half of its answers take {median or 0:,.0f} ms or longer"
        failed = f"{errors} of {len(took) + errors} calls failed in the last minute"
        return [
            bounded("slow", median, SLOW_MS, SLOW_OVER_MS, slow),
            bounded("errors", errors, ERRORS, ERRORS_OVER, failed),
        ]

    def _apply(self, verdict: Verdict, key: str, time_ms: int) -> None:
        name = f"{verdict.alert}|{key}"
        known = self._alerts.get(name)
        if known is not None and verdict.is_on is not False:
            if verdict.is_on:
                known["evidence"] = verdict.evidence
        elif known is not None:
            self._end(name, time_ms)
        elif verdict.is_on:
            alert = {"alert": verdict.alert, "subject": key, "since_ms": time_ms}
            self._alerts[name] = alert | {"evidence": verdict.evidence, "over_ms": 0}
            self._new.append(dict(self._alerts[name]))

    def _end(self, name: str, time_ms: int) -> None:
        alert = self._alerts.pop(name)
        alert["over_ms"] = max(time_ms, alert["since_ms"])
        self._over.appendleft(alert)
        self._new.append(dict(alert))
        del self._new[:-SUBJECTS_MAX]

    def _forget(self, now_ms: int) -> None:
        """Drop subjects that are no longer measured while others are; without any measurements
        nothing is known about them."""
        newest = max((each.measured_ms for each in self._subjects.values()), default=0)
        for key, subject in list(self._subjects.items()):
            if subject.measured_ms < newest - FORGOTTEN_MS:
                del self._subjects[key]
                for name in [name for name in self._alerts if name.endswith(f"|{key}")]:
                    self._end(name, now_ms)

    # --- what is shown ------------------------------------------------------------------------

    def _calls_of(self, callee: str | None, now_ms: int) -> tuple[list[float], int]:
        """The durations of the last minute's good calls, ascending, and how many failed."""
        start = now_ms - CALLS_MS
        found = [
            call for call in self._calls if call[0] > start and callee in (None, call[5])
        ]  # fmt: skip
        took = sorted(call[7] for call in found if call[9] is None)
        return took, sum(call[9] is not None for call in found)

    def shown(self, now_ms: int) -> Mapping[str, Any]:
        """The newest measurements of each subject, and the calls of the last minute."""
        self._forget(now_ms)
        subjects = sorted(self._subjects.items())
        return {
            "measured_ms": max((each.measured_ms for each in self._subjects.values()), default=0),
            "hosts": [
                {"name": key, **_figures(each)} for key, each in subjects if each.kind is None
            ],
            "processes": [
                {
                    "name": key,
                    "kind": each.kind,
                    "host": each.host,
                    "answers": bool(each.value("answers")),
                    **_figures(each),
                    **self._latency(key, now_ms),
                }
                for key, each in subjects
                if each.kind is not None
            ],
            "calls": self._latency(None, now_ms),
            "slowest": self._slowest(now_ms),
            "alerts": sorted(self._alerts.values(), key=lambda each: -each["since_ms"]),
            "over": list(self._over),
        }

    def _latency(self, callee: str | None, now_ms: int) -> dict[str, Any]:
        took, errors = self._calls_of(callee, now_ms)
        return {
            "calls": len(took) + errors,
            "errors": errors,
            "p50_ms": _rounded(quantile(took, 0.5)),
            "p99_ms": _rounded(quantile(took, 0.99)),
        }

    def _slowest(self, now_ms: int) -> list[dict[str, Any]]:
        """The call stack of the slowest request of the last minute, outermost first."""
        start = now_ms - CALLS_MS
        first = [call for call in self._calls if call[0] > start and call[3] is None]
        if not first:
            return []
        slowest = max(first, key=lambda call: (call[7], call[1]))
        below: dict[str | None, list[list[Any]]] = {}
        for call in self._calls:
            if call[1] == slowest[1]:
                below.setdefault(call[3], []).append(call)
        found: list[dict[str, Any]] = []
        waiting = [(slowest, 0)]
        while waiting and len(found) < STACK_MAX:
            (at_ms, _, span, _, caller, callee, operation, took, served, error), depth = (
                waiting.pop()
            )
            found.append(
                {
                    "depth": depth,
                    "at_ms": at_ms,
                    "caller": caller,
                    "callee": callee,
                    "operation": operation,
                    "took_ms": _rounded(took),
                    "served_ms": _rounded(served),
                    "error": error,
                }
            )
            waiting += [(call, depth + 1) for call in below.get(span, ())]
        return found

    def results(self, now_ms: int) -> list[Result]:
        """The alerts that began or ended since the last call."""
        self._forget(now_ms)
        new, self._new = self._new, []
        return [
            Result(
                SITE_OPERATIONS,
                alert["over_ms"] or alert["since_ms"],
                f"{alert['alert']}|{alert['subject']}|{bool(alert['over_ms'])}",
                {
                    "alert": alert["alert"],
                    "subject": alert["subject"],
                    "is_over": bool(alert["over_ms"]),
                    "since": alert["since_ms"],
                    "evidence": alert["evidence"],
                },
            )
            for alert in new
        ]

    def state(self) -> Mapping[str, Any]:
        return {
            "subjects": {key: each.state() for key, each in self._subjects.items()},
            "calls": list(self._calls),
            "alerts": self._alerts,
            "over": list(self._over),
            "new": self._new,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._subjects = {key: Subject.restored(each) for key, each in state["subjects"].items()}
        self._calls.extend(list(map(list, state["calls"])))
        self._alerts = dict(state["alerts"])
        self._over.extend(state["over"])
        self._new = list(state["new"])


def _machine_verdicts(machine: Subject, name: str) -> list[Verdict]:
    if name == "cpu.max":
        mean, cores = machine.mean("cpu", MACHINE_ROUNDS), machine.value("cpu.max")
        part = mean / cores if mean is not None and cores else None
        said = f"{100 * (part or 0):.0f} % of its processor time is used"
        return [bounded("processor", part, MACHINE_BUSY, MACHINE_OVER, said)]
    used, most = machine.value("memory"), machine.value("memory.max")
    if name == "memory.max" and used is not None and most:
        said = f"{100 * used / most:.0f} % of the memory is used"
        return [bounded("memory", used / most, MEMORY, MEMORY_OVER, said)]
    free, size = machine.value("disk.free"), machine.value("disk.max")
    if name == "disk.max" and free is not None and size:
        said = f"{100 * free / size:.0f} % of the disk is free"
        return [bounded("disk", 1 - free / size, 1 - DISK, 1 - DISK_OVER, said)]
    return []


MEASUREMENTS: Final = (
    *("cpu", "cpu.max", "memory", "memory.max", "disk.read", "disk.written", "disk.free"),
    *("disk.max", "network.in", "network.out", "open.files", "threads"),
)

KEPT: Final = frozenset({"answers", *MEASUREMENTS})


def _figures(subject: Subject) -> dict[str, float | None]:
    """The newest values; None: not measured."""
    return {
        name.replace(".", "_"): _rounded(subject.value(name)) for name in MEASUREMENTS
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
