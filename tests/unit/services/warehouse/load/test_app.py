"""The load process: once or in a loop, its log, its pauses, and its exit status."""

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load import app
from kafka2011.services.warehouse.load.app import LoadProcess
from kafka2011.services.warehouse.load.job import LoadOutcome
from kafka2011.services.warehouse.load.progress import Progress
from tests.unit.services.warehouse.load.test_progress import AWAY, loaded

NO_ANSWER = CoordinationUnavailable("no answer")


class Script(threading.Event):
    """A loader whose loads have the given outcomes, and the event that stops the process after the
    last one. Pauses take no time; `pauses` are those before the stop."""

    def __init__(self, *outcomes: LoadOutcome | Exception) -> None:
        super().__init__()
        self.outcomes = list(outcomes)
        self.pauses: list[float] = []

    def load(self) -> LoadOutcome:
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self.pauses.append(timeout)
        return self.is_set()


class Ended(NamedTuple):
    status: int
    loads: int
    rows: int
    pauses: list[float]
    events: list[str]


def run(
    *outcomes: LoadOutcome | Exception,
    interval_ms: int = 0,
    upkeep_interval_ms: int = 600_000,
    alive: bool = True,
    monotonic: Callable[[], float] = time.monotonic,
) -> Ended:
    script = Script(*outcomes)
    progress = Progress()
    config = WarehouseConfig(
        warehouse_dir=Path("nowhere"),
        interval_ms=interval_ms,
        upkeep_interval_ms=upkeep_interval_ms,
    )
    process = LoadProcess(config, script, progress, script, monotonic)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logged:
        status = process.run_until_stopped(lambda: alive) if interval_ms else process.run_once()
    events = [f"{entry['event']}: {entry.get('detail', '')}" for entry in logged]
    loads = len(outcomes) - len(script.outcomes)
    return Ended(status, loads, progress.status()["rows_loaded"], script.pauses, events)


@pytest.mark.parametrize(
    ("outcomes", "status", "loads"),
    [
        ([loaded(5, lag_bytes=100), loaded(5, lag_bytes=50), loaded(1)], 0, 3),
        ([LoadOutcome(lag_bytes={"t": 10}, problems=[AWAY]), loaded(1)], 0, 1),  # nothing moves
        ([LoadOutcome(lost_to_another=["t 11-0: the table is at 7"]), loaded(1)], 0, 1),
        ([LoadOutcome(failures=["t: disk full"]), loaded(1)], 1, 1),
        ([NO_ANSWER, loaded(1)], 1, 1),
    ],
)
def test_once_loads_until_it_has_caught_up_or_nothing_moves(
    outcomes: list[Any], status: int, loads: int
) -> None:
    ended = run(*outcomes)
    assert (ended.status, ended.loads) == (status, loads)


def test_another_instance_that_was_first_is_one_line() -> None:
    ended = run(LoadOutcome(lost_to_another=["t 11-0: the table is at 7"]), loaded(1))
    assert ended.events == ["loaded_by_another_instance: t 11-0: the table is at 7"]


def test_the_loop_outlives_problems_and_logs_each_once() -> None:
    ended = run(
        loaded(3, problems=[AWAY]),
        LoadOutcome(problems=[AWAY]),
        NO_ANSWER,
        RuntimeError("a task failed\nwith a stack"),
        LoadOutcome(lost_to_another=["t"]),
        loaded(4),
        interval_ms=1,
    )
    assert (ended.status, ended.loads, ended.rows) == (0, 6, 7)
    problems = [AWAY.text, "ZooKeeper: no answer", "load: RuntimeError: a task failed"]
    for event in ("problem: ", "problem_over: "):
        logged = [line.removeprefix(event) for line in ended.events if line.startswith(event)]
        assert logged == problems


def test_the_loop_ends_with_spark() -> None:
    ended = run(RuntimeError("gone"), loaded(1), interval_ms=1, alive=False)
    assert (ended.status, ended.loads) == (1, 1)


@pytest.mark.parametrize(
    ("outcome", "pauses"),
    [
        (loaded(5, lag_bytes=10, left_bytes=10), 0),
        (loaded(5, lag_bytes=10), 2),
        # A topic that cannot be loaded has bytes left, and does not take the pauses away.
        (loaded(5, failures=["other: disk full"], lag_bytes=100), 2),
    ],
)
def test_the_loop_continues_at_once_only_where_the_next_load_brings_more(
    outcome: LoadOutcome, pauses: int
) -> None:
    ended = run(outcome, outcome, loaded(1), interval_ms=60_000)
    assert len(ended.pauses) == pauses
    assert all(0 < pause <= 60 for pause in ended.pauses)


def test_tables_are_maintained_also_while_there_is_always_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maintained: list[object] = []
    monkeypatch.setattr(app, "maintain_warehouse", lambda *_: maintained.append(_))
    more = loaded(5, lag_bytes=10, left_bytes=10)
    seconds = itertools.count()
    run(*[more] * 20, interval_ms=1, upkeep_interval_ms=30_000, monotonic=lambda: next(seconds))
    assert 1 < len(maintained) < 20
