"""Workers: what an exception of a thread leads to, and what is said of it."""

import threading
import weakref
from collections import Counter
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from kafka2011.runtime import workers
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.runtime.workers import Worker, failing, failure_counts, restart_pause_s
from tests.support.waiting import DEADLINE_S, wait_until
from tests.unit.runtime.test_metrics import get


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No failure of another test is known, and a restart comes at once."""
    monkeypatch.setattr(workers, "_failures", Counter())
    monkeypatch.setattr(workers, "_failed", weakref.WeakSet())
    monkeypatch.setattr(workers, "RESTART_FIRST_S", 0.001)


def fails() -> None:
    raise ZeroDivisionError("a bug")


def ended(**rule: object) -> Worker:
    """A worker that failed and is not run again."""
    worker = Worker(fails, "placement", restarts=False, **rule)  # type: ignore[arg-type]
    worker.start()
    wait_until(lambda: not worker.is_alive(), "its end")
    return worker


def test_the_target_runs_again_until_it_returns() -> None:
    left = [SystemExit(), ZeroDivisionError()]

    def target() -> None:
        if left:
            raise left.pop()

    worker = Worker(target, "placement", restarts=True)
    worker.start()
    wait_until(lambda: not worker.is_alive(), "the third run's end")
    assert (left, failure_counts()) == ([], {"placement": 2})


def test_one_that_is_not_run_again_gives_its_owner_the_cause() -> None:
    causes: list[BaseException] = []
    ended(on_failure=causes.append)
    assert [type(cause) for cause in causes] == [ZeroDivisionError]


def test_a_worker_that_its_owner_ends_is_not_run_again() -> None:
    begun, going = threading.Event(), threading.Event()

    def target() -> None:
        begun.set()
        going.wait(DEADLINE_S)
        fails()

    worker = Worker(target, "placement", restarts=True)
    worker.start()
    begun.wait(DEADLINE_S)
    joining = threading.Thread(target=worker.join)
    joining.start()
    wait_until(worker._is_ending.is_set, "the owner's join")
    going.set()
    joining.join(DEADLINE_S)
    assert (failure_counts(), failing()) == ({"placement": 1}, [])


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(1, 0.1), (2, 0.2), (5, 1.6), (20, 30.0), (10**6, 30.0)]
)
def test_the_pause_before_a_restart_doubles_to_its_longest(
    monkeypatch, failures: int, pause_s: float
) -> None:
    monkeypatch.setattr(workers, "RESTART_FIRST_S", 0.1)
    assert restart_pause_s(failures) == pytest.approx(pause_s)


def test_health_and_metrics_name_it_until_its_owner_is_done_with_it() -> None:
    with closing(MetricsServer(CollectorRegistry(), lambda: True)) as server:
        assert get(server, "/healthz") == (200, b"ok\n")
        worker = ended()
        assert get(server, "/healthz") == (503, b"failed: placement\n")
        assert (
            b'kafka2011_worker_failures_total{worker="placement"} 1.0' in get(server, "/metrics")[1]
        )
        assert b"kafka2011_workers_failing 1.0" in get(server, "/metrics")[1]
        worker.join()
        assert get(server, "/healthz")[0] == 200


def test_one_that_runs_again_is_failing_for_a_while(monkeypatch) -> None:
    going = threading.Event()
    left = [ZeroDivisionError()]

    def target() -> None:
        if left:
            raise left.pop()
        going.wait(DEADLINE_S)

    worker = Worker(target, "placement", restarts=True)
    worker.start()
    wait_until(failing, "the failure to show")
    monkeypatch.setattr(workers, "RECENT_S", 0)
    assert failing() == []
    going.set()
    worker.join()


def test_the_names_that_are_counted_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(workers, "NAMES_MAX", 1)
    for name in ("a", "b", "c", "a"):
        worker = Worker(fails, name, restarts=False)
        worker.start()
        wait_until(lambda one=worker: not one.is_alive(), "its end")
    assert failure_counts() == {"a": 2, workers.OTHER: 2}
