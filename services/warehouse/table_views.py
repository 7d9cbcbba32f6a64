"""Tables of the warehouse as Spark DataFrames and views, without Delta's own reader.

The files come from the table's log, never from a listing of its directory, which also holds files
that no commit names. Spark reads those of a directory itself. Those of an object store are read by
Arrow in its Python workers, unless `hadoop-aws` is on Spark's class path: PySpark brings no client
of a store. Spark does not tell such a reader which columns a query needs, so the caller does.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from kafka2011.runtime.storage_paths import ObjectPath, StoragePath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN, WarehouseTable

BATCH_ROWS = 65_536
FILES_A_TASK = 64
_GLOB = re.compile(r"[\\*?\[\]{}]")  # signs of a pattern in what Spark takes for paths
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def read_table(session: Any, table: WarehouseTable, columns: Collection[str] | None = None) -> Any:
    """A Spark DataFrame of the version at which `table` was opened, columns in its order.

    With `columns` only these, at least one; None: all.
    """
    from pyspark.sql.types import StructType

    whole = StructType.fromJson(json.loads(table.schema_json()))
    schema = StructType([f for f in whole.fields if columns is None or f.name in columns])
    files = table.file_paths()
    if not files:
        return session.createDataFrame([], schema)
    base = str(table.path)
    if isinstance(table.path, ObjectPath):
        if not _has_hadoop_aws(session):
            return _read_by_arrow(session, table, files, schema)
        files, base = [_s3a(file) for file in files], _s3a(base)
    reader = session.read.schema(whole).option("basePath", base)
    rows = reader.parquet(*(_GLOB.sub(r"\\\g<0>", file) for file in files))
    return rows.select(*schema.names)  # Spark puts the partition column last


def _s3a(url: str) -> str:
    return url.replace("s3://", "s3a://", 1)


def _has_hadoop_aws(session: Any) -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        session.sparkContext._jvm.java.lang.Class.forName(_S3A)
    except Py4JError:
        return False
    return True


def _read_by_arrow(session: Any, table: WarehouseTable, files: list[str], schema: Any) -> Any:
    """The files' rows, read in as many tasks as run at once, or more for large tables."""
    fields = table.schema()
    wanted = pa.schema([fields.field(name) for name in schema.names])
    count = min(
        len(files), max(session.sparkContext.defaultParallelism, len(files) // FILES_A_TASK)
    )
    shares = [files[start::count] for start in range(count)]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:  # one row: the number of the task
            for number in batch.column(0).to_pylist():
                for file in shares[number]:
                    yield from rows_of(file, wanted)

    return session.range(0, count, 1, count).mapInArrow(read, schema)


def rows_of(file: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file in these columns: null where the file is older than the column, and
    the hour of its directory."""
    with storage.parquet_file(file) as opened:
        there = set(opened.schema_arrow.names)
        columns = [name for name in wanted.names if name in there]
        hour = file.rpartition(f"/{HOUR_COLUMN}=")[2].partition("/")[0]
        for batch in opened.iter_batches(BATCH_ROWS, columns=columns):
            arrays = []
            for field in wanted:
                if field.name in columns:
                    arrays.append(batch.column(field.name).cast(field.type))
                elif field.name == HOUR_COLUMN:
                    arrays.append(pa.repeat(pa.scalar(hour, field.type), batch.num_rows))
                else:
                    arrays.append(pa.nulls(batch.num_rows, field.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def create_view(session: Any, name: str, path: StoragePath) -> bool:
    """Make the newest version of the table at `path` a view; False where there is no table. Raises
    WarehouseError for one that cannot be opened."""
    table = WarehouseTable.open_to_read(path)
    if table is None:
        return False
    read_table(session, table).createOrReplaceTempView(name)
    return True


def has_repeats(rows: Any) -> bool:
    """Whether an event is there more than once; runs a Spark job over the column `guid`.

    It pays to ask first: to take one row of each guid Spark sorts them all.
    """
    from pyspark.sql import functions as f

    (counts,) = rows.select(f.count("*"), f.count_distinct("guid")).collect()
    return bool(counts[0] != counts[1])
