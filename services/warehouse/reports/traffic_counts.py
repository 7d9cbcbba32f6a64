"""Page views counted from a table's files by Arrow: what a task of the traffic report returns.

Copies of an event have its time, and so the same hour: each hour is counted by itself, and Spark
only adds up what the tasks found.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka2011.events.header import GUID_BYTES
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN
from kafka2011.services.warehouse.table_views import rows_of

TIME_COLUMN = "header_time"
HOUR_ROWS_MAX = 5_000_000  # 0.5 GB or so

BYTES = pa.decimal128(38, 0)  # a sum of 64 bits would wrap
BYTES_SQL = "decimal(38,0)"

# `kind` is "hour", "host" or "path", and `name` which one. A host has only the name, a path its
# page views. `left_out` rows are not counted: too many for the memory of a task, or without a time,
# so that their copies may be in another hour.
COUNTS = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("page_views", pa.int64()),
        ("visitors", pa.int64()),
        ("bytes", BYTES),
        ("errors", pa.int64()),
        ("deliveries", pa.int64()),
        ("left_out", pa.int64()),
    ]
)
_SQL_NAMES = {pa.string(): "string", pa.int64(): "long", BYTES: BYTES_SQL}
COUNTS_TEXT = ", ".join(f"{field.name} {_SQL_NAMES[field.type]}" for field in COUNTS)


def hour_of_file(file: str) -> str:
    """The hour of the directory that the file is in."""
    return file.rpartition(f"/{HOUR_COLUMN}=")[2].partition("/")[0]


def by_hour(files: Sequence[str]) -> list[list[str]]:
    """The files of each hour, the hours with most files first."""
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(hour_of_file(file), []).append(file)
    return sorted(found.values(), key=len, reverse=True)


def count_hours(hours: Sequence[Sequence[str]], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The counts of some hours' files. `columns` are the report's, of the table's types."""
    hosts: list[pa.Array] = []
    paths: list[pa.Table] = []
    for files in hours:
        hour = hour_of_file(files[0])
        row_count, untimed = (sum(each) for each in zip(*map(_size_of, files), strict=True))
        if untimed or row_count > HOUR_ROWS_MAX:
            yield _batch("hour", pa.array([hour]), left_out=[row_count])
            continue
        rows = pa.Table.from_batches(
            (batch for file in files for batch in rows_of(file, columns)), schema=columns
        )
        first = first_copies(rows["guid"])
        views = rows if first is None else rows.take(first)
        distinct = pc.unique(views["host"].cast(pa.string())).drop_null()
        viewed = pc.value_counts(views["path"].cast(pa.string()))
        hosts.append(distinct)
        paths.append(pa.table({"path": viewed.field("values"), "views": viewed.field("counts")}))
        yield _batch(
            "hour",
            pa.array([hour]),
            page_views=[len(views)],
            visitors=[len(distinct)],
            bytes=[pc.sum(views["bytes"].cast(BYTES)).as_py()],  # None: no view has any
            errors=[pc.sum(pc.greater_equal(views["status"], 400)).as_py() or 0],
            deliveries=[len(rows)],
        )
    if hosts:
        yield _batch("host", pc.unique(pa.chunked_array(hosts)))
        added = pa.concat_tables(paths).group_by("path").aggregate([("views", "sum")])
        [whole] = added.combine_chunks().to_batches()
        yield _batch("path", whole["path"], page_views=whole["views_sum"])


def first_copies(guids: pa.ChunkedArray) -> pa.Array | None:
    """The numbers of the rows that have the first copy of each guid; None: no guid repeats.

    Sorting the guids' first halves says in a tenth of the time that all differ.
    """
    if not len(guids):
        return None
    whole = guids.combine_chunks()
    if pa.types.is_binary(whole.type) and not whole.null_count:
        ends = np.frombuffer(whole.buffers()[1], np.int32, len(whole) + 1, 4 * whole.offset)
        if (np.diff(ends) == GUID_BYTES).all():
            halves = np.frombuffer(whole.buffers()[2], np.uint64, 2 * len(whole), int(ends[0]))
            ordered = np.sort(halves[::2])
            if (ordered[1:] != ordered[:-1]).all():
                return None
    numbers = whole.dictionary_encode(null_encoding="encode").indices.to_numpy()
    first = np.sort(np.unique(numbers, return_index=True)[1])
    return None if len(first) == len(whole) else pa.array(first)


def _size_of(file: str) -> tuple[int, int]:
    """A file's rows, and how many of them may have no time of their own, by its footer."""
    with storage.parquet_file(file) as opened:
        schema, footer = opened.schema_arrow, opened.metadata
        names = [footer.schema.column(n).path for n in range(footer.num_columns)]
        if TIME_COLUMN not in names or not pa.types.is_timestamp(schema.field(TIME_COLUMN).type):
            return footer.num_rows, footer.num_rows
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        about = [group.column(names.index(TIME_COLUMN)).statistics for group in groups]
        untimed = (
            of.null_count if of is not None and of.has_null_count else group.num_rows
            for group, of in zip(groups, about, strict=True)
        )
        return footer.num_rows, sum(untimed)


def _batch(kind: str, names: pa.Array, **counts: list[Any] | pa.Array) -> pa.RecordBatch:
    """A batch of COUNTS; 0 for the counts that are not given."""
    none = [0] * len(names)
    columns = {"kind": [kind] * len(names), "name": names}
    return pa.RecordBatch.from_pydict(
        {name: columns.get(name, counts.get(name, none)) for name in COUNTS.names}, COUNTS
    )
