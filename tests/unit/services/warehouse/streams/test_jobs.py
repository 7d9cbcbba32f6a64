"""Stream jobs without Spark: counting inside a task, the table of items, settings."""

import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import BY_NAME, JOBS, _count_members
from kafka2011.services.warehouse.streams.runner import (
    STARTS_MAX,
    StreamError,
    read_items,
    run_job,
    run_stream,
    settings_of,
)

_ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=30)


@given(st.lists(_ROWS, max_size=4))
def test_a_task_counts_each_member_once(batches: list[list[tuple[int, int]]]) -> None:
    given_batches = [
        pa.RecordBatch.from_pydict(
            {
                "partition": pa.array([partition for partition, _ in rows], pa.int32()),
                "member_id": pa.array([member for _, member in rows], pa.int64()),
            }
        )
        for rows in batches
    ]
    found = [row for batch in _count_members(iter(given_batches)) for row in batch.to_pylist()]
    expected = Counter(row for rows in batches for row in rows)
    assert {(row["partition"], row["member_id"]): row["views"] for row in found} == expected
    assert len(found) == len(expected)


def test_names_are_unique_and_jobs_know_their_topics() -> None:
    assert len(BY_NAME) == len(JOBS)
    assert all(job.topics for job in JOBS)


def test_a_job_that_joins_items_wants_them() -> None:
    with pytest.raises(StreamError, match=r"needs stream\.items"):
        settings_of(None, StreamConfig(), BY_NAME["clicks-by-category"])
    assert settings_of(None, StreamConfig(), BY_NAME["top-items"]).items is None
    # Told before anything is started.
    assert run_job(StreamConfig(), BY_NAME["clicks-by-category"], once=True) == 2


def test_a_store_without_the_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="there is no"):
        read_items(None, tmp_path / "nowhere.db")
    with closing(sqlite3.connect(tmp_path / "items.db")) as store:
        store.execute("CREATE TABLE things (item TEXT)")
    with pytest.raises(StreamError, match="no such table: items"):
        read_items(None, tmp_path / "items.db")


def test_windows_may_not_leave_gaps() -> None:
    with pytest.raises(ValueError, match=r"stream\.slide\.ms"):
        StreamConfig(window_ms=1000, slide_ms=2000)


class Query:
    """A stream that ends as it is told: by itself, or with an exception."""

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
        ([SLOW] * 9, 1, STARTS_MAX),
        (["[STREAM_FAILED] the disk is full", ""], 1, 1),
    ],
)
def test_a_stream_whose_worker_was_slow_to_start_is_started_again(
    failures: list[str], status: int, starts: int
) -> None:
    queries = [Query(failure) for failure in failures]
    left = iter(queries)
    found, last = run_stream(lambda: next(left), threading.Event())
    assert (found, queries.index(last) + 1) == (status, starts)


def test_a_stream_that_is_asked_to_stop_is_stopped_and_not_started_again() -> None:
    stop = threading.Event()
    stop.set()
    query = Query(SLOW)
    assert run_stream(lambda: query, stop) == (0, query)
    assert query.is_stopped
