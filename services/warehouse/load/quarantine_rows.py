"""Reads a table's rows, those of the quarantine above all, by partition and range of offsets."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.load.schema_columns import HEADER_FIELDS, SOURCE_FIELDS
from kafka2011.services.warehouse.load.tasks import QUARANTINE_FIELDS, Aside, aside_of

ROWS_MAX = 1_000  # a payload may be a megabyte


SOURCE_NAMES = [field.name for field in SOURCE_FIELDS]
_FIELDS = pa.schema([*QUARANTINE_FIELDS, *HEADER_FIELDS])


class QuarantinedMessage(NamedTuple):
    """A quarantined message: the next offset of its entry, and the size of its payload."""

    next_offset: int
    payload_bytes: int


def quarantined_between(
    files: Sequence[str], source: BrokerPartition, start: int, end: int
) -> frozenset[Aside]:
    """The quarantined messages whose entries end in (`start`, `end`]."""
    found = set()
    for batch in rows_between(files, source, start, end, ["source_offset", "payload"]):
        offsets, payloads = (column.to_pylist() for column in batch.columns)
        found |= {aside_of(n, raw) for n, raw in zip(offsets, payloads, strict=True)}
    return frozenset(found)


def rows_between(
    files: Sequence[str],
    source: BrokerPartition,
    start: int,
    end: int,
    columns: list[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of messages of the partition whose entries end in (`start`, `end`]."""
    offset = pc.field("source_offset")
    chosen = (pc.field("source_broker") == source[0]) & (pc.field("source_partition") == source[1])
    wanted = chosen & (offset > start) & (offset <= end)
    names = list(dict.fromkeys([*columns, *SOURCE_NAMES]))
    for file in files:
        parquet = storage.parquet_file(file)
        for batch in _batches(parquet, _groups(parquet, start, end), names):
            found = batch.filter(wanted)
            if found.num_rows:
                yield found.select(columns)


def places_by_partition(files: Sequence[str]) -> dict[BrokerPartition, list[QuarantinedMessage]]:
    """The places of all quarantined messages, in order."""
    found: dict[BrokerPartition, list[QuarantinedMessage]] = {}
    for file in files:
        parquet = storage.parquet_file(file)
        groups = range(parquet.num_row_groups)
        for batch in _batches(parquet, groups, [*SOURCE_NAMES, "payload"]):
            sizes = pc.binary_length(batch.column("payload")).to_pylist()
            columns = (batch.column(name).to_pylist() for name in SOURCE_NAMES)
            for broker_id, partition, offset, size in zip(*columns, sizes, strict=True):
                places = found.setdefault(BrokerPartition(broker_id, partition), [])
                places.append(QuarantinedMessage(offset, size))
    return {source: sorted(places) for source, places in sorted(found.items())}


def _groups(parquet: ParquetFile, start: int, end: int) -> list[int]:
    """The row groups that may have offsets in (`start`, `end`]."""
    index = parquet.schema_arrow.names.index("source_offset")
    found = []
    for group in range(parquet.num_row_groups):
        known = _statistics(parquet, group, index)
        if known is None or (known.min <= end and known.max > start):
            found.append(group)
    return found


def _statistics(parquet: ParquetFile, group: int, index: int) -> Any:
    """The statistics of `source_offset`; None without any, or if nested columns shift its index."""
    column = parquet.metadata.row_group(group).column(index)
    if column.path_in_schema != "source_offset" or not column.is_stats_set:
        return None
    return column.statistics if column.statistics.has_min_max else None


def _batches(
    parquet: ParquetFile, groups: Sequence[int], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    # Files that delta-rs wrote declare bytes and text as view types, which few functions take.
    schema = pa.schema([_FIELDS.field(name) for name in columns])
    for batch in parquet.iter_batches(ROWS_MAX, row_groups=list(groups), columns=columns):
        yield batch.select(columns).cast(schema)
