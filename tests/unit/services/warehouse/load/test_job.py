"""Whole loads over logs held in memory: nothing lost, nothing twice, whatever happens between."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.coordination.memory import InMemoryRegistry, InMemoryZooKeeper
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.header import UNREADABLE
from kafka2011.events.topics import ACCESS_LOG, AUDIT
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.services.warehouse import delta_table
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import (
    SchemaConflict,
    WarehouseError,
    WarehouseTable,
    read_commits,
)
from kafka2011.services.warehouse.load import job as load_module
from kafka2011.services.warehouse.load.job import Loader, RunTasks
from kafka2011.services.warehouse.load.plan import (
    BEYOND_END,
    BROKER_AWAY,
    GAP,
    PlannedRange,
    Problem,
)
from kafka2011.services.warehouse.load.reset import reset_partition
from kafka2011.services.warehouse.load.tasks import TopicResult
from tests.unit.services.warehouse.samples import (
    FIRST,
    HEADER_TIME_MS,
    ScriptedBroker,
    access_log_payload,
)

SECOND = BrokerPartition(12, 1)


def run_here(
    function: Callable[[Sequence[PlannedRange]], list[TopicResult]],
    tasks: list[list[PlannedRange]],
) -> list[list[TopicResult]]:
    return [function(task) for task in tasks]


class Deployment:
    """ZooKeeper, brokers and a warehouse directory; loaders come and go."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = directory / "warehouse"
        self.zookeeper = InMemoryZooKeeper()
        self.registry: InMemoryRegistry = self.zookeeper.client()
        self.registry.start()
        self.broker = ScriptedBroker()
        self.earliest: dict[tuple[str, BrokerPartition], int] = {}
        self.silent: set[int] = set()

    def add_partition(self, topic: str, source: BrokerPartition = FIRST) -> None:
        self.broker.log(topic, source)
        self.add_broker(source.broker_id)
        self.registry.put(paths.topic_broker_path(topic, source.broker_id), b"4")

    def add_broker(self, broker_id: int) -> None:
        value = paths.encode_broker("127.0.0.1", 9000 + broker_id, 1_300_000_000_000)
        self.registry.put(paths.broker_id_path(broker_id), value)

    def remove_broker(self, broker_id: int, topics: Sequence[str]) -> None:
        self.registry.delete(paths.broker_id_path(broker_id))
        for topic in topics:
            self.registry.delete(paths.topic_broker_path(topic, broker_id))

    def connect(self, address: BrokerAddress) -> Any:
        return _FakeOffsets(self, address.port - 9000)

    def loader(self, run_tasks: RunTasks = run_here, **settings: Any) -> Loader:
        config = WarehouseConfig(
            **{
                "warehouse_dir": self.warehouse,
                "window_ms": 10_000,
                "event_forms": FORMS_2011,
                **settings,
            }
        )
        return Loader(
            config,
            self.registry,
            run_tasks,
            2,
            clock=lambda: HEADER_TIME_MS + 10_000,
            read=self.broker.read,
            connect=self.connect,
        )

    def rows(self, table: str = "access_log") -> list[tuple[Any, ...]]:
        opened = WarehouseTable.open(self.warehouse / table)
        if opened is None or not opened.file_paths():
            return []
        files = opened.file_paths()
        return duckdb.sql(
            f"select path, source_broker, source_partition, source_offset "
            f"from read_parquet({files!r}, hive_partitioning=false) order by all"
        ).fetchall()

    def quarantined(self, table: str = "access_log") -> list[bytes]:
        opened = WarehouseTable.open(self.warehouse / "quarantine" / table)
        if opened is None:
            return []
        files = opened.file_paths()
        return [
            row[0]
            for row in duckdb.sql(
                f"select payload from read_parquet({files!r}, hive_partitioning=false)"
            ).fetchall()
        ]


class _FakeOffsets:
    def __init__(self, deployment: Deployment, broker_id: int) -> None:
        self.deployment = deployment
        self.broker_id = broker_id

    def latest(self, topic: str, partition: int) -> int:
        if self.broker_id in self.deployment.silent:
            raise BrokerUnavailable("silent")
        source = BrokerPartition(self.broker_id, partition)
        log = self.deployment.broker.logs.get((topic, source))
        return len(log.data) if log else 0

    def earliest(self, topic: str, partition: int) -> int:
        source = BrokerPartition(self.broker_id, partition)
        return self.deployment.earliest.get((topic, source), 0)

    def close(self) -> None:
        pass


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = Deployment(tmp_path)
    made.add_partition(ACCESS_LOG)
    return made


def append(
    deployment: Deployment, numbers: range, source: BrokerPartition = FIRST, topic: str = ACCESS_LOG
) -> int:
    return deployment.broker.log(topic, source).append(
        [access_log_payload(number, path=f"/{source.text}/{number}") for number in numbers]
    )


def test_what_is_new_is_loaded_once(deployment: Deployment) -> None:
    loader = deployment.loader()
    end = append(deployment, range(10))
    outcome = loader.load()
    assert outcome.rows == {ACCESS_LOG: 10}
    assert outcome.is_caught_up
    assert (outcome.problems, outcome.failures) == ([], [])
    assert sum(outcome.ages.values()) == 10
    assert min(outcome.ages) >= 9000
    assert loader.load().versions == {}
    assert deployment.loader().load().versions == {}
    assert len(deployment.rows()) == 10
    (info,) = read_commits(deployment.warehouse / "access_log")
    assert info.offsets == {FIRST: end}
    assert sum(info.counts.values()) == info.rows == 10


def test_nothing_new_runs_no_task(deployment: Deployment) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("a task was run")

    assert deployment.loader(never).load().versions == {}


def test_several_partitions_and_brokers_are_one_commit(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    append(deployment, range(5))
    append(deployment, range(7), SECOND)
    deployment.loader().load()
    (info,) = read_commits(deployment.warehouse / "access_log")
    assert info.rows == 12
    assert set(info.offsets) == {FIRST, SECOND}
    assert Counter(row[1] for row in deployment.rows()) == {11: 5, 12: 7}


def test_a_large_log_is_loaded_in_steps(deployment: Deployment) -> None:
    append(deployment, range(50))
    loader = deployment.loader(partition_bytes_max=3000)
    outcome = loader.load()
    assert 0 < outcome.rows[ACCESS_LOG] < 50
    assert not outcome.is_caught_up
    while not outcome.is_caught_up:
        outcome = loader.load()
    assert len(deployment.rows()) == 50
    assert len(set(deployment.rows())) == 50


def test_the_audit_topic_is_not_loaded_and_topics_can_be_chosen(deployment: Deployment) -> None:
    deployment.add_partition(AUDIT)
    deployment.add_partition("other")
    deployment.broker.log(AUDIT).append([b"x"])
    deployment.broker.log("other").append([b"x"])
    append(deployment, range(1))
    assert set(deployment.loader(topics=(ACCESS_LOG,)).load().versions) == {ACCESS_LOG}
    assert set(deployment.loader().load().versions) == {"other"}


FAILPOINTS = [
    "after_plan",
    "after_files_written",
    "after_quarantine",
    "before_commit",
    "after_commit",
]


@pytest.mark.parametrize("name", FAILPOINTS)
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_at_any_step_nothing_is_lost_or_repeated(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    append(deployment, range(10))
    deployment.broker.log(ACCESS_LOG).append([b"junk 1"])
    deployment.loader().load()
    append(deployment, range(10, 20))
    deployment.broker.log(ACCESS_LOG).append([b"junk 2"])
    seen = Counter[str]()

    def failpoint(reached: str) -> None:
        seen[reached] += 1
        if reached == name and seen[reached] == nth:
            raise FailpointError(name)

    for module in (delta_table, load_module):
        monkeypatch.setattr(module, "failpoint", failpoint)
    try:
        deployment.loader().load()
    except FailpointError:
        assert seen[name] == nth
    else:
        assert seen[name] < nth  # this step comes only once
    monkeypatch.undo()

    # More arrives, then a new process.
    append(deployment, range(20, 30))
    deployment.broker.log(ACCESS_LOG).append([b"junk 3"])
    deployment.loader().load()
    paths_seen = Counter(row[0] for row in deployment.rows())
    assert paths_seen == {f"/11-0/{number}": 1 for number in range(30)}
    assert sorted(deployment.quarantined()) == [b"junk 1", b"junk 2", b"junk 3"]
    commits = read_commits(deployment.warehouse / "access_log")
    assert sum(info.rows for info in commits) == 30
    assert sum(info.quarantined[UNREADABLE] for info in commits) == 3


def test_of_two_instances_at_once_one_wins(deployment: Deployment) -> None:
    append(deployment, range(10))
    deployment.broker.log(ACCESS_LOG).append([b"junk"])
    first = deployment.loader()

    def run_while_the_other_loads(function: Any, tasks: Any) -> Any:
        answers = run_here(function, tasks)
        assert first.load().rows == {ACCESS_LOG: 10}
        return answers

    second = deployment.loader(run_while_the_other_loads)
    outcome = second.load()
    assert outcome.rows == {}
    assert len(outcome.lost_to_another) == 1
    assert len(deployment.rows()) == 10
    assert deployment.quarantined() == [b"junk"]
    # The loser goes on from where the winner is.
    append(deployment, range(10, 12))
    second._run_tasks = run_here
    assert second.load().rows == {ACCESS_LOG: 2}
    assert first.load().versions == {}
    assert len(set(deployment.rows())) == 12


def test_a_broker_that_leaves_is_reported_by_whoever_loads(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    append(deployment, range(5))
    end = append(deployment, range(5), SECOND)
    deployment.loader().load()
    deployment.remove_broker(12, [ACCESS_LOG])
    append(deployment, range(5, 8))
    outcome = deployment.loader().load()
    assert outcome.rows == {ACCESS_LOG: 3}
    (problem,) = outcome.problems
    assert (problem.kind, problem.source) == (BROKER_AWAY, SECOND)
    assert str(end) in problem.detail
    deployment.add_partition(ACCESS_LOG, SECOND)
    append(deployment, range(5, 9), SECOND)
    outcome = deployment.loader().load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 4}, [])


def test_a_broker_that_does_not_answer_does_not_hold_up_the_others(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    append(deployment, range(5))
    append(deployment, range(5), SECOND)
    deployment.silent.add(12)
    outcome = deployment.loader().load()
    assert outcome.rows == {ACCESS_LOG: 5}
    assert {problem.source.broker_id for problem in outcome.problems} == {12}
    deployment.silent.clear()
    assert deployment.loader().load().rows == {ACCESS_LOG: 5}


def test_retired_offsets_are_reported_and_recorded(deployment: Deployment) -> None:
    append(deployment, range(5))
    loader = deployment.loader()
    loader.load()
    (before,) = read_commits(deployment.warehouse / "access_log")
    retired_to = append(deployment, range(5, 8))
    append(deployment, range(8, 10))
    deployment.earliest[ACCESS_LOG, FIRST] = retired_to
    outcome = loader.load()
    assert [problem.kind for problem in outcome.problems] == [GAP]
    assert outcome.rows == {ACCESS_LOG: 2}
    after = read_commits(deployment.warehouse / "access_log", before.version)[0]
    assert after.gaps == {FIRST: (before.offsets[FIRST], retired_to)}


def test_a_topic_without_a_schema_is_quarantined_and_its_offset_kept(
    deployment: Deployment,
) -> None:
    deployment.add_partition("plain-text")
    deployment.broker.log("plain-text").append([b"one", b"two"])
    outcome = deployment.loader().load()
    assert outcome.quarantined["plain-text"] == 2
    assert deployment.rows("plain_text") == []
    assert deployment.quarantined("plain_text") == [b"one", b"two"]
    assert deployment.loader().load().versions == {}
    (info,) = read_commits(deployment.warehouse / "plain_text")
    assert info.quarantined == {UNREADABLE: 2}


def test_a_reading_error_is_reported_and_the_next_load_goes_on(deployment: Deployment) -> None:
    append(deployment, range(30))
    loader = deployment.loader()
    whole_read = deployment.broker.read

    def broken(planned: PlannedRange) -> Any:
        for number, chunk in enumerate(whole_read(planned)):
            if number == 1:
                raise BrokerUnavailable("went away")
            yield chunk

    loader._read = broken
    outcome = loader.load()
    assert outcome.failures == ["access-log: 11-0: went away"]
    assert 0 < outcome.rows[ACCESS_LOG] < 30
    loader._read = whole_read
    assert loader.load().failures == []
    assert len(set(deployment.rows())) == 30


def test_messages_of_one_wrapper_are_all_rows(deployment: Deployment) -> None:
    from kafka2011.protocol import message_set
    from kafka2011.protocol.compression import Codec

    log = deployment.broker.log(ACCESS_LOG)
    for start in range(0, 30, 10):
        log.data += message_set.encode_compressed(
            [access_log_payload(n, path=f"/{n}") for n in range(start, start + 10)], Codec.GZIP
        )
        log.data += message_set.encode([b"junk"])
        deployment.loader().load()
    assert len({row[0] for row in deployment.rows()}) == 30
    assert len(deployment.quarantined()) == 3


def test_a_table_that_was_removed_is_loaded_anew(deployment: Deployment) -> None:
    append(deployment, range(5))
    loader = deployment.loader()
    loader.load()
    shutil.rmtree(deployment.warehouse)
    append(deployment, range(5, 8))
    first = loader.load()  # finds out
    assert len(first.failures) == 1
    assert loader.load().is_caught_up
    assert len(set(deployment.rows())) == 8


# --- what fails leaves no files, and stops nothing else -------------------------------------------


def parquet_files(deployment: Deployment) -> set[Path]:
    return set(deployment.warehouse.rglob("*.parquet"))


def named_files(deployment: Deployment, *tables: str) -> set[Path]:
    found = [WarehouseTable.open(deployment.warehouse / table) for table in tables]
    return {Path(path) for table in found if table is not None for path in table.file_paths()}


def test_a_topic_whose_types_do_not_fit_is_not_read_and_the_others_are(
    deployment: Deployment,
) -> None:
    deployment.add_partition("plain-text")
    deployment.broker.log("plain-text").append([b"one"])
    append(deployment, range(5))
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
    append(deployment, range(5))
    deployment.broker.log(ACCESS_LOG).append([b"junk"])

    def conflict(*_: object) -> Any:
        raise SchemaConflict("another loader was first")

    monkeypatch.setattr(WarehouseTable, "add_columns", conflict)
    loader = deployment.loader()
    for _ in range(3):
        assert loader.load().failures == ["access-log: another loader was first"]
    monkeypatch.undo()
    # What the quarantine's commit names is there, and once.
    assert parquet_files(deployment) == named_files(deployment, "quarantine/access_log")
    assert loader.load().rows == {ACCESS_LOG: 5}
    assert deployment.quarantined() == [b"junk"]


def test_a_quarantine_that_cannot_be_written_leaves_no_files(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(deployment, range(5))
    deployment.broker.log(ACCESS_LOG).append([b"junk"])

    def full(*_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WarehouseTable, "open_or_create", full)
    assert "No space left" in deployment.loader().load().failures[0]
    assert parquet_files(deployment) == set()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_that_may_stand_keeps_its_files(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    append(deployment, range(5))
    loader = deployment.loader()
    loader.load()
    append(deployment, range(5, 8))
    commit = DeltaTable.create_write_transaction

    def answer_lost(*args: Any, **named: Any) -> None:
        if is_there:
            commit(*args, **named)
        raise OSError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", answer_lost)
    assert loader.load().failures == ["access-log: no answer"]
    monkeypatch.undo()
    assert len(parquet_files(deployment)) == 2
    loader.load()
    assert len(deployment.rows()) == len(set(deployment.rows())) == 8


def test_more_is_left_only_of_partitions_that_move(deployment: Deployment) -> None:
    deployment.add_partition(ACCESS_LOG, SECOND)
    append(deployment, range(5), SECOND)
    append(deployment, range(50))
    loader = deployment.loader(partition_bytes_max=3000)
    whole_read = deployment.broker.read

    def broken(planned: PlannedRange) -> Any:
        if planned.source == SECOND:
            raise BrokerUnavailable("away")
        yield from whole_read(planned)

    loader._read = broken
    outcome = loader.load()
    assert outcome.left_bytes > 0
    while outcome.left_bytes:
        outcome = loader.load()
    assert not outcome.is_caught_up
    assert len(deployment.rows()) == 50


# --- a log that was lost or replaced --------------------------------------------------------------


def replace_log(deployment: Deployment, numbers: range) -> int:
    deployment.broker.log(ACCESS_LOG).data = b""
    return append(deployment, numbers)


def test_a_replaced_log_is_not_forgotten_when_it_has_grown(deployment: Deployment) -> None:
    end = append(deployment, range(10))
    loader = deployment.loader()
    loader.load()

    def told() -> Problem:
        outcome = loader.load()
        assert outcome.rows == {}
        (problem,) = [problem for problem in outcome.problems if problem.source == FIRST]
        return problem

    assert replace_log(deployment, range(100, 105)) < end
    found = [told()]
    deployment.silent.add(FIRST.broker_id)
    found.append(told())
    deployment.silent.clear()
    assert append(deployment, range(105, 130)) > end
    found.append(told())
    assert found[0].kind == BEYOND_END
    assert found == [found[0]] * 3  # told once, and never as over
    assert "load --reset access-log/11-0" in found[0].text


def test_after_a_reset_the_new_log_is_loaded_whole(deployment: Deployment) -> None:
    append(deployment, range(10))
    end = deployment.broker.log(ACCESS_LOG).append([b"junk 1"])
    loader = deployment.loader()
    loader.load()
    replace_log(deployment, range(100, 103))
    deployment.broker.log(ACCESS_LOG).append([b"junk 2"])
    assert loader.load().problems
    since = read_commits(deployment.warehouse / "access_log")[-1].version
    assert reset_partition(deployment.warehouse, ACCESS_LOG, FIRST, 0, 10_000) == end
    (info,) = read_commits(deployment.warehouse / "access_log", since)
    assert (info.gaps, info.offsets, info.rows) == ({FIRST: (end, 0)}, {FIRST: 0}, 0)
    # The process that knows the problem goes on, and so does a new one.
    outcome = loader.load()
    assert (outcome.rows, outcome.problems) == ({ACCESS_LOG: 3}, [])
    append(deployment, range(103, 105))
    assert deployment.loader().load().rows == {ACCESS_LOG: 2}
    assert len({row[0] for row in deployment.rows()}) == 15
    assert sorted(deployment.quarantined()) == [b"junk 1", b"junk 2"]


def test_a_partition_that_was_never_loaded_is_not_reset(deployment: Deployment) -> None:
    with pytest.raises(WarehouseError, match="access-log/12-1 was never loaded"):
        reset_partition(deployment.warehouse, ACCESS_LOG, SECOND, 0, 10_000)
    append(deployment, range(2))
    deployment.loader().load()
    with pytest.raises(WarehouseError, match="access-log/12-1 was never loaded"):
        reset_partition(deployment.warehouse, ACCESS_LOG, SECOND, 0, 10_000)
