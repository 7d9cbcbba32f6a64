"""The warehouse in an object store: what it promises in a directory, and what a store adds."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog

from kafka2011.events.header import UNREADABLE
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.runtime import object_store
from kafka2011.runtime.clock import now_ms as time_ms
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.warehouse_reader import WarehouseReader, row_delays
from kafka2011.services.audit.recount import warehouse_rows
from kafka2011.services.dashboard.sampling import spark_jobs
from kafka2011.services.dashboard.sampling.spark_jobs import JobReader
from kafka2011.services.trace.table_rows import Tables, find_guid
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load.app import holds_warehouse
from kafka2011.services.warehouse.shell.duckdb_engine import DuckDb
from kafka2011.services.warehouse.shell.sql import Warehouse
from kafka2011.services.warehouse.store_check import Round, Unfit, check_store, judge
from kafka2011.services.warehouse.table_paths import tables_in
from kafka2011.services.warehouse.upkeep.maintenance import (
    UpkeepOutcome,
    UpkeepPolicy,
    maintain_table,
)
from tests.support.clock import ManualClock
from tests.support.object_store import BUCKET, BUSY, CUT, LOST, SECRET, ObjectStore
from tests.unit.services.warehouse.load.deployment import (
    FIRST,
    Deployment,
    patch_failpoints,
    run_here,
)
from tests.unit.services.warehouse.samples import HEADER_TIME_MS, WINDOW_MS


@pytest.fixture(autouse=True)
def no_retries() -> None:
    """Those of earlier tests are not this one's."""
    object_store.RETRIES.take()


@pytest.fixture
def stored(tmp_path: Path, store: ObjectStore) -> Iterator["Stored"]:
    with contextlib.closing(Stored(tmp_path)) as made:
        yield made


class Stored(Deployment):
    """A deployment whose warehouse is in the store."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.warehouse: Any = ObjectPath(BUCKET, "some/prefix")

    def select(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        opened = WarehouseTable.open(self.warehouse / table)
        if opened is None:
            return []
        with DuckDb({"opened": opened}) as connection:
            return [*connection.answer(f"select {columns} from opened order by all").rows]


def test_a_load_into_a_store_is_the_load_into_a_directory(
    stored: Stored, deployment: Deployment, store: ObjectStore
) -> None:
    for each in (stored, deployment):
        for n in range(4):
            each.append(
                range(n * 10, n * 10 + 10), b"junk", event_time=1_431_857_105_000 + n * 3_600_000
            )
            assert each.load().rows == {ACCESS_LOG: 10}
        assert each.load().versions == {}
    assert stored.rows() == deployment.rows()
    assert stored.quarantined() == deployment.quarantined() == [b"junk"] * 4
    assert [(c.version, c.offsets, c.counts, c.rows) for c in stored.commits()] == [
        (c.version, c.offsets, c.counts, c.rows) for c in deployment.commits()
    ]
    assert [*tables_in(stored.warehouse)] == [*tables_in(deployment.warehouse)]
    files = stored.named_files("access_log")
    assert len(files) == 4
    assert {f"s3://{BUCKET}/{key}" for key in store.objects() if "/hour=" in key} >= {*files}
    assert max(Counter(store.puts).values()) == 1  # nothing was written twice, or in parts


@pytest.mark.parametrize(
    "name", ["after_files_written", "after_quarantine", "before_commit", "after_commit"]
)
def test_killed_at_any_step_nothing_is_lost_or_repeated(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stored.append(range(10), b"junk 1")

    def failpoint(reached: str) -> None:
        if reached == name:
            raise FailpointError(name)

    patch_failpoints(monkeypatch, failpoint)
    with pytest.raises(FailpointError):
        stored.load()
    patch_failpoints(monkeypatch, lambda _: None)
    stored.append(range(10, 20), b"junk 2")
    stored.load()
    assert stored.numbers() == [*range(20)]
    assert stored.quarantined() == [b"junk 1", b"junk 2"]
    assert sum(info.quarantined[UNREADABLE] for info in stored.commits()) == 2


def test_of_two_loaders_at_once_one_wins(stored: Stored) -> None:
    end = stored.append(range(10), b"junk")
    first = stored.loader()

    def run_while_the_other_loads(function: Any, tasks: Any) -> Any:
        results = run_here(function, tasks)
        assert first.load().rows == {ACCESS_LOG: 10}
        return results

    outcome = stored.loader(run_while_the_other_loads).load()
    assert (outcome.rows, outcome.failures) == ({}, [])
    assert outcome.lost_to_another == [f"access-log 11-0: planned from None, the table is at {end}"]
    assert (stored.numbers(), stored.quarantined()) == ([*range(10)], [b"junk"])


@pytest.mark.parametrize("fault", [CUT, LOST])
def test_a_commit_whose_answer_is_lost_is_the_loads_own(
    stored: Stored, store: ObjectStore, fault: str
) -> None:
    """delta-rs sends it again, meets its own commit, and takes it for another's."""
    stored.append(range(5))
    loader = stored.loader()
    loader.load()
    stored.append(range(5, 8))
    lost = []

    def fault_of(method: str, key: str) -> str | None:
        if method == "PUT" and re.search(r"access_log/_delta_log/\d+\.json$", key) and not lost:
            lost.append(key)
            return fault
        return None

    store.fault = fault_of
    outcome = loader.load()
    assert len(lost) == 1
    assert (outcome.rows, outcome.lost_to_another, outcome.failures) == ({ACCESS_LOG: 3}, [], [])
    assert sum(outcome.ages.values()) == 3
    assert stored.numbers() == [*range(8)]
    assert [info.rows for info in stored.commits()] == [5, 3]


def test_a_store_that_throttles_is_asked_again_and_that_is_counted(
    stored: Stored, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    stored.append(range(5))
    busy = Counter[str]()

    def fault_of(method: str, key: str) -> str | None:
        if method == "PUT" and key.endswith(".parquet"):
            busy[key] += 1
            return BUSY if busy[key] <= 3 else None
        return None

    store.fault = fault_of
    outcome = stored.load()
    assert (outcome.rows, outcome.store_retries) == ({ACCESS_LOG: 5}, {"throttled": 3})


def test_a_store_that_is_away_fails_the_topic_and_is_named(
    stored: Stored, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRY_FOR_S", 0.01)
    stored.append(range(5))
    store.fault = lambda method, key: BUSY if key.endswith(".parquet") else None
    (failure,) = stored.load().failures
    assert "SLOW_DOWN" in failure
    assert SECRET not in failure
    store.fault = lambda *_: None
    stored.load()
    assert stored.numbers() == [*range(5)]


def test_upkeep_joins_files_and_removes_orphans(stored: Stored) -> None:
    for number in range(8):
        stored.append(range(number, number + 1))
        stored.load()
    path = stored.warehouse / "access_log"
    assert maintain_table(path, UpkeepPolicy(files_min=8)) == UpkeepOutcome(8, 1)
    orphan = path / "hour=2015-05-17-10" / "written-and-never-committed.parquet"
    object_store.write(orphan.address, b"")
    assert maintain_table(path, UpkeepPolicy(vacuum_hours=0)).files_removed == 9
    assert not orphan.exists()
    assert stored.numbers() == [*range(8)]
    assert storage.inner_table(path) is None
    object_store.write((path / "inside" / "_delta_log" / "0.json").address, b"")
    assert storage.inner_table(path) == path / "inside"


def test_everything_that_reads_the_warehouse_reads_the_store(stored: Stored) -> None:
    end = stored.append(range(3), b"junk")
    stored.load()
    (topic, path) = warehouse_rows.topic_tables(stored.warehouse)[0]
    assert (topic, path) == (ACCESS_LOG, stored.warehouse / "access_log")
    (rows,) = warehouse_rows.rows_of(path)
    assert len(rows.guids) == 3
    (aside,) = warehouse_rows.quarantine_tables(stored.warehouse)
    assert [*warehouse_rows.quarantined_of(aside.path)] == [[b"junk"]]
    assert warehouse_rows.loaded_offsets(stored.warehouse)(ACCESS_LOG, FIRST) == end

    assert Tables(stored.warehouse, ACCESS_LOG, float("inf")).loaded_up_to(FIRST) == end
    found_in, (row,), _ = find_guid(stored.warehouse, rows.guids[1], [], float("inf"))
    assert (found_in, row.row, row.source) == (ACCESS_LOG, 1, FIRST)

    statement = "select count(*) as n, max(path) as last from access_log"
    named = Warehouse(stored.warehouse).named_in(statement)
    with DuckDb(named) as connection:
        assert [*connection.answer(statement).rows] == [(3, "/11-0/2")]

    state = AuditState(("warehouse",), WINDOW_MS, ManualClock(HEADER_TIME_MS))
    follower = WarehouseReader(state, stored.warehouse, clock=time_ms, poll_interval_ms=10)
    assert (follower.poll(), follower.poll()) == (1, 0)
    assert sum(cell.counted[0] for cell in state.cells().values()) == 4  # one is in quarantine
    assert sum(row_delays(path, stored.commits()[0]).values()) == 3

    clock = [0.0]
    reader = JobReader(stored.warehouse, None, lambda: clock[0])
    assert [commit["rows"] for commit in reader.commits().values()] == [3]
    stored.append(range(3, 5))
    stored.load()
    assert len(reader.commits()) == 1  # not yet asked again
    clock[0] = 10.0
    assert [commit["rows"] for commit in reader.commits().values()] == [2, 3]
    failed = JobReader(stored.warehouse, None, lambda: clock[0])
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(spark_jobs, "_commit_in_store", Mock(side_effect=OSError("away")))
        assert failed.commits() == {}
    clock[0] = 20.0
    assert len(failed.commits()) == 2  # a look that failed is no empty table


# --- which stores will do -------------------------------------------------------------------------


def test_a_store_that_keeps_writers_apart_passes_and_nothing_is_left_there(
    store: ObjectStore,
) -> None:
    text = check_store(ObjectPath(BUCKET, "wh"), rounds=3, writers=4)
    assert (
        text
        == "s3://warehouse/wh can hold the warehouse: 4 writers raced 3 times, and one won each"
    )
    assert store.objects() in ([], ["wh/"])


def test_a_store_that_looks_and_then_writes_is_refused(store: ObjectStore) -> None:
    store.is_racy = True
    with pytest.raises(Unfit, match=r"not atomic: in [1-3] of 3 rounds"):
        check_store(ObjectPath(BUCKET, "wh"), rounds=3, writers=4)


def test_a_loader_has_writers_race_before_the_first_load_alone(
    stored: Stored, store: ObjectStore
) -> None:
    place = stored.warehouse
    store.is_racy = True
    with structlog.testing.capture_logs() as logged:
        assert not holds_warehouse(place)
    assert "not atomic" in logged[0]["reason"]
    store.is_racy = False
    assert holds_warehouse(place)
    stored.append(range(1))
    stored.load()
    store.puts.clear()
    assert holds_warehouse(place)
    assert store.puts == []
    assert holds_warehouse(Path("var/warehouse"))


def test_a_bucket_that_is_not_there_is_one_line(store: ObjectStore) -> None:
    with pytest.raises(Unfit, match=r"^the store does not do what is needed: .*") as refused:
        check_store(ObjectPath("no-such-bucket", "wh"), rounds=1, writers=2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("told", "logged", "verdict"),
    [
        (["a"], ["a"], ""),
        ([], ["b"], ""),  # its answer was lost
        (["a", "b"], ["b"], "not atomic: in 1 of 2 rounds"),
        (["a", "b"], ["a", "b"], "not one commit but others"),
        ([], [], "not one commit but others"),
    ],
)
def test_the_verdict_of_a_race(told: list[str], logged: list[str], verdict: str) -> None:
    found = judge([Round(["x"], ["x"]), Round(told, logged)])
    assert (verdict in found) if verdict else found == ""


def test_a_setting_that_turns_off_the_condition_is_refused(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    stored.append(range(1))
    (failure,) = stored.load().failures
    assert "AWS_S3_ALLOW_UNSAFE_RENAME is set" in failure
    with pytest.raises(Unfit, match="AWS_S3_ALLOW_UNSAFE_RENAME"):
        check_store(stored.warehouse, rounds=1)
