"""The scheduler starts due jobs, each of them once at a time."""

import signal
import subprocess
from collections.abc import Sequence

import pytest

from kafka2011.services.warehouse.schedule.scheduler import Scheduler, starter
from kafka2011.services.warehouse.schedule.timetable import parse_schedule

HOUR_MS = 3_600_000


class Running:
    """A process that ends at a signal."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.status

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        self.status = 0

    def wait(self) -> int:
        assert self.status is not None
        return self.status


class World:
    """A clock, and the jobs that were started."""

    def __init__(self, schedule: str = "every 1h load") -> None:
        self.at_ms = 1_000_000 * HOUR_MS
        self.started: list[tuple[str, ...]] = []
        self.processes: list[Running] = []
        self.is_broken = False
        jobs = parse_schedule(schedule, ("load", "report"))
        self.scheduler = Scheduler(jobs, start=self.start, clock=lambda: self.at_ms)

    def start(self, command: Sequence[str]) -> Running:
        if self.is_broken:
            raise OSError("no memory")
        self.started.append(tuple(command))
        self.processes.append(Running())
        return self.processes[-1]


def test_a_job_that_still_runs_is_started_once_when_it_has_ended() -> None:
    world = World("every 1h load\nevery 2h report")
    scheduler = world.scheduler
    scheduler.step()
    assert world.started == [("load",), ("report",)]
    assert [job["is_running"] for job in scheduler.status()] == [True, True]
    world.processes[1].status = 1
    for _ in range(5):
        world.at_ms += HOUR_MS
        scheduler.step()
    assert world.started == [("load",), ("report",), ("report",)]
    world.processes[0].status = 0
    scheduler.step()
    assert world.started[3:] == [("load",)]
    world.at_ms += 1
    scheduler.step()
    assert len(world.started) == 4
    load, report = scheduler.status()
    began_ms = 1_000_000 * HOUR_MS
    assert (load["job"], load["runs"], load["failures"]) == ("1:load", 1, 0)
    assert load["last"] == {"started_ms": began_ms, "took_ms": 5 * HOUR_MS, "status": 0}
    assert (report["runs"], report["failures"], report["last"]["status"]) == (1, 1, 1)
    runs = {
        (sample.labels["job"], sample.labels["result"]): sample.value
        for family in scheduler.registry.collect()
        for sample in family.samples
        if sample.name == "kafka2011_schedule_runs_total"
    }
    assert runs == {("1:load", "ok"): 1, ("2:report", "failed"): 1}


def test_a_job_gets_the_settings_but_neither_the_port_nor_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, env: started.append((words, env)))
    given = {"KAFKA2011_ZK_CONNECT": "z:2181", "KAFKA2011_METRICS_PORT": "8080", "PATH": "/bin"}
    starter({**given, "KAFKA2011_PROCESS_NAME": "schedule"})(("load", "--set", "a=b"))
    ((words, environment),) = started
    assert words[1:] == ["-m", "kafka2011", "load", "--set", "a=b"]
    assert environment == {"KAFKA2011_ZK_CONNECT": "z:2181", "PATH": "/bin"}


def test_a_job_that_does_not_start_is_tried_at_its_next_time() -> None:
    world = World()
    scheduler = world.scheduler
    world.is_broken = True
    scheduler.step()
    world.is_broken = False
    scheduler.step()
    assert world.started == []
    assert [(job["runs"], job["failures"]) for job in scheduler.status()] == [(1, 1)]
    world.at_ms += HOUR_MS
    scheduler.step()
    assert world.started == [("load",)]


def test_stopping_ends_the_jobs_that_run() -> None:
    world = World()
    scheduler = world.scheduler
    scheduler.step()
    scheduler.stop()
    assert world.processes[0].signals == [signal.SIGTERM]
    assert world.started == [("load",)]
