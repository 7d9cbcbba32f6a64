"""A log that was lost or replaced, before and after a reset."""

import pytest

from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.load.plan import BEYOND_END, Problem
from kafka2011.services.warehouse.load.reset import reset_partition
from tests.unit.services.warehouse.load.deployment import SECOND, Deployment
from tests.unit.services.warehouse.samples import FIRST


def test_a_replaced_log_is_not_forgotten_when_it_has_grown(deployment: Deployment) -> None:
    end = deployment.append(range(10))
    loader = deployment.loader()
    loader.load()

    def problem() -> Problem:
        outcome = loader.load()
        assert outcome.rows == {}
        (found,) = [problem for problem in outcome.problems if problem.source == FIRST]
        return found

    assert deployment.replace_log(range(100, 105)) < end
    problems = [problem()]
    deployment.silent.add(FIRST.broker_id)
    problems.append(problem())
    deployment.silent.clear()
    assert deployment.append(range(105, 130)) > end
    problems.append(problem())
    assert problems[0].kind == BEYOND_END
    assert problems == [problems[0]] * 3  # one problem, and never over
    assert "load --reset access-log/11-0" in problems[0].text


def test_after_a_reset_the_new_log_is_loaded_whole(deployment: Deployment) -> None:
    deployment.append(range(10))
    end = deployment.log.append([b"junk 1"])
    loader = deployment.loader()
    loader.load()
    deployment.replace_log(range(100, 103))
    deployment.log.append([b"junk 2"])
    assert loader.load().problems
    since = deployment.commits()[-1].version
    assert reset_partition(deployment.warehouse, ACCESS_LOG, FIRST, 0, 10_000) == end
    (info,) = deployment.commits(since_version=since)
    assert (info.gaps, info.offsets, info.rows) == ({FIRST: (end, 0)}, {FIRST: 0}, 0)
    # The process that has found the problem continues, and so does a new one.
    outcome = loader.load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 3}, [])
    deployment.append(range(103, 105))
    assert deployment.load().rows == {ACCESS_LOG: 2}
    assert len({row[0] for row in deployment.rows()}) == 15
    assert deployment.quarantined() == [b"junk 1", b"junk 2"]


@pytest.mark.parametrize("is_table_there", [False, True])
def test_a_partition_that_was_never_loaded_is_not_reset(
    deployment: Deployment, is_table_there: bool
) -> None:
    if is_table_there:
        deployment.append(range(2))
        deployment.load()
    with pytest.raises(WarehouseError, match="access-log/12-1 was never loaded"):
        reset_partition(deployment.warehouse, ACCESS_LOG, SECOND, 0, 10_000)
