"""The load process: once or in a loop, what it says, and how it ends."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load import app as app_module
from kafka2011.services.warehouse.load.app import LoadProcess, Progress
from kafka2011.services.warehouse.load.job import LoadOutcome
from kafka2011.services.warehouse.load.plan import BROKER_AWAY, Problem

AWAY = Problem("t", BrokerPartition(11, 0), BROKER_AWAY, "its broker 11 is away")


class ScriptedLoader:
    """Answers with what it was given, one a load; the last one stops the process."""

    def __init__(self, stop: threading.Event, *script: LoadOutcome | Exception) -> None:
        self.stop = stop
        self.script = list(script)
        self.loads = 0

    def load(self) -> LoadOutcome:
        self.loads += 1
        answer = self.script.pop(0)
        if not self.script:
            self.stop.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def loaded(rows: int, lag_bytes: int = 0, **changed: Any) -> LoadOutcome:
    return LoadOutcome(
        rows={"t": rows},
        versions={"t": 5},
        quarantined={"t": 1},
        lag_bytes={"t": lag_bytes},
        ages={100: rows},
        **changed,
    )


@pytest.fixture
def upkeeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each time that the tables are kept."""
    found: list[int] = []
    monkeypatch.setattr(app_module, "maintain_warehouse", lambda *_: found.append(1))
    return found


Run = Callable[..., tuple[int, ScriptedLoader, Progress, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_script(
        *script: LoadOutcome | Exception,
        interval_ms: int = 0,
        upkeep_interval_ms: int = 600_000,
        alive: bool = True,
    ) -> tuple[int, ScriptedLoader, Progress, list[str]]:
        stop = threading.Event()
        loader = ScriptedLoader(stop, *script)
        progress = Progress()
        config = WarehouseConfig(
            warehouse_dir=tmp_path, interval_ms=interval_ms, upkeep_interval_ms=upkeep_interval_ms
        )
        process = LoadProcess(config, loader, progress, stop)  # type: ignore[arg-type]
        with structlog.testing.capture_logs() as told:
            loops = interval_ms > 0
            status = process.run_until_stopped(lambda: alive) if loops else process.run_once()
        events = [f"{entry['event']}: {entry.get('detail', '')}" for entry in told]
        return status, loader, progress, events

    return run_script


def test_once_goes_on_until_it_has_caught_up(run: Run) -> None:
    status, loader, _, _ = run(loaded(5, lag_bytes=100), loaded(5, lag_bytes=50), loaded(1))
    assert (status, loader.loads) == (0, 3)


def test_once_ends_when_nothing_moves(run: Run) -> None:
    status, loader, _, _ = run(LoadOutcome(lag_bytes={"t": 10}, problems=[AWAY]), loaded(1))
    assert (status, loader.loads) == (0, 1)


def test_once_leaves_quietly_when_another_instance_was_first(run: Run) -> None:
    status, _, _, events = run(
        LoadOutcome(lost_to_another=["t 11-0: the table is at 7"]), loaded(1)
    )
    assert status == 0
    assert events == ["loaded_by_another_instance: t 11-0: the table is at 7"]


def test_once_says_no_when_a_topic_could_not_be_loaded(run: Run) -> None:
    assert run(LoadOutcome(failures=["t: disk full"]), loaded(1))[0] == 1
    assert run(CoordinationUnavailable("no answer"), loaded(1))[0] == 1


def test_the_loop_outlives_what_goes_wrong_and_says_it_once(run: Run) -> None:
    status, loader, progress, events = run(
        loaded(3, problems=[AWAY]),
        LoadOutcome(problems=[AWAY]),
        CoordinationUnavailable("no answer"),
        RuntimeError("a task failed\nwith a stack"),
        LoadOutcome(lost_to_another=["t"]),
        loaded(4),
        interval_ms=1,
    )
    assert (status, loader.loads) == (0, 6)
    assert progress.status()["rows_loaded"] == 7
    wrong = [event for event in events if event.startswith("problem: ")]
    assert wrong == [
        f"problem: {AWAY.text}",
        "problem: ZooKeeper: no answer",
        "problem: load: RuntimeError: a task failed",
    ]
    over = [event for event in events if event.startswith("problem_over: ")]
    assert [event.removeprefix("problem_over: ") for event in over] == [
        event.removeprefix("problem: ") for event in wrong
    ]


def test_the_loop_ends_when_spark_is_gone(run: Run) -> None:
    status, loader, _, _ = run(RuntimeError("gone"), loaded(1), interval_ms=1, alive=False)
    assert (status, loader.loads) == (1, 1)


def test_the_loop_goes_on_at_once_only_where_the_next_load_brings_more(run: Run) -> None:
    began = time.monotonic()
    more = loaded(5, lag_bytes=10, left_bytes=10)
    run(more, more, loaded(1), interval_ms=60_000)
    assert time.monotonic() - began < 30


def test_a_topic_that_cannot_be_loaded_does_not_take_the_pauses_away(run: Run) -> None:
    began = time.monotonic()
    failing = loaded(5, failures=["other: disk full"])
    failing.lag_bytes["other"] = 100
    run(failing, failing, loaded(1), interval_ms=100)
    assert time.monotonic() - began >= 0.2


def test_tables_are_kept_also_while_there_is_always_more(run: Run, upkeeps: list[int]) -> None:
    more = loaded(5, lag_bytes=10, left_bytes=10)
    run(*[more] * 500, interval_ms=1, upkeep_interval_ms=1)
    assert upkeeps


def test_status_and_metrics_say_the_same() -> None:
    progress = Progress()
    assert progress.status()["latency_ms"]["p99"] is None
    progress.record(loaded(99, lag_bytes=7), 1_000, 0.5)
    outcome = loaded(1, problems=[AWAY])
    outcome.ages = {50_000: 1}
    progress.record(outcome, 2_000, 0.5)
    status = progress.status()
    assert (status["rows_loaded"], status["quarantined"], status["lag_bytes"]) == (100, 2, 0)
    assert (status["loads"], status["last_load_ms"]) == (2, 2_000)
    assert status["tables"]["t"] == {"rows": 100, "quarantined": 2, "version": 5, "lag_bytes": 0}
    assert status["problems"] == [AWAY.text]
    latency = status["latency_ms"]
    assert latency["count"] == 100
    assert latency["p50"] == pytest.approx(100, rel=0.02)
    assert latency["max"] == pytest.approx(50_000, rel=0.02)
    sample = progress.registry.get_sample_value
    assert sample("kafka2011_warehouse_rows_total", {"topic": "t"}) == 100
    assert sample("kafka2011_warehouse_problems") == 1


def test_an_event_of_an_old_log_does_not_break_the_histogram() -> None:
    progress = Progress()
    outcome = loaded(1)
    outcome.ages = {10**15: 1, 0: 3}
    progress.record(outcome, 0, 0.1)
    assert progress.status()["latency_ms"]["count"] == 4
