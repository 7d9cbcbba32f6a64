"""Results of a stream in an object store: a Delta table, to which a batch adds its rows once.

Spark's own sink needs a file system with a rename. Here the tasks write Parquet files, and one
commit names them together with the batch's number, as an app transaction. A batch that is run again
finds its number there.
"""

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from kafka2011.runtime.storage_paths import ObjectPath, write_whole
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import publish
from kafka2011.services.warehouse.load.parquet_files import (
    BUFFER_BYTES_MAX,
    COMPRESSION,
    COMPRESSION_LEVEL,
)

APP_ID = "stream"
_WRITTEN = "path string, bytes bigint, rows bigint"


class ResultsLost(Exception):
    """The batch is not in the table. One line."""


def append_batch(place: ObjectPath, rows: Any, number: int) -> None:
    """Add the rows of batch `number` to the table, which is made where it is missing.

    The rows are computed in any case, once: Spark writes the batch's state meanwhile. Raises
    ResultsLost, CommitUncertain and OSError; the batch is to be run again then.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(rows.schema, timezone="UTC")
    table = _open(place, schema)
    if _has(table, number):
        rows.write.format("noop").mode("overwrite").save()
        return

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = list(_files(place, number, batches))
        names = ("path", "bytes", "rows")
        columns = [[each[n] for each in written] for n in range(len(names))]
        yield pa.RecordBatch.from_arrays(
            [pa.array(columns[0], pa.string()), *(pa.array(c, pa.int64()) for c in columns[1:])],
            names=names,
        )

    files = rows.mapInArrow(write, _WRITTEN).collect()
    if not files:
        return
    now_ms = time.time_ns() // 1_000_000
    adds = [
        AddAction(
            path=file["path"],
            size=file["bytes"],
            partition_values={},
            modification_time=now_ms,
            data_change=True,
            stats=json.dumps({"numRecords": file["rows"]}),
        )
        for file in files
    ]
    reason = publish(
        place,
        table,
        adds,
        partition_by=[],
        metadata={},
        transactions=[Transaction(APP_ID, number)],
    )
    if reason:
        table.update_incremental()
        if not _has(table, number):
            raise ResultsLost(f"{place}: batch {number}: {reason}")


def has_batches(place: ObjectPath) -> bool:
    """Whether the table there has a batch. Raises DeltaError, OSError."""
    try:
        return _has(storage.open_table(place), 0)
    except TableNotFoundError:
        return False


def _has(table: DeltaTable, number: int) -> bool:
    newest = table.transaction_version(APP_ID)
    return newest is not None and newest >= number


def _open(place: ObjectPath, schema: pa.Schema) -> DeltaTable:
    try:
        return storage.open_table(place)
    except TableNotFoundError:
        return DeltaTable.create(
            str(place), schema, mode="ignore", storage_options=storage.options(place)
        )


def _files(
    place: ObjectPath, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[str, int, int]]:
    """Write Parquet files below `place`: (name, bytes, rows) of each."""
    kept: list[pa.RecordBatch] = []
    kept_bytes = 0
    for batch in batches:
        if batch.num_rows:
            kept.append(batch)
            kept_bytes += batch.nbytes
        if kept_bytes >= BUFFER_BYTES_MAX:
            yield _file(place, number, kept)
            kept, kept_bytes = [], 0
    if kept:
        yield _file(place, number, kept)


def _file(place: ObjectPath, number: int, batches: list[pa.RecordBatch]) -> tuple[str, int, int]:
    table = pa.Table.from_batches(batches)
    name = f"batch-{number}-{uuid.uuid4().hex}.parquet"

    def write(file: BinaryIO) -> None:
        pq.write_table(table, file, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL)

    return name, write_whole(place / name, write), table.num_rows
