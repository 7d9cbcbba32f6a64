"""Counts by key without a shuffle, where a producer placed the messages by that key.

A producer with ZooKeeper puts all messages with one key into one partition (`partitioner`): the
key's hash modulo the number of the topic's partitions is an index into these, in order of broker
and partition. A stream reads a partition in one task, so each key's events are in one task and
nothing need be shuffled.

That holds while the topic has the same partitions. When a broker dies, comes back, or is added,
keys move, and what was sent before stays where it is. So every row is checked against the present
partitions: what is elsewhere is counted as misplaced, and `merged` brings such keys together by a
shuffle.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka2011.coordination.cluster import partitions_of
from kafka2011.coordination.registry import Registry
from kafka2011.producer.partitioner import default_partitioner
from kafka2011.runtime.logs import get_logger

log = get_logger(__name__)


class Misplaced(Exception):
    """Messages of one key are, or may be, in two partitions."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The (broker, partition) pairs of a topic, in their order, over which keys are spread."""

    topic: str
    partitions: tuple[tuple[int, int], ...]

    def of(self, key: str | int) -> tuple[int, int]:
        """The broker and partition of a key."""
        return self.partitions[default_partitioner(key, len(self.partitions))]


def placement_of(
    topic: str, *, zk_connect: str = "", registry: Registry | None = None
) -> Placement:
    """The topic's partitions as ZooKeeper has them now. Raises Misplaced for an unknown topic."""
    if registry is None:
        from kafka2011.coordination.zookeeper import ZooKeeperRegistry

        own = ZooKeeperRegistry(zk_connect)
        own.start()
        try:
            return placement_of(topic, registry=own)
        finally:
            own.close()
    found = tuple((one.broker_id, one.partition) for one in partitions_of(registry, topic))
    if not found:
        raise Misplaced(f"{topic} has no partition on a live broker: send a message to it first")
    return Placement(topic, found)


def counts_in_place(events: Any, by: str, placement: Placement, *, count: str = "count") -> Any:
    """Counts of each micro-batch by the column `by`, made where the partition is read.

    Columns: `by`, `count`, and `misplaced`, how many of these are not in their key's partition.
    The key that the producer sent must be the column's value itself, text or a whole number.
    Redelivered events count again: recognising them needs state, which Spark distributes by a
    shuffle.
    """
    kind = dict(events.dtypes)[by]
    rows = events.select("broker", "partition", by)
    schema = f"`{by}` {kind}, `{count}` long, misplaced long"
    return rows.mapInArrow(_counter(by, placement, count), schema)


def merged(
    by: str, write: Callable[[Any, int], None], *, count: str = "count", fails: bool = False
) -> Callable[[Any, int], None]:
    """A function for Spark's foreachBatch after `counts_in_place`: calls `write` with the counts of
    a micro-batch, one row per key, and the batch's number.

    If no row was misplaced, these are what the tasks counted. Otherwise they are summed by a
    shuffle; `fails`: Misplaced is raised instead, which ends the query.
    """

    def each(batch: Any, number: int) -> None:
        from pyspark.sql import functions as f

        batch.persist()  # it is read twice
        try:
            strays = batch.where(f.col("misplaced") > 0).limit(1).collect()
            if strays and fails:
                raise Misplaced(
                    f"{by} {strays[0][by]} is not in the partition that its key has now: the "
                    "topic's partitions have changed, or it is not keyed by this column"
                )
            if strays:
                log.warning("keys_misplaced", column=by, example=str(strays[0][by]))
                write(batch.groupBy(by).agg(f.sum(count).alias(count)), number)
            else:
                write(batch.select(by, count), number)
        finally:
            batch.unpersist()

    return each


def _counter(
    by: str, placement: Placement, count: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [
            pa.table(batch).group_by([by, "broker", "partition"]).aggregate([([], "count_all")])
            for batch in batches
        ]
        if parts:
            yield from checked(parts, by, placement, count).to_batches()

    return counted


def checked(parts: Sequence[pa.Table], by: str, placement: Placement, count: str) -> pa.Table:
    """One row per key from tables of `by`, broker, partition and count_all: the sum, and how much
    of it is misplaced. A null key has no place; it counts as misplaced."""
    table = pa.concat_tables(parts)
    keys = table.column(by).to_pylist()
    places = zip(
        table.column("broker").to_pylist(), table.column("partition").to_pylist(), strict=True
    )
    is_there = [
        key is not None and placement.of(key) == place
        for key, place in zip(keys, places, strict=True)
    ]
    numbers = table.column("count_all")
    strays = pc.if_else(pa.array(is_there, pa.bool_()), 0, numbers)
    rows = pa.table({by: table.column(by), "n": numbers, "strays": strays})
    summed = rows.group_by(by).aggregate([("n", "sum"), ("strays", "sum")])
    chosen = summed.select([by, "n_sum", "strays_sum"]).rename_columns([by, count, "misplaced"])
    return chosen.combine_chunks()
