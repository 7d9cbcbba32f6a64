"""Rows to Parquet files in a table's directory, one file per event hour and write.

A file appears whole under a unique name (`places.write_whole`); no reader sees it until a commit
names it. A load that fails removes its files; those of one that dies are
left to `vacuum`. Rows are buffered up to a limit over all hours, so that an old log with thousands
of hours costs files, not memory.
"""

import contextlib
import functools
import json
import time
import uuid
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka2011.runtime.storage_paths import StoragePath, write_whole
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN
from kafka2011.services.warehouse.load_commits import NewFile

BUFFER_BYTES_MAX = 64 * 1024 * 1024
US_PER_HOUR = 3_600_000_000
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1  # level 3 is a tenth smaller and takes half as long again
_EPOCH_HOUR = np.datetime64("1970-01-01T00", "h")


def unique_name() -> str:
    return uuid.uuid4().hex


class HourFiles:
    """Collects batches of one table and writes them bucketed by hour. Not thread-safe.

    Batches have every column except the partition column; one with other columns than those before
    begins new files. A row's hour is that of the first of the times `hour_of` that it has, else
    that of the writing; columns that are no times do not count.
    """

    def __init__(
        self,
        table_path: StoragePath,
        hour_of: tuple[str, ...],
        *,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        name: Callable[[], str] = unique_name,
    ) -> None:
        self._table_path = table_path
        self._hour_of = hour_of
        self._buffer_bytes_max = buffer_bytes_max
        self._name = name
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._files: list[NewFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._batches and self._batches[0].schema != batch.schema:
            self._write_buffered()
        self._batches.append(batch)
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= self._buffer_bytes_max:
            self._write_buffered()

    def finish(self) -> list[NewFile]:
        """Write the buffered rows; returns the files of all writes."""
        self._write_buffered()
        return self._files

    def discard(self) -> None:
        """Remove the files: this load failed, and the next one writes them again."""
        self._batches, self._buffered_bytes = [], 0
        remove_files(self._table_path, self._files)
        self._files = []

    def _write_buffered(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches).combine_chunks()
        self._batches, self._buffered_bytes = [], 0
        jobs = [
            functools.partial(write_file, self._table_path, hour, rows, self._name())
            for hour, rows in split_by_hour(table, self._hour_of)
        ]
        storage.all_done(self._table_path, jobs, self._files.append)


def split_by_hour(table: pa.Table, hour_of: tuple[str, ...]) -> list[tuple[str, pa.Table]]:
    """(hour bucket, its rows in their order), ascending by hour. UTC, YYYY-MM-DD-HH."""
    now_us = pa.scalar(time.time_ns() // 1000, pa.int64())
    names = [name for name in hour_of if name in table.column_names]
    columns = [table.column(n) for n in names if pa.types.is_timestamp(table.schema.field(n).type)]
    times = [column.cast(pa.int64()) for column in columns]
    hours = np.floor_divide(pc.coalesce(*times, now_us).to_numpy(), US_PER_HOUR)
    distinct, counts = np.unique(hours, return_counts=True)
    if len(distinct) > 1:
        table = table.take(pa.array(np.argsort(hours, kind="stable")))
    parts = []
    start = 0
    for hour, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        parts.append((hour_name(hour), table.slice(start, count)))
        start += count
    return parts


def hour_name(hours_since_epoch: int) -> str:
    """The bucket's name, such as `2015-05-17-10`; years 1 to 9999."""
    moment = _EPOCH_HOUR + np.timedelta64(hours_since_epoch, "h")
    return str(moment).replace("T", "-")


def write_file(table_path: StoragePath, hour: str, rows: pa.Table, name: str) -> NewFile:
    """Write one Parquet file durably under its final, unique name.

    Raises OSError when it cannot be written; the unfinished file is removed then.
    """
    path = f"{HOUR_COLUMN}={hour}/{name}.parquet"
    size_bytes = write_whole(
        table_path / path,
        lambda file: pq.write_table(
            rows,
            file,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=_dictionary_columns(rows.schema),
            write_statistics=[each.name for each in rows.schema if has_statistics(each.type)],
        ),
    )
    modified_ms = time.time_ns() // 1_000_000
    return NewFile(path, hour, size_bytes, rows.num_rows, _stats(rows), modified_ms)


def remove_files(table_path: StoragePath, files: Iterable[NewFile]) -> None:
    """Remove files that no commit will name. Where one cannot be removed, it and the rest are left
    to `vacuum`: a store that is away takes half a minute for each."""
    with contextlib.suppress(OSError):
        for file in files:
            (table_path / file.path).unlink(missing_ok=True)


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """The string columns: their values repeat. A dictionary of guids or offsets would only cost."""
    return [column.name for column in schema if pa.types.is_string(column.type)]


def has_statistics(kind: pa.DataType) -> bool:
    """Whether a column has the smallest and largest value in its files, by which engines pass over
    rows. NaN is neither, so that an engine would pass over it or not as files are cut."""
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _stats(rows: pa.Table) -> str:
    """Delta's file statistics: the row count and the range of offsets."""
    stats: dict[str, object] = {"numRecords": rows.num_rows}
    if "source_offset" in rows.column_names:
        bounds = pc.min_max(rows.column("source_offset")).as_py()
        stats["minValues"] = {"source_offset": bounds["min"]}
        stats["maxValues"] = {"source_offset": bounds["max"]}
        stats["nullCount"] = {"source_offset": 0}
    return json.dumps(stats, separators=(",", ":"))
