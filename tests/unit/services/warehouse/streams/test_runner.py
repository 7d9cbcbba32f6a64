"""The runner of stream jobs without Spark: settings, the table of items, starts and ends."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from kafka2011.runtime.places import StorePath
from kafka2011.services.warehouse.streams import runner
from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import BY_NAME


def test_a_job_that_joins_items_needs_them() -> None:
    with pytest.raises(runner.StreamError, match=r"needs stream\.items"):
        runner.settings_of(None, StreamConfig(), BY_NAME["clicks-by-category"])
    assert runner.settings_of(None, StreamConfig(), BY_NAME["top-items"]).items is None
    # Found before a session is started.
    assert runner.run_job(StreamConfig(), BY_NAME["clicks-by-category"], once=True) == 2


def test_results_in_the_form_of_an_earlier_version_are_not_mixed_with_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "views-per-member" / "_spark_metadata").mkdir(parents=True)
    config = StreamConfig(stream_dir=tmp_path)
    with pytest.raises(runner.StreamError, match="of an earlier version"):
        runner.check(config, BY_NAME["views-per-member"])
    runner.check(config, BY_NAME["top-items"])


def test_only_a_job_without_state_has_its_checkpoint_in_a_store_on_a_cluster() -> None:
    cluster = StreamConfig(stream_dir=StorePath("bucket", "streams"), spark_master="spark://m:7077")
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
    ("failures", "status", "starts"),
    [
        ([""], 0, 1),
        ([SLOW, SLOW, ""], 0, 3),
        ([SLOW] * (runner.STARTS_MAX + 1), 1, runner.STARTS_MAX),
        (["[STREAM_FAILED] the disk is full", ""], 1, 1),
    ],
)
def test_a_stream_whose_worker_was_slow_to_start_is_started_again(
    failures: list[str], status: int, starts: int
) -> None:
    queries = [Query(failure) for failure in failures]
    left = iter(queries)
    found, last = runner.run_stream(lambda: next(left), threading.Event())
    assert (found, queries.index(last) + 1) == (status, starts)


def test_a_stream_that_is_stopped_ends_and_not_started_again() -> None:
    stop = threading.Event()
    stop.set()
    query = Query(SLOW)
    assert runner.run_stream(lambda: query, stop) == (0, query)
    assert query.is_stopped
