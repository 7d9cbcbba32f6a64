"""Runs a schedule: each due job is a process; a job that fails is logged, the others continue.

On SIGTERM it sends SIGTERM to the running jobs and waits for them. /status on the metrics port has
each job's next start, number of runs and last result.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.config import environment_name
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import Answer, address_text, serve_metrics
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.signals import stop_event
from kafka2011.services.warehouse.schedule.config import ScheduleConfig
from kafka2011.services.warehouse.schedule.timetable import Job

log = get_logger(__name__)

POLL_INTERVAL_MS = 500
STEP_AGE_S_MAX = 30.0  # a step only starts processes: one that takes longer hangs
# The schedule's own: a job must not claim its port, nor its name in the process registry.
NOT_INHERITED = ("metrics.port", "process.name")


class Process(Protocol):
    """A running job; subprocess.Popen is one."""

    def poll(self) -> int | None: ...

    def send_signal(self, number: int) -> None: ...

    def wait(self) -> int: ...


Start = Callable[[Sequence[str]], Process]


def starter(environment: Mapping[str, str]) -> Start:
    """A function that starts commands of kafka2011 under this interpreter, with the settings of
    `environment` and this process's output."""
    own = {environment_name(name) for name in NOT_INHERITED}
    given = {name: value for name, value in environment.items() if name not in own}

    def start(command: Sequence[str]) -> Process:
        return subprocess.Popen([sys.executable, "-m", "kafka2011", *command], env=given)

    return start


@dataclass(slots=True)
class _Entry:
    """One job's state. `last` is the run that ended last, as in /status."""

    job: Job
    due_ms: int
    running: Process | None = None
    started_ms: int = 0
    runs: int = 0
    failures: int = 0
    last: dict[str, int] | None = None


class Scheduler:
    """Starts jobs at their times; they run in parallel, but none twice at a time.

    One thread calls `step`; any thread may call `status` and `is_stepping`.
    """

    def __init__(self, jobs: Sequence[Job], start: Start, clock: Clock = now_ms) -> None:
        self._start = start
        self._clock = clock
        self._stepped_s = time.monotonic()
        self._entries = [_Entry(job, job.next_after(clock() - 1)) for job in jobs]
        self.registry = CollectorRegistry()
        self._runs = Counter(
            "kafka2011_schedule_runs_total",
            "Runs of a job that ended or did not start, by result.",
            ["job", "result"],
            registry=self.registry,
        )
        self._running = Gauge(
            "kafka2011_schedule_running", "Jobs that run at present.", registry=self.registry
        )
        self._running.set_function(
            lambda: sum(entry.running is not None for entry in self._entries)
        )

    def step(self) -> None:
        """Record the jobs that ended and start those that are due."""
        at_ms = self._clock()
        self._stepped_s = time.monotonic()
        for entry in self._entries:
            if entry.running is not None:
                self._poll(entry, at_ms)
            # By the clock that was set back since, as after a start with a wrong one. A step of
            # seconds starts no job twice.
            if entry.due_ms - at_ms > 2 * entry.job.period_ms:
                entry.due_ms = entry.job.next_after(at_ms)
            if entry.running is None and entry.due_ms <= at_ms:
                self._begin(entry, at_ms)

    @property
    def is_stepping(self) -> bool:
        """Whether `step` is still called, so that jobs start at their times."""
        return time.monotonic() - self._stepped_s < STEP_AGE_S_MAX

    def status(self) -> list[dict[str, Any]]:
        """The jobs in the order of the file: times in ms since the epoch, `last` null before the
        first run has ended."""
        return [
            {
                "job": entry.job.name,
                "command": " ".join(entry.job.command),
                "next_ms": entry.due_ms,
                "is_running": entry.running is not None,
                "runs": entry.runs,
                "failures": entry.failures,
                "last": entry.last,
            }
            for entry in self._entries
        ]

    def _poll(self, entry: _Entry, at_ms: int) -> None:
        assert entry.running is not None
        status = entry.running.poll()
        if status is None:
            return
        entry.running = None
        took_ms = max(0, at_ms - entry.started_ms)
        entry.last = {"started_ms": entry.started_ms, "took_ms": took_ms, "status": status}
        self._count(entry, is_good=status == 0)
        write = log.info if status == 0 else log.warning
        write("job ended", job=entry.job.name, status=status, seconds=round(took_ms / 1000, 1))

    def _begin(self, entry: _Entry, at_ms: int) -> None:
        entry.due_ms = entry.job.next_after(at_ms)
        entry.started_ms = at_ms
        try:
            entry.running = self._start(entry.job.command)
        except (OSError, ValueError) as error:  # the second: a NUL in an argument
            self._count(entry, is_good=False)
            log.warning("job_start_failed", job=entry.job.name, reason=reason_of(error))
        else:
            log.info("job_started", job=entry.job.name, command=" ".join(entry.job.command))

    def _count(self, entry: _Entry, *, is_good: bool) -> None:
        entry.runs += 1
        entry.failures += not is_good
        self._runs.labels(entry.job.name, "ok" if is_good else "failed").inc()

    def stop(self) -> None:
        """Send SIGTERM to the running jobs and wait until they have ended."""
        running = [entry.running for entry in self._entries if entry.running is not None]
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait()
        self.record_ended()

    def record_ended(self) -> None:
        """Record the jobs that ended; starts none."""
        for entry in self._entries:
            if entry.running is not None:
                self._poll(entry, self._clock())


def run_until_stopped(scheduler: Scheduler, stop: threading.Event) -> int:
    """Step until `stop` is set; returns the exit status."""
    while not stop.is_set():
        scheduler.step()
        stop.wait(POLL_INTERVAL_MS / 1000)
    scheduler.stop()
    return 0


def run_schedule(
    config: ScheduleConfig, jobs: Sequence[Job], environment: Mapping[str, str]
) -> int:
    """Run the schedule until a signal; returns the exit status. Raises CannotListen."""
    stop = stop_event()
    scheduler = Scheduler(jobs, starter(environment))

    def status() -> Answer:
        return 200, "application/json", json.dumps({"jobs": scheduler.status()}).encode() + b"\n"

    metrics = serve_metrics(
        config, scheduler.registry, lambda: scheduler.is_stepping, routes={"/status": status}
    )
    log.info("serving", jobs=len(jobs), metrics=address_text(metrics), pid=os.getpid())
    try:
        return run_until_stopped(scheduler, stop)
    finally:
        if metrics is not None:
            metrics.close()
