"""A replica set whose log was cut by an unclean election, as the loads meet it."""

from typing import Any

import pytest

from kafka2011.coordination import paths
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.load.plan import BEYOND_END, CUT, OLDER_LEADER
from kafka2011.services.warehouse.load.reset import reset_partition
from tests.support.scripted_server import ScriptedBroker
from tests.unit.services.warehouse.load.deployment import FIRST, Deployment, run_here


def a_set(deployment: Deployment) -> ScriptedBroker:
    deployment.registry.put(paths.replica_state_path(FIRST.broker_id), b"{}")
    broker = deployment.brokers[FIRST.broker_id]
    broker.lead_anew(ACCESS_LOG, 1, 0)
    return broker


def test_what_a_set_lost_is_named_and_loading_goes_on_where_the_logs_parted(
    deployment: Deployment,
) -> None:
    broker = a_set(deployment)
    kept = deployment.append(range(5), b"junk of all")
    end = deployment.append(range(5, 8), b"junk of some")
    loader = deployment.loader()
    loader.load()
    # The new log is longer than what was loaded of the old one.
    broker.lead_anew(ACCESS_LOG, 2, kept)
    assert deployment.append(range(100, 110), b"junk of another") > end
    outcome = loader.load()
    [problem] = outcome.problems
    assert problem.kind == CUT
    assert f"from {kept} to {end} is not in the log any more" in problem.text
    assert outcome.rows == {ACCESS_LOG: 10}
    assert deployment.commits()[1].gaps == {FIRST: (end, kept)}
    assert deployment.numbers() == [*range(8), *range(100, 110)]
    assert deployment.quarantined() == [b"junk of all", b"junk of another", b"junk of some"]
    # Takeovers that cut nothing cost no word in any load.
    broker.lead_anew(ACCESS_LOG, 3, deployment.append(range(110, 112)))
    assert (deployment.load().problems, loader.load().problems) == ([], [])


def test_a_new_process_knows_what_was_read_also_when_the_new_log_is_shorter(
    deployment: Deployment,
) -> None:
    broker = a_set(deployment)
    deployment.append(range(10))
    for epoch in range(2, 8):
        broker.lead_anew(ACCESS_LOG, epoch, deployment.append(range(10 * epoch, 10 * epoch + 1)))
        deployment.append(range(10 * epoch + 1, 10 * epoch + 2))
        deployment.load()
    kept = broker.lineages[ACCESS_LOG, 0][-2][1]
    end = broker.end(ACCESS_LOG, 0)
    broker.lead_anew(ACCESS_LOG, 9, kept)
    deployment.append(range(900, 901))
    outcome = deployment.load()
    assert [one.kind for one in outcome.problems] == [CUT]
    assert (outcome.rows, deployment.commits()[-2].gaps) == ({ACCESS_LOG: 1}, {FIRST: (end, kept)})
    # Before the epochs that are kept it is not known where the logs parted.
    broker.lead_anew(ACCESS_LOG, 10, 0)
    deployment.append(range(1000, 1100))
    [problem] = deployment.load().problems
    assert (problem.kind, "--reset access-log/11-0" in problem.text) == (BEYOND_END, True)


def test_an_older_leader_is_not_loaded_from(deployment: Deployment) -> None:
    broker = a_set(deployment)
    broker.lead_anew(ACCESS_LOG, 3, deployment.append(range(5)))
    deployment.append(range(5, 6))
    deployment.load()
    broker.lineages[ACCESS_LOG, 0] = ((1, 0),)
    deployment.append(range(6, 7))
    outcome = deployment.load()
    assert [one.kind for one in outcome.problems] == [OLDER_LEADER]
    assert (outcome.rows, deployment.numbers()) == ({}, [*range(6)])


def test_an_election_between_plan_and_reading_ends_the_range(deployment: Deployment) -> None:
    broker = a_set(deployment)
    kept = deployment.append(range(5))
    deployment.append(range(5, 8))

    def elect_and_run(function: Any, tasks: Any) -> Any:
        broker.lead_anew(ACCESS_LOG, 2, kept)
        deployment.append(range(100, 110))
        return run_here(function, tasks)

    outcome = deployment.loader(elect_and_run).load()
    assert "not in the log any more" in outcome.failures[0]
    assert deployment.numbers() == []
    assert deployment.load().problems == []
    assert deployment.numbers() == [*range(5), *range(100, 110)]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_reset_helps_also_where_the_log_begins_behind_the_epochs_that_were_read(
    deployment: Deployment, is_made_anew: bool
) -> None:
    broker = a_set(deployment)
    for epoch in range(2, 8):
        broker.lead_anew(ACCESS_LOG, epoch, deployment.append(range(10 * epoch, 10 * epoch + 2)))
        deployment.append(range(10 * epoch + 2, 10 * epoch + 4))
        deployment.load()
    loader = deployment.loader()
    loader.load()
    broker.lead_anew(ACCESS_LOG, 10, 0)
    if is_made_anew:
        broker.lineages[ACCESS_LOG, 0] = ((1, 0),)
    earliest = deployment.append(range(1000, 1030))
    broker.retire(ACCESS_LOG, 0, earliest)
    deployment.append(range(1030, 1050))
    [problem] = loader.load().problems
    assert problem.kind == (OLDER_LEADER if is_made_anew else BEYOND_END)
    reset_partition(deployment.warehouse, ACCESS_LOG, FIRST, earliest, 10_000)
    outcome = loader.load()
    assert (outcome.problems, outcome.rows) == ([], {ACCESS_LOG: 20})
    # From then on the new log's epochs are what was read from.
    broker.lead_anew(ACCESS_LOG, 11, earliest)
    deployment.append(range(1100, 1103))
    outcome = deployment.load()
    assert ([one.kind for one in outcome.problems], outcome.rows) == ([CUT], {ACCESS_LOG: 3})
