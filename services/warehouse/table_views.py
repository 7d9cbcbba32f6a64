"""Tables of the warehouse as Spark DataFrames and views, without Delta's own reader.

The files come from the table's log, never from a listing of its directory, which also holds files
that no commit names.
"""

import json
from pathlib import Path
from typing import Any

from kafka2011.services.warehouse.delta_table import WarehouseTable


def read_table(session: Any, table: WarehouseTable) -> Any:
    """A Spark DataFrame of the version at which `table` was opened, columns in its order."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(table.schema_json()))
    files = table.file_paths()
    if not files:
        return session.createDataFrame([], schema)
    rows = session.read.schema(schema).option("basePath", str(table.path)).parquet(*files)
    return rows.select(*schema.names)  # Spark puts the partition column last


def create_view(session: Any, name: str, path: Path) -> bool:
    """Make the newest version of the table at `path` a view; False where there is no table."""
    table = WarehouseTable.open(path)
    if table is None:
        return False
    read_table(session, table).createOrReplaceTempView(name)
    return True


def has_repeats(rows: Any) -> bool:
    """Whether an event is there more than once; runs a Spark job over the column `guid`.

    Worth knowing first: to take one row of each guid Spark sorts them all.
    """
    from pyspark.sql import functions as f

    (counts,) = rows.select(f.count("*"), f.count_distinct("guid")).collect()
    return bool(counts[0] != counts[1])
