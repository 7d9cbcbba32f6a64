"""`topics`: topics that are made, and what is left of those whose logs are gone."""

from collections.abc import Callable

import pytest

from tests.conftest import Run
from tests.support.memory_deployment import Deployment

ZK = ("--zookeeper", "zk:1")
Lost = Callable[[str, int], pytest.MonkeyPatch]
LEFT = (
    "/consumers/g/offsets/gone/0-0",
    "/consumers/g/owners/gone/0-0",
    "/kafka2011/counts/counting/gone/0-0",
)


@pytest.fixture
def gone(deployment: Deployment) -> Deployment:
    """A topic that no broker has any more; groups have offsets and counts in it, and in another."""
    for path in (*LEFT, "/consumers/g/offsets/kept/0-0", "/kafka2011/counts/counting/kept/0-0"):
        deployment.admin.put(path, b"7")
    deployment.topic("kept", {0: 1})
    deployment.admin.put("/brokers/topics/gone", b"")
    return deployment


def left(deployment: Deployment) -> list[str]:
    return [path for path in deployment.zookeeper.paths() if "/gone" in path]


def test_delete_removes_all_that_belongs_to_the_topic_and_nothing_else(
    gone: Deployment, run: Run
) -> None:
    nodes = [path.rpartition("/")[0] for path in LEFT]
    listed = run("topics", "delete", *ZK, "gone")
    assert (listed.status, listed.lines) == (1, [*nodes, "/brokers/topics/gone"])
    done = run("topics", "delete", *ZK, "gone", "--yes")
    assert (done.status, done.lines) == (0, listed.lines)
    assert left(gone) == []
    assert sum("/kept/" in path for path in gone.zookeeper.paths()) == 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_delete_that_was_stopped_half_way_is_finished_by_the_next(
    gone: Deployment, run: Run, lost: Lost, number: int
) -> None:
    away = lost("delete_recursive", number)
    assert run("topics", "delete", *ZK, "gone", "--yes").status == 1
    away.undo()
    assert left(gone) != []
    assert run("topics", "delete", *ZK, "gone", "--yes").status == 0
    assert left(gone) == []


def test_what_is_left_of_a_topic_without_a_name_can_be_deleted(gone: Deployment, run: Run) -> None:
    gone.admin.delete("/brokers/topics/gone")
    assert run("topics", "delete", *ZK, "gone", "--yes").status == 0
    assert left(gone) == []
    done = run("topics", "delete", *ZK, "gone", "--yes")
    assert (done.status, done.err) == (1, "kafka2011: no topic 'gone'\n")


def test_the_name_of_a_topic_that_is_made_again_meanwhile_stays(
    gone: Deployment, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka2011.cli import topics

    monkeypatch.setattr(topics, "_refuse_while_stored", lambda *_: gone.topic("gone", {0: 1}))
    done = run("topics", "delete", *ZK, "gone", "--yes")
    assert done.status == 1
    assert "a broker has made topic 'gone' again: its name stays" in done.err
    assert left(gone) == ["/brokers/topics/gone", "/brokers/topics/gone/0"]


def test_create_is_status_1_when_the_broker_of_a_topic_does_not_answer(
    deployment: Deployment, run: Run
) -> None:
    deployment.broker_of_t([b"x"])
    assert run("topics", "create", *ZK, "t").status == 0
    deployment.brokers[0].close()
    for form in ((), ("--json",)):
        done = run("topics", "create", *ZK, "t", *form)
        assert (done.status, done.err) == (1, "")
        assert "127.0.0.1" in done.out


def test_a_topic_that_is_named_twice_is_shown_once(deployment: Deployment, run: Run) -> None:
    deployment.broker_of_t([b"x"])
    assert len(run("topics", "create", *ZK, "t", "t", "--json").json) == 1
    done = run("topics", "describe", *ZK, "no", "no")
    assert (done.status, done.err) == (1, "kafka2011: no topic 'no'\n")
