"""Reads the messages of a quarantine table, a partition's range of offsets at a time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse.load.tasks import Aside, aside_of

ROWS_MAX = 1_000  # a payload may be a megabyte


def quarantined_between(
    files: Sequence[str], source: BrokerPartition, start: int, end: int
) -> frozenset[Aside]:
    """The messages whose entries end behind `start`, at `end` or before it."""
    found = set()
    for batch in rows_between(files, source, start, end, ["source_offset", "payload"]):
        offsets, payloads = (column.to_pylist() for column in batch.columns)
        found |= {aside_of(n, raw) for n, raw in zip(offsets, payloads, strict=True)}
    return frozenset(found)


def rows_between(
    files: Sequence[str], source: BrokerPartition, start: int, end: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of messages of the partition whose entries end in (`start`, `end`]."""
    if not files:
        return
    broker_id, partition = source
    offset = pc.field("source_offset")
    chosen = (pc.field("source_broker") == broker_id) & (pc.field("source_partition") == partition)
    wanted = chosen & (offset > start) & (offset <= end)
    rows = ds.dataset(list(files), format="parquet")
    yield from rows.to_batches(columns=columns, filter=wanted, batch_size=ROWS_MAX)
