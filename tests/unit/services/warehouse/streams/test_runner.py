"""The runner of stream jobs without Spark: settings, the table of items, starts and ends."""

import sqlite3
import threading
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
import structlog
from deltalake import DeltaTable, Transaction
from pyspark.errors import PySparkException

from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import publish
from kafka2011.services.warehouse.streams import runner
from kafka2011.services.warehouse.streams.app import StreamProgress, run_job
from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import BY_NAME
from kafka2011.services.warehouse.streams.store_checkpoint import CheckpointLost
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.object_store import BUCKET


def test_a_job_that_joins_items_needs_them() -> None:
    with pytest.raises(runner.StreamError, match=r"needs stream\.items"):
        runner.settings_of(None, StreamConfig(), BY_NAME["clicks-by-category"])
    assert runner.settings_of(None, StreamConfig(), BY_NAME["top-items"]).items is None
    # Found before a session is started.
    assert run_job(StreamConfig(), BY_NAME["clicks-by-category"], once=True) == 2


@pytest.mark.parametrize("value", ["", " "])
def test_a_job_without_zookeeper_ends_before_a_session_is_started(value: str) -> None:
    with pytest.raises(runner.StreamError, match=r"zk\.connect is empty"):
        runner.check(StreamConfig(zk_connect=value), BY_NAME["views-tumbling"])


@pytest.fixture
def zookeeper(monkeypatch: pytest.MonkeyPatch) -> InMemoryRegistry:
    """What jobs find as their ZooKeeper."""
    made = InMemoryZooKeeper()
    monkeypatch.setattr(runner, "ZooKeeperRegistry", lambda _: made.client())
    admin = made.client()
    admin.start()
    return admin


@pytest.mark.parametrize(("job", "once"), [("views-tumbling", True), ("views-per-member", False)])
def test_what_waits_for_nothing_looks_for_its_topic_before_a_session_is_started(
    zookeeper: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch, job: str, once: bool
) -> None:
    started: list[str] = []

    def start(name: str, *_: object, **__: object) -> None:
        started.append(name)
        raise PySparkException(SOURCE)

    monkeypatch.setattr("kafka2011.services.warehouse.streams.app.start_session", start)
    config = StreamConfig(process_name="")
    with structlog.testing.capture_logs() as logged:
        assert run_job(config, BY_NAME[job], once=once) == 2
    assert (logged[-1]["event"], started) == ("stream_start_failed", [])
    assert "page-view has no partition on a live broker" in logged[-1]["reason"]
    zookeeper.put(paths.broker_id_path(1), paths.encode_broker("h", 1, 1))
    zookeeper.put(paths.topic_broker_path("page-view", 1), b"2")
    with structlog.testing.capture_logs() as logged:
        assert run_job(config, BY_NAME[job], once=once) == 1
    assert started == [job]
    assert logged[-1]["reason"] == "ValueError: zk.connect must name a host"


def test_a_zookeeper_that_does_not_answer_is_one_line_before_a_session_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = InMemoryZooKeeper().client()
    monkeypatch.setattr(away, "start", Mock(side_effect=CoordinationUnavailable("no answer")))
    monkeypatch.setattr(away, "close", Mock())
    monkeypatch.setattr(runner, "ZooKeeperRegistry", lambda _: away)
    with structlog.testing.capture_logs() as logged:
        assert run_job(StreamConfig(), BY_NAME["views-tumbling"], once=True) == 2
    [line] = logged
    assert line["reason"] == "no answer"
    assert away.close.called  # type: ignore[attr-defined]


def test_results_in_the_form_of_an_earlier_version_are_not_mixed_with_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "views-per-member" / "_spark_metadata").mkdir(parents=True)
    config = StreamConfig(stream_dir=tmp_path)
    with pytest.raises(runner.StreamError, match="of an earlier version"):
        runner.check(config, BY_NAME["views-per-member"])
    runner.check(config, BY_NAME["top-items"])


@pytest.mark.parametrize(
    ("job", "part"),
    [
        ("views-tumbling", "_spark_metadata/0"),
        ("views-tumbling", "_spark_metadata/9.compact"),
        ("views-per-member", "batch=3"),
    ],
)
def test_without_the_checkpoint_of_its_results_a_job_does_not_start(
    tmp_path: Path, job: str, part: str
) -> None:
    """Spark counts batches from 0 then, and passes over those that the results have."""
    config = StreamConfig(stream_dir=tmp_path)
    (tmp_path / job / part).parent.mkdir(parents=True)
    runner.check(config, BY_NAME[job])  # the job died as it started, before its first batch
    (tmp_path / job / part).mkdir()
    with pytest.raises(runner.StreamError, match=f"{job} holds results, and their checkpoint"):
        runner.check(config, BY_NAME[job])
    offsets = tmp_path / "checkpoints" / job / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").touch()
    runner.check(config, BY_NAME[job])


@pytest.mark.usefixtures("store")
def test_nor_does_it_with_results_in_a_store() -> None:
    place, job = ObjectPath(BUCKET, "streams"), BY_NAME["views-tumbling"]
    config = StreamConfig(stream_dir=place)
    with runner.stored_checkpoint(config, job) as checkpoint:
        assert checkpoint is not None
    results = place / job.name
    table = DeltaTable.create(
        str(results), pa.schema([("n", pa.int64())]), storage_options=storage.options(results)
    )
    with runner.stored_checkpoint(config, job):  # no batch was written yet
        pass
    batch = [Transaction("stream", 0)]
    publish(results, table, [], partition_by=[], metadata={}, transactions=batch)
    with (
        pytest.raises(CheckpointLost, match="holds results, and their checkpoint"),
        runner.stored_checkpoint(config, job),
    ):
        pytest.fail("it started")
    with runner.stored_checkpoint(replace(config, stream_dir=place / "other"), job) as checkpoint:
        assert checkpoint is not None
        (checkpoint.local / "offsets").write_text("0")
        checkpoint.publish()
    with runner.stored_checkpoint(replace(config, stream_dir=place / "other"), job) as checkpoint:
        assert checkpoint is not None
        assert not checkpoint.is_new


def test_only_a_job_without_state_has_its_checkpoint_in_a_store_on_a_cluster() -> None:
    cluster = StreamConfig(
        stream_dir=ObjectPath("bucket", "streams"), spark_master="spark://m:7077"
    )
    local = replace(cluster, spark_master="local[2]")
    for job in BY_NAME.values():
        runner.check(local, replace(job, needs_items=False))
        if job.is_placed_by:
            runner.check(cluster, job)
        elif not job.needs_items:
            with pytest.raises(runner.StreamError, match=f"{job.name} .* executor writes state"):
                runner.check(cluster, job)


def test_a_store_without_the_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(runner.StreamError, match="there is no"):
        runner.read_items(None, tmp_path / "nowhere.db")
    with closing(sqlite3.connect(tmp_path / "items.db")) as store:
        store.execute("CREATE TABLE things (item TEXT)")
    with pytest.raises(runner.StreamError, match="no such table: items"):
        runner.read_items(None, tmp_path / "items.db")


def test_a_store_of_items_may_have_any_name(tmp_path: Path) -> None:
    for name in ("items", "items#1 100%41?.db"):
        with closing(sqlite3.connect(tmp_path / name)) as store:
            store.execute("CREATE TABLE items AS SELECT 'pen' AS item, ? AS category", (name,))
            store.commit()
    session = SimpleNamespace(createDataFrame=lambda rows, _: rows)
    for path in tmp_path.iterdir():
        assert runner.read_items(session, path) == [("pen", path.name)]


def test_windows_may_not_leave_gaps() -> None:
    with pytest.raises(ValueError, match=r"stream\.slide\.ms"):
        StreamConfig(window_ms=1000, slide_ms=2000)


class Query:
    """A stream that ends by itself, or with an exception."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure
        self.is_stopped = False

    def awaitTermination(self, _seconds: float) -> bool:
        if self.failure:
            raise PySparkException(self.failure)
        return True

    def stop(self) -> None:
        self.is_stopped = True


SLOW = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


@pytest.mark.parametrize(
    ("failures", "fails", "starts"),
    [
        ([""], False, 1),
        ([SLOW, SLOW, ""], False, 3),
        ([SLOW] * (runner.STARTS_MAX + 1), True, runner.STARTS_MAX),
        (["[STREAM_FAILED] the disk is full", ""], True, 1),
    ],
)
def test_a_stream_whose_worker_was_slow_to_start_is_started_again(
    failures: list[str], fails: bool, starts: int
) -> None:
    left = iter([Query(failure) for failure in failures])
    with pytest.raises(runner.StreamFailed) if fails else nullcontext():
        runner.run_stream(lambda: next(left), threading.Event())
    assert len(failures) - len(list(left)) == starts


def test_a_stream_that_is_stopped_ends_and_not_started_again() -> None:
    stop = threading.Event()
    stop.set()
    query = Query(SLOW)
    runner.run_stream(lambda: query, stop)
    assert query.is_stopped


@pytest.mark.parametrize(
    ("failures", "is_worth_it", "starts"),
    [
        (["no such topic", "no such topic", ""], True, 3),
        (["the disk is full", ""], False, 1),
    ],
)
def test_a_stream_waits_for_what_is_not_there_yet(
    monkeypatch: pytest.MonkeyPatch, failures: list[str], is_worth_it: bool, starts: int
) -> None:
    monkeypatch.setattr(runner, "RETRY_S", 0)
    left = iter([Query(failure) for failure in failures])
    with nullcontext() if is_worth_it else pytest.raises(runner.StreamFailed, match="disk"):
        runner.run_stream_again(
            lambda: next(left), threading.Event(), is_worth_it=lambda: is_worth_it
        )
    assert len(failures) - len(list(left)) == starts


WORKER = """[STREAM_FAILED] Query [id = 8f, runId = 2a-1] terminated with exception: [X] Return
Message: Traceback (most recent call last):
  File "source.py", line 99, in read_split
kafka2011.consumer.spark.planning.DataLoss: t/1-0 was read up to 500, but its log ends at 33
\tat org.apache.spark.Some.scala"""


# Of an exception that is not ours.
SOURCE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create: Traceback (most recent call last):
  File "create_data_source.py", line 120, in main
    data_source = data_source_cls(options=options)
ValueError: zk.connect must name a host
 SQLSTATE: 38000
\tat org.apache.spark.Some.scala"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (SOURCE, "ValueError: zk.connect must name a host"),
        (WORKER, "DataLoss: t/1-0 was read up to 500, but its log ends at 33"),
        ("Query [id = 8f, runId = 2a-1] ended\n\tat org.Some", "Query [id = 8f] ended"),
        ("no more room", "no more room"),
    ],
)
def test_the_cause_of_a_failure_is_ours_and_the_same_in_each_run(text: str, cause: str) -> None:
    assert runner.cause_of(PySparkException(text)) == cause


def test_settings_that_cannot_work_are_not_tried_again() -> None:
    def start() -> Query:
        raise runner.StreamError("stream.items: there is no items.db")

    with pytest.raises(runner.StreamError, match="there is no"):
        runner.run_stream_again(start, threading.Event())


def test_each_batch_is_counted_once_and_a_pause_is_none() -> None:
    def batch(run: str, number: int, rows: int) -> SimpleNamespace:
        return SimpleNamespace(runId=run, batchId=number, numInputRows=rows, batchDuration=5)

    progress = StreamProgress()
    reports = [batch("a", 7, 10), batch("a", 8, 3)]
    query = SimpleNamespace(isActive=True, recentProgress=reports)
    progress.observe(query)
    progress.observe(query)
    reports += [batch("a", 9, 0), batch("a", 9, 4)]
    progress.observe(query)
    assert (progress.rows, progress.batches) == (17, 3)
    # Started again from the checkpoint: the batch that failed has its number again.
    progress.observe(SimpleNamespace(isActive=False, recentProgress=[batch("b", 9, 4)]))
    assert (progress.rows, progress.batches, progress.is_running) == (21, 4, False)
