"""Whole loads over logs in memory: nothing lost, nothing twice, whatever happens in between."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.events.header import UNREADABLE
from kafka2011.events.topics import ACCESS_LOG, AUDIT
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.services.warehouse import delta_table
from kafka2011.services.warehouse.delta_table import SchemaConflict, WarehouseTable
from kafka2011.services.warehouse.load import job
from kafka2011.services.warehouse.load.plan import BROKER_AWAY, GAP, PlannedRange
from tests.unit.services.warehouse.load.deployment import SECOND, Deployment, run_here
from tests.unit.services.warehouse.samples import FIRST, access_log_payload


def broken_read(
    deployment: Deployment, is_broken: Callable[[PlannedRange, int], bool]
) -> Callable[[PlannedRange], Iterator[Chunk]]:
    """A reader whose broker goes away at the chunks (by number) for which `is_broken` is true."""

    def read(planned: PlannedRange) -> Iterator[Chunk]:
        for number, chunk in enumerate(deployment.broker.read(planned)):
            if is_broken(planned, number):
                raise BrokerUnavailable("went away")
            yield chunk

    return read


def test_new_messages_are_loaded_once(deployment: Deployment) -> None:
    loader = deployment.loader()
    end = deployment.append(range(10))
    outcome = loader.load()
    assert outcome.rows == {ACCESS_LOG: 10}
    assert outcome.is_caught_up
    assert (outcome.problems, outcome.failures) == ([], [])
    assert sum(outcome.ages.values()) == 10
    assert min(outcome.ages) >= 9000
    assert loader.load().versions == {}
    assert deployment.load().versions == {}
    assert len(deployment.rows()) == 10
    (info,) = deployment.commits()
    assert info.offsets == {FIRST: end}
    assert sum(info.counts.values()) == info.rows == 10


def test_nothing_new_runs_no_task(deployment: Deployment) -> None:
    assert deployment.load(run_tasks=lambda *_: pytest.fail("a task was run")).versions == {}


def test_several_partitions_and_brokers_are_one_commit(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    deployment.append(range(5))
    deployment.append(range(7), SECOND)
    deployment.load()
    (info,) = deployment.commits()
    assert info.rows == 12
    assert set(info.offsets) == {FIRST, SECOND}
    assert Counter(row[1] for row in deployment.rows()) == {11: 5, 12: 7}


def test_a_large_log_is_loaded_in_steps(deployment: Deployment) -> None:
    deployment.append(range(50))
    loader = deployment.loader(partition_bytes_max=3000)
    outcome = loader.load()
    assert 0 < outcome.rows[ACCESS_LOG] < 50
    assert not outcome.is_caught_up
    while not outcome.is_caught_up:
        outcome = loader.load()
    assert len(deployment.rows()) == len(set(deployment.rows())) == 50


def test_the_audit_topic_is_not_loaded_and_topics_can_be_chosen(deployment: Deployment) -> None:
    deployment.add_partition(AUDIT).append([b"x"])
    deployment.add_partition("other").append([b"x"])
    deployment.append(range(1))
    assert set(deployment.load(topics=(ACCESS_LOG,)).versions) == {ACCESS_LOG}
    assert set(deployment.load().versions) == {"other"}


@pytest.mark.parametrize(
    "name",
    ["after_plan", "after_files_written", "after_quarantine", "before_commit", "after_commit"],
)
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_at_any_step_nothing_is_lost_or_repeated(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    def append(numbers: range, junk: bytes) -> None:
        deployment.append(numbers)
        deployment.log.append([junk])

    append(range(10), b"junk 1")
    deployment.load()
    append(range(10, 20), b"junk 2")
    seen = Counter[str]()

    def failpoint(reached: str) -> None:
        seen[reached] += 1
        if reached == name and seen[reached] == nth:
            raise FailpointError(name)

    for module in (delta_table, job):
        monkeypatch.setattr(module, "failpoint", failpoint)
    try:
        deployment.load()
    except FailpointError:
        assert seen[name] == nth
    else:
        assert seen[name] < nth  # this step comes only once
    monkeypatch.undo()

    # More arrives, then a new process.
    append(range(20, 30), b"junk 3")
    deployment.load()
    loaded = Counter(row[0] for row in deployment.rows())
    assert loaded == {f"/11-0/{number}": 1 for number in range(30)}
    assert deployment.quarantined() == [b"junk 1", b"junk 2", b"junk 3"]
    assert sum(info.rows for info in deployment.commits()) == 30
    assert sum(info.quarantined[UNREADABLE] for info in deployment.commits()) == 3


def test_of_two_instances_at_once_one_wins(deployment: Deployment) -> None:
    deployment.append(range(10))
    deployment.log.append([b"junk"])
    first = deployment.loader()

    def run_while_the_other_loads(function: Any, tasks: Any) -> Any:
        results = run_here(function, tasks)
        assert first.load().rows == {ACCESS_LOG: 10}
        return results

    second = deployment.loader(run_while_the_other_loads)
    outcome = second.load()
    assert outcome.rows == {}
    assert len(outcome.lost_to_another) == 1
    assert len(deployment.rows()) == 10
    assert deployment.quarantined() == [b"junk"]
    # The second one continues where the first one ended.
    deployment.append(range(10, 12))
    second._run_tasks = run_here
    assert second.load().rows == {ACCESS_LOG: 2}
    assert first.load().versions == {}
    assert len(set(deployment.rows())) == 12


def test_a_broker_that_leaves_is_reported_by_any_loader(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    deployment.append(range(5))
    end = deployment.append(range(5), SECOND)
    deployment.load()
    deployment.remove_broker(12, ACCESS_LOG)
    deployment.append(range(5, 8))
    outcome = deployment.load()
    assert outcome.rows == {ACCESS_LOG: 3}
    (problem,) = outcome.problems
    assert (problem.kind, problem.source) == (BROKER_AWAY, SECOND)
    assert str(end) in problem.detail
    deployment.add_partition(ACCESS_LOG, SECOND)
    deployment.append(range(5, 9), SECOND)
    outcome = deployment.load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 4}, [])


def test_a_broker_that_does_not_answer_does_not_hold_up_the_others(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    deployment.append(range(5))
    deployment.append(range(5), SECOND)
    deployment.silent.add(12)
    outcome = deployment.load()
    assert outcome.rows == {ACCESS_LOG: 5}
    assert {problem.source.broker_id for problem in outcome.problems} == {12}
    deployment.silent.clear()
    assert deployment.load().rows == {ACCESS_LOG: 5}


def test_retired_offsets_are_reported_and_recorded(deployment: Deployment) -> None:
    deployment.append(range(5))
    loader = deployment.loader()
    loader.load()
    (before,) = deployment.commits()
    retired_to = deployment.append(range(5, 8))
    deployment.append(range(8, 10))
    deployment.earliest[ACCESS_LOG, FIRST] = retired_to
    outcome = loader.load()
    assert [problem.kind for problem in outcome.problems] == [GAP]
    assert outcome.rows == {ACCESS_LOG: 2}
    after = deployment.commits()[1]
    assert after.gaps == {FIRST: (before.offsets[FIRST], retired_to)}


def test_a_topic_without_a_schema_is_quarantined_and_its_offset_kept(
    deployment: Deployment,
) -> None:
    deployment.add_partition("plain-text").append([b"one", b"two"])
    assert deployment.load().quarantined["plain-text"] == 2
    assert deployment.rows("plain_text") == []
    assert deployment.quarantined("plain_text") == [b"one", b"two"]
    assert deployment.load().versions == {}
    (info,) = deployment.commits("plain_text")
    assert info.quarantined == {UNREADABLE: 2}


def test_a_read_error_is_reported_and_the_next_load_continues(deployment: Deployment) -> None:
    deployment.append(range(30))
    loader = deployment.loader()
    loader._read = broken_read(deployment, lambda _, number: number == 1)
    outcome = loader.load()
    assert outcome.failures == ["access-log: 11-0: went away"]
    assert 0 < outcome.rows[ACCESS_LOG] < 30
    loader._read = deployment.broker.read
    assert loader.load().failures == []
    assert len(set(deployment.rows())) == 30


def test_messages_of_one_wrapper_are_all_rows(deployment: Deployment) -> None:
    for start in range(0, 30, 10):
        events = [access_log_payload(n, path=f"/{n}") for n in range(start, start + 10)]
        deployment.log.data += message_set.encode_compressed(events, Codec.GZIP)
        deployment.log.append([b"junk"])
        deployment.load()
    assert len({row[0] for row in deployment.rows()}) == 30
    assert len(deployment.quarantined()) == 3


def test_a_table_that_was_removed_is_loaded_again(deployment: Deployment) -> None:
    deployment.append(range(5))
    loader = deployment.loader()
    loader.load()
    shutil.rmtree(deployment.warehouse)
    deployment.append(range(5, 8))
    assert len(loader.load().failures) == 1  # finds the table missing
    assert loader.load().is_caught_up
    assert len(set(deployment.rows())) == 8


# --- a failure leaves no files, and stops nothing else --------------------------------------------


def test_a_topic_whose_types_do_not_fit_is_not_read_and_the_others_are(
    deployment: Deployment,
) -> None:
    deployment.add_partition("plain-text").append([b"one"])
    deployment.append(range(5))
    columns = pa.schema([("status", pa.string()), ("hour", pa.string())])
    WarehouseTable.open_or_create(deployment.warehouse / "access_log", columns, "an old one")
    loader = deployment.loader()
    for _ in range(3):
        outcome = loader.load()
        assert ["access_log.status is string" in failure for failure in outcome.failures] == [True]
        assert outcome.lag_bytes[ACCESS_LOG] > 0
        assert outcome.left_bytes == 0
    assert deployment.quarantined("plain_text") == [b"one"]
    assert list((deployment.warehouse / "access_log").rglob("*.parquet")) == []


def test_types_that_change_while_a_load_runs_leave_no_files(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.append(range(5))
    deployment.log.append([b"junk"])

    def conflict(*_: object) -> Any:
        raise SchemaConflict("another loader was first")

    monkeypatch.setattr(WarehouseTable, "add_columns", conflict)
    loader = deployment.loader()
    for _ in range(3):
        assert loader.load().failures == ["access-log: another loader was first"]
    monkeypatch.undo()
    # The files of the quarantine's one commit are there, and no others.
    named = deployment.named_files("quarantine/access_log")
    assert sorted(map(str, deployment.parquet_files())) == sorted(named)
    assert loader.load().rows == {ACCESS_LOG: 5}
    assert deployment.quarantined() == [b"junk"]


def test_a_quarantine_that_cannot_be_written_leaves_no_files(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.append(range(5))
    deployment.log.append([b"junk"])

    def full(*_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WarehouseTable, "open_or_create", full)
    assert "No space left" in deployment.load().failures[0]
    assert deployment.parquet_files() == set()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_without_an_answer_keeps_its_files(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    deployment.append(range(5))
    loader = deployment.loader()
    loader.load()
    deployment.append(range(5, 8))
    commit = DeltaTable.create_write_transaction

    def lose_the_answer(*args: Any, **named: Any) -> None:
        if is_there:
            commit(*args, **named)
        raise OSError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose_the_answer)
    assert loader.load().failures == ["access-log: no answer"]
    monkeypatch.undo()
    assert len(deployment.parquet_files()) == 2
    loader.load()
    assert len(deployment.rows()) == len(set(deployment.rows())) == 8


def test_bytes_are_left_only_of_partitions_that_move(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    deployment.append(range(5), SECOND)
    deployment.append(range(50))
    loader = deployment.loader(partition_bytes_max=3000)
    loader._read = broken_read(deployment, lambda planned, _: planned.source == SECOND)
    outcome = loader.load()
    assert outcome.left_bytes > 0
    while outcome.left_bytes:
        outcome = loader.load()
    assert not outcome.is_caught_up
    assert len(deployment.rows()) == 50
