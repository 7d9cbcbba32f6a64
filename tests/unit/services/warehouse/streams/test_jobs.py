"""Stream jobs without Spark: counting inside a task."""

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.warehouse.streams.jobs import BY_NAME, JOBS, _count_members

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


def test_names_are_unique_and_jobs_have_topics() -> None:
    assert len(BY_NAME) == len(JOBS)
    assert all(job.topics for job in JOBS)
