"""The load process: once or in a loop, its log, its pauses, and its exit status."""

import contextlib
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pyarrow as pa
import pytest
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load import app
from kafka2011.services.warehouse.load.job import LoadOutcome
from kafka2011.services.warehouse.load.lag import Lag
from kafka2011.services.warehouse.load.progress import Progress
from tests.support.waiting import wait_until
from tests.unit.services.warehouse.load.test_progress import AWAY, RETIRED, loaded

NO_ANSWER = CoordinationUnavailable("no answer")
STUCK = LoadOutcome(unread_bytes={"t": 10}, problems=[AWAY])
LOST = LoadOutcome(lost_to_another=["t 11-0: the table is at 7"])


def every_second() -> Callable[[], float]:
    """A clock on which a second passes between two looks."""
    return map(float, itertools.count()).__next__


class Run(threading.Event):
    """A run of the load process: `load` has the given outcomes, and after the last one this event
    stops the process. Only pauses take time, by a clock of their own; `pauses` are those between
    two loads, `shown` what the status says of the lag at each load, at its plan and at each look.
    """

    def __init__(
        self,
        *outcomes: LoadOutcome | Exception,
        lives: int | None = None,
        monotonic: Callable[[], float] | None = None,
        looks: list[Lag | Exception] | None = None,
        **settings: int,
    ) -> None:
        super().__init__()
        self.outcomes = list(outcomes)
        self.looks = [] if looks is None else looks
        self.pauses: list[float] = []
        self.shown: list[int | None] = []
        self.now_s = self.loaded_s = 0.0
        self.progress = progress = Progress()
        given = {"interval_ms": 0, **settings}
        config = WarehouseConfig(warehouse_dir=Path("nowhere"), **given)  # type: ignore[arg-type]
        clock = monotonic or (lambda: self.now_s)
        process = app.LoadProcess(config, self, progress, self, clock)  # type: ignore[arg-type]
        with structlog.testing.capture_logs() as logged:
            loop = process.run_until_stopped
            looks_left = itertools.repeat(True, lives) if lives else itertools.repeat(True)
            self.status = (
                loop(lambda: next(looks_left, False)) if config.interval_ms else process.run_once()
            )
        self.events = [f"{entry['event']}: {entry.get('detail', '')}" for entry in logged]
        self.loads = len(outcomes) - len(self.outcomes)
        self.rows = progress.status()["rows_loaded"]

    def load(self, planned: Callable[[Lag], None]) -> LoadOutcome:
        if self.now_s > self.loaded_s:
            self.pauses.append(self.now_s - self.loaded_s)
        self.loaded_s = self.now_s
        outcome = self.outcomes.pop(0)
        self._show()
        if not isinstance(outcome, Exception):
            planned(Lag({"t": 100}))
            self._show()
        if not self.outcomes:
            self.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self.now_s += timeout
        return self.is_set()

    def look(self) -> Lag:
        self._show()
        found = self.looks.pop(0) if self.looks else Lag({"t": 0})
        if isinstance(found, Exception):
            raise found
        return found

    def _show(self) -> None:
        self.shown.append(self.progress.status()["lag_bytes"])


@pytest.mark.parametrize(
    ("outcomes", "status", "loads", "logged"),
    [
        ([loaded(5, lag_bytes=9), loaded(5, lag_bytes=4), loaded(1)], 0, 3, ["loaded: "] * 3),
        ([STUCK, loaded(1)], 1, 1, [f"load_problem: {AWAY.text}"]),
        ([loaded(1, problems=[AWAY])], 1, 1, [f"load_problem: {AWAY.text}", "loaded: "]),
        (
            [loaded(5, lag_bytes=9, problems=[RETIRED]), loaded(1)],
            *(1, 2),
            [
                f"load_problem: {RETIRED.text}",
                "loaded: ",
                f"load_problem_over: {RETIRED.text}",
                "loaded: ",
            ],
        ),
        (
            [loaded(5, lag_bytes=9, problems=[AWAY]), loaded(1)],
            *(0, 2),
            [
                f"load_problem: {AWAY.text}",
                "loaded: ",
                f"load_problem_over: {AWAY.text}",
                "loaded: ",
            ],
        ),
        ([LOST, loaded(1)], 0, 1, [f"loaded_by_another_instance: {LOST.lost_to_another[0]}"]),
        ([LoadOutcome(failures=["t: disk full"]), loaded(1)], 1, 1, ["load_problem: t: disk full"]),
        ([NO_ANSWER, loaded(1)], 1, 1, ["load_failed: "]),
    ],
    ids=[
        "caught up",
        "nothing moves",
        "all but a broker's",
        "some were lost before the first of two",
        "a broker that came back for the second",
        "another instance was first",
        "a failure",
        "no ZooKeeper",
    ],
)
def test_once_loads_until_it_has_caught_up_or_nothing_moves(
    outcomes: list[Any], status: int, loads: int, logged: list[str]
) -> None:
    ended = Run(*outcomes)
    assert (ended.status, ended.loads, ended.events) == (status, loads, logged)


def test_the_loop_outlives_problems_and_logs_each_once() -> None:
    ended = Run(
        loaded(3, problems=[AWAY]),
        LoadOutcome(problems=[AWAY]),
        NO_ANSWER,
        RuntimeError("a task failed\nwith a stack"),
        LOST,
        loaded(4),
        interval_ms=1,
    )
    assert (ended.status, ended.loads, ended.rows) == (0, 6, 7)
    problems = [
        AWAY.text,
        "no answer (ZooKeeper at 127.0.0.1:2181)",
        "load: RuntimeError: a task failed",
    ]
    for event in ("load_problem: ", "load_problem_over: "):
        logged = [line.removeprefix(event) for line in ended.events if line.startswith(event)]
        assert logged == problems


def test_the_loop_ends_with_spark() -> None:
    """Also when there is nothing to load, which would not meet its end."""
    ended = Run(loaded(0), loaded(0), interval_ms=1, lives=1)
    assert (ended.status, ended.loads, ended.events[-1]) == (1, 1, "spark_gone: ")
    ended = Run(RuntimeError("gone"), loaded(1), interval_ms=1, lives=1)
    assert (ended.status, ended.loads) == (1, 1)


def test_a_single_load_without_zookeeper_ends_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_answer(*_: object, **__: object) -> Never:
        raise NO_ANSWER

    def start(*_: object, **__: object) -> Never:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(app.ZooKeeperRegistry, "start", no_answer)
    monkeypatch.setattr(app, "start_session", start)
    with structlog.testing.capture_logs() as logged:
        status = app.run_loads(WarehouseConfig(interval_ms=0, metrics_port=-1))
    assert (status, [entry["event"] for entry in logged]) == (1, ["zookeeper_failed"])


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
    ended = Run(outcome, outcome, loaded(1), interval_ms=60_000)
    assert len(ended.pauses) == pauses
    assert all(0 < pause <= 60 for pause in ended.pauses)


def test_the_lag_is_what_waits_at_each_plan_and_each_look_between_loads() -> None:
    """It was what the last load had left of the bytes that it had planned with: 0."""
    looks = [Lag({"t": 20}), Lag({"t": 40})]
    ended = Run(loaded(5, lag_bytes=3), loaded(5), interval_ms=5_000, looks=looks)
    # Before the first plan; at it; after the load; at the two looks; after the second, at the plan.
    assert ended.shown == [None, 100, 3, 20, 40, 100]
    assert ended.pauses == [5]


def test_with_a_look_or_a_load_that_fails_the_lag_is_not_known() -> None:
    looks = [NO_ANSWER, ValueError("a bug in it")]
    ended = Run(loaded(5), NO_ANSWER, loaded(5), interval_ms=5_000, looks=looks)
    # There is no look until the load that failed is made up for.
    assert ended.shown == [None, 100, 0, None, None, None, 100]
    assert (ended.events.count("look_failed: "), ended.pauses) == (1, [5, 5])


def test_tables_are_maintained_also_while_there_is_always_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maintained: list[object] = []
    monkeypatch.setattr(app, "maintain_warehouse", lambda *_: maintained.append(_))
    more = loaded(5, lag_bytes=10, left_bytes=10)
    Run(*[more] * 20, interval_ms=1, upkeep_interval_ms=30_000, monotonic=every_second())
    assert 1 < len(maintained) < 20


def test_what_waits_is_looked_at_while_tables_are_maintained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lag of a minute before stood on the page for as long as that took."""
    looks: list[Lag | Exception] = [NO_ANSWER, Lag({"t": 40})]

    def maintain(*_: object) -> None:
        wait_until(lambda: not looks, "the looks")

    monkeypatch.setattr(app, "LOOK_INTERVAL_S", 0.001)
    monkeypatch.setattr(app, "maintain_warehouse", maintain)
    ended = Run(
        loaded(1, lag_bytes=7),
        interval_ms=1,
        upkeep_interval_ms=1,
        monotonic=every_second(),
        looks=looks,
    )
    assert ended.shown[:4] == [None, 100, 7, None]
    assert not looks


def test_the_loop_outlives_whatever_upkeep_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def maintain(*_: object) -> Never:
        raise ValueError("year -255 is out of range")

    monkeypatch.setattr(app, "maintain_warehouse", maintain)
    ended = Run(loaded(1), loaded(2), interval_ms=1, upkeep_interval_ms=1, monotonic=every_second())
    assert (ended.status, ended.loads) == (0, 2)
    assert ended.events.count("upkeep_failed: ") == 2


@pytest.mark.parametrize("name", ["a%41b", "100%25", "a%2Fb", "a\\b", "a%b", "50%", "ä ö", "a#b?+"])
def test_a_warehouse_is_refused_where_its_tables_could_not_be_opened(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name / "warehouse"
    table = tmp_path / name / "tried"
    table.mkdir(parents=True)
    with contextlib.suppress(DeltaError):
        DeltaTable.create(str(table), pa.schema([("a", pa.int32())]))
    can_be_opened = True
    try:
        storage.open_table(table)
    except DeltaError:
        can_be_opened = False
    with structlog.testing.capture_logs() as logged:
        assert app.holds_warehouse(place) == can_be_opened
    assert [entry["event"] for entry in logged] == ([] if can_be_opened else ["warehouse_refused"])


def test_a_refused_warehouse_ends_the_process_before_anything_is_made(tmp_path: Path) -> None:
    config = WarehouseConfig(warehouse_dir=tmp_path / "a%41b" / "warehouse", interval_ms=0)
    with structlog.testing.capture_logs() as logged:
        assert app.run_loads(config) == 1
    (refused,) = (entry for entry in logged if entry["event"] == "warehouse_refused")
    assert refused["warehouse"] == str(config.warehouse_dir)
    assert "'%41' in its path" in refused["reason"]
    assert [*tmp_path.iterdir()] == []
