"""Counts in place without Spark: what a task counts, and what it finds misplaced."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.coordination import paths
from kafka2011.streams import Misplaced, Placement, placement_of
from kafka2011.streams.placement import _counter
from tests.support.memory_zookeeper import InMemoryZooKeeper

PLACEMENT = Placement("page-view", ((1, 0), (1, 1), (2, 0)))
KEYS = st.one_of(st.integers(-(2**40), 2**40), st.none())
ROWS = st.lists(st.tuples(st.sampled_from(PLACEMENT.partitions), KEYS), max_size=30)


def batch_of(rows: list[tuple[tuple[int, int], int | str | None]], kind: pa.DataType) -> pa.Table:
    return pa.RecordBatch.from_pydict(
        {
            "broker": pa.array([broker for (broker, _), _ in rows], pa.int32()),
            "partition": pa.array([partition for (_, partition), _ in rows], pa.int32()),
            "member_id": pa.array([key for _, key in rows], kind),
        }
    )


@given(st.lists(ROWS, max_size=4))
def test_a_task_counts_each_key_once_and_what_is_not_in_its_place(
    batches: list[list[tuple[tuple[int, int], int | None]]],
) -> None:
    count = _counter("member_id", PLACEMENT, "views")
    made = count(iter([batch_of(rows, pa.int64()) for rows in batches]))
    found = [row for batch in made for row in batch.to_pylist()]
    rows = [row for batch in batches for row in batch]
    assert len(found) == len({key for _, key in rows})
    views = Counter(key for _, key in rows)
    strays = Counter(key for at, key in rows if key is None or PLACEMENT.of(key) != at)
    for row in found:
        assert row["views"] == views[row["member_id"]]
        assert row["misplaced"] == strays[row["member_id"]]


def test_keys_are_where_a_producer_puts_them() -> None:
    """The numbers are the JVM's of a String and an Integer: they are the same in every process."""
    assert [PLACEMENT.of(key) for key in (0, 1, 2, -4)] == [(1, 0), (1, 1), (2, 0), (1, 1)]
    assert PLACEMENT.of("member-17") == PLACEMENT.partitions[1_342_170_681 % 3]
    counted = _counter("member_id", PLACEMENT, "n")
    rows = [(PLACEMENT.of(name), name) for name in ("a", "b", "member-17", "é")]
    [batch] = counted(iter([batch_of(rows, pa.string())]))
    assert set(batch.column("misplaced").to_pylist()) == {0}


def test_the_partitions_are_those_of_the_live_brokers_in_their_order() -> None:
    zookeeper = InMemoryZooKeeper()
    registry = zookeeper.client()
    registry.start()
    with pytest.raises(Misplaced, match="orders has no partition"):
        placement_of("orders", registry=registry)
    for broker_id, count in ((11, 1), (2, 2)):
        path = f"{paths.topic_path('orders')}/{broker_id}"
        registry.create(path, str(count).encode())
    assert placement_of("orders", registry=registry).partitions == ((2, 0), (2, 1), (11, 0))
