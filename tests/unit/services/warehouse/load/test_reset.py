"""A log that was lost or replaced, before and after a reset."""

import pytest

from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.load.plan import BEYOND_END, Problem
from kafka2011.services.warehouse.load.reset import reset_partition
from tests.unit.services.warehouse.load.deployment import FIRST, SECOND, Deployment


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
    # The process that has found the problem continues, and so does a new one.
    outcome = loader.load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 3}, [])
    deployment.append(range(103, 105))
    assert deployment.load().rows == {ACCESS_LOG: 2}
    assert deployment.numbers() == [*range(10), *range(100, 105)]
    assert deployment.quarantined() == [b"junk 1", b"junk 2"]


@pytest.mark.parametrize("rows", [0, 2], ids=["no table", "a table of another partition"])
def test_a_partition_that_was_never_loaded_is_not_reset(deployment: Deployment, rows: int) -> None:
    deployment.append(range(rows))
    deployment.load()
    with pytest.raises(WarehouseError, match="access-log/12-1 was never loaded"):
        reset_partition(deployment.warehouse, ACCESS_LOG, SECOND, 0, 10_000)
