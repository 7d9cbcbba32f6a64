"""A log that was lost or replaced, before and after a reset."""

from typing import Any

import pytest

from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.load.plan import BEYOND_END, Problem
from kafka2011.services.warehouse.load.replay import replay
from kafka2011.services.warehouse.load.reset import reset_partition
from tests.unit.services.warehouse.load.deployment import FIRST, SECOND, Deployment, run_here


def test_a_replaced_log_is_not_forgotten_when_it_has_grown(deployment: Deployment) -> None:
    end = deployment.append(range(10))
    loader = deployment.loader()
    loader.load()

    def problem() -> Problem:
        outcome = loader.load()
        assert outcome.rows == {}
        (found,) = [problem for problem in outcome.problems if problem.source == FIRST]
        return found

    deployment.log.clear()
    assert deployment.append(range(100, 105)) < end
    first = problem()
    assert first.kind == BEYOND_END
    assert "load --reset access-log/11-0" in first.text
    deployment.brokers[11].hang_ups = 100
    assert problem() == first
    deployment.brokers[11].hang_ups = 0
    assert deployment.append(range(105, 130)) > end
    assert problem() == first


@pytest.mark.parametrize("is_same_length", [False, True], ids=["mid-entry", "at an entry"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_replaced_log_that_has_outgrown_what_was_loaded_is_known(
    deployment: Deployment, is_restarted: bool, is_same_length: bool
) -> None:
    deployment.append(range(10), b"junk old")
    loader = deployment.loader()
    loader.load()
    deployment.append(range(10, 12), b"junk of more")
    assert loader.load().problems == []
    end = deployment.brokers[11].end(ACCESS_LOG, 0)
    deployment.log.clear()
    deployment.append(range(100, 110), b"junk new")
    deployment.append(
        range(110, 112), b"junk of than" if is_same_length else b"junk that is longer"
    )
    assert deployment.append(range(112, 120)) > end
    outcome = (deployment if is_restarted else loader).load()
    assert outcome.rows == {}
    (problem,) = outcome.problems
    assert problem.kind == BEYOND_END
    assert "the log has other bytes before that" in problem.text
    reset_partition(deployment.warehouse, ACCESS_LOG, FIRST, 0, 10_000)
    loader = deployment.loader()
    assert (loader.load().problems, loader.load().problems) == ([], [])
    assert deployment.numbers() == [*range(12), *range(100, 120)]


def test_a_log_that_is_lost_between_plan_and_task_is_not_read(deployment: Deployment) -> None:
    deployment.append(range(10))
    deployment.load()
    deployment.append(range(10, 12))

    def run_late(function: Any, tasks: Any) -> Any:
        deployment.log.clear()
        deployment.append(range(100, 130))
        return run_here(function, tasks)

    outcome = deployment.loader(run_late).load()
    assert outcome.rows == {}
    assert "is not the one that was loaded up to" in outcome.failures[0]
    assert [one.kind for one in deployment.load().problems] == [BEYOND_END]


def test_after_a_reset_the_new_log_is_loaded_whole(deployment: Deployment) -> None:
    end = deployment.append(range(10), b"junk 1")
    loader = deployment.loader()
    loader.load()
    deployment.log.clear()
    deployment.append(range(100, 103), b"junk 2")
    assert loader.load().problems
    since = deployment.commits()[-1].version
    assert reset_partition(deployment.warehouse, ACCESS_LOG, FIRST, 0, 10_000) == end
    (info,) = deployment.commits(since_version=since)
    assert (info.gaps, info.offsets, info.rows) == ({FIRST: (end, 0)}, {FIRST: 0}, 0)
    config = WarehouseConfig(warehouse_dir=deployment.warehouse, event_forms=FORMS_2011)
    replayed = replay(config, ACCESS_LOG)
    assert (replayed.rows, replayed.left) == (0, 1)
    assert "of a log before --reset" in replayed.reason
    # The process that has found the problem continues, and so does a new one.
    outcome = loader.load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 3}, [])
    deployment.append(range(103, 105))
    assert deployment.load().rows == {ACCESS_LOG: 2}
    assert deployment.numbers() == [*range(10), *range(100, 105)]
    assert deployment.quarantined() == [b"junk 1", b"junk 2"]
    replayed = replay(config, ACCESS_LOG)
    assert (replayed.rows, replayed.left) == (0, 2)
    assert replayed.reason.startswith("the payload is not in the 2011 form")


@pytest.mark.parametrize("rows", [0, 2], ids=["no table", "a table of another partition"])
def test_a_partition_that_was_never_loaded_is_not_reset(deployment: Deployment, rows: int) -> None:
    deployment.append(range(rows))
    deployment.load()
    with pytest.raises(WarehouseError, match="access-log/12-1 was never loaded"):
        reset_partition(deployment.warehouse, ACCESS_LOG, SECOND, 0, 10_000)
