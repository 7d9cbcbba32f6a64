"""The scheduler starts due jobs, each of them once at a time."""

import signal
import subprocess
from collections.abc import Sequence

import pytest

from kafka2011.services.warehouse.schedule.scheduler import Scheduler, starter
from kafka2011.services.warehouse.schedule.timetable import parse_schedule

HOUR_MS = 3_600_000
BEGAN_MS = 1_000_000 * HOUR_MS


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
    """A scheduler with its clock, and the jobs that were started: an hourly load, and a report
    every two hours."""

    def __init__(self) -> None:
        self.at_ms = BEGAN_MS
        self.started: list[str] = []
        self.processes: list[Running] = []
        self.broken = ""  # a job that does not start
        jobs = parse_schedule("every 1h load\nevery 2h report", ("load", "report"))
        self.scheduler = Scheduler(jobs, start=self.start, clock=lambda: self.at_ms)

    def start(self, command: Sequence[str]) -> Running:
        (job,) = command
        if job == self.broken:
            raise OSError("no memory")
        self.started.append(job)
        self.processes.append(Running())
        return self.processes[-1]

    def step(self, after_ms: int = 0) -> None:
        self.at_ms += after_ms
        self.scheduler.step()


def test_a_job_that_still_runs_is_started_once_when_it_has_ended() -> None:
    world = World()
    scheduler = world.scheduler
    world.step()
    assert world.started == ["load", "report"]
    assert [job["is_running"] for job in scheduler.status()] == [True, True]
    world.processes[1].status = 1
    for _ in range(5):
        world.step(after_ms=HOUR_MS)
    assert world.started == ["load", "report", "report"]
    world.processes[0].status = 0
    world.step()
    world.step(after_ms=1)
    assert world.started == ["load", "report", "report", "load"]
    load, report = scheduler.status()
    assert (load["job"], load["runs"], load["failures"]) == ("1:load", 1, 0)
    assert load["last"] == {"started_ms": BEGAN_MS, "took_ms": 5 * HOUR_MS, "status": 0}
    assert (report["runs"], report["failures"], report["last"]["status"]) == (1, 1, 1)
    runs = {
        (sample.labels["job"], sample.labels["result"]): sample.value
        for family in scheduler.registry.collect()
        for sample in family.samples
        if sample.name == "kafka2011_schedule_runs_total"
    }
    assert runs == {("1:load", "ok"): 1, ("2:report", "failed"): 1}
    scheduler.stop()
    assert [process.signals for process in world.processes] == [[], [], *[[signal.SIGTERM]] * 2]
    assert [job["is_running"] for job in scheduler.status()] == [False, False]


def test_a_job_that_does_not_start_is_tried_at_its_next_time() -> None:
    world = World()
    world.broken = "load"
    world.step()
    world.broken = ""
    world.step()
    assert world.started == ["report"]
    load = world.scheduler.status()[0]
    assert (load["runs"], load["failures"]) == (1, 1)
    world.step(after_ms=HOUR_MS)
    assert world.started == ["report", "load"]


def test_jobs_start_at_their_times_again_when_a_wrong_clock_is_set_back() -> None:
    world = World()
    world.step()
    for process in world.processes:
        process.status = 0
    world.step(after_ms=-2_000)  # what a time server corrects
    world.step(after_ms=2_000)
    assert world.started == ["load", "report"]
    world.step(after_ms=-1_000 * HOUR_MS)
    assert [job["last"]["took_ms"] for job in world.scheduler.status()] == [0, 0]
    assert [job["next_ms"] for job in world.scheduler.status()] == [
        world.at_ms + HOUR_MS,
        world.at_ms + 2 * HOUR_MS,
    ]
    world.step(after_ms=HOUR_MS)
    world.step(after_ms=HOUR_MS)
    assert world.started == ["load", "report", "load", "report"]


def test_a_job_with_a_nul_in_its_words_fails_and_the_others_start() -> None:
    jobs = parse_schedule("every 1h load a\0b\nevery 1h load", ("load",))
    scheduler = Scheduler(jobs, start=starter({}), clock=lambda: BEGAN_MS)
    scheduler.step()
    scheduler.stop()
    assert [job["runs"] for job in scheduler.status()] == [1, 1]


def test_a_job_gets_the_settings_but_neither_the_port_nor_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, env: started.append((words[1:], env)))
    kept = {"KAFKA2011_ZK_CONNECT": "z:2181", "PATH": "/bin"}
    own = {"KAFKA2011_METRICS_PORT": "8080", "KAFKA2011_PROCESS_NAME": "schedule"}
    starter({**kept, **own})(("load", "--set", "a=b"))
    assert started == [(["-m", "kafka2011", "load", "--set", "a=b"], kept)]
