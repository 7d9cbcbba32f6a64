"""The traffic report: page views, visitors and bytes per hour, top paths, share of errors.

Reads only the warehouse's table. Definitions: a page view is a row, counted once per guid however
often it was delivered; a visitor is a distinct host; null bytes are 0, but unknown where no page
view has any; a path is the second word of the request with its query; an error is a status of 400
or more; hours are those of event_time in UTC; paths with equally many views are ordered by their
UTF-8 bytes.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from kafka2011.runtime.config import suggestion
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import WarehouseError, WarehouseTable
from kafka2011.services.warehouse.reports.traffic_counts import (
    BYTES_SQL,
    COUNTS_TEXT,
    by_hour,
    count_hours,
)
from kafka2011.services.warehouse.table_paths import tables_in
from kafka2011.services.warehouse.table_views import has_repeats, read_table

TOP_PATHS = 20
TASKS_A_CORE = 2
TABLES = ("access_log", "page_view")  # the first that exists, when no table is named
COLUMNS = ("guid", "hour", "host", "path", "status", "bytes")

# What the tasks have counted (`traffic_counts`): a row an hour, then all together.
_HOURS = """
SELECT name AS hour, page_views, visitors, bytes, errors, deliveries, left_out
FROM counts WHERE kind = 'hour'
"""
_HOSTS = "SELECT count(DISTINCT name) AS visitors FROM counts WHERE kind = 'host'"
_PATHS = """
SELECT name AS path, sum(page_views) AS page_views FROM counts WHERE kind = 'path'
GROUP BY name ORDER BY page_views DESC, path ASC LIMIT :count
"""

# The same by Spark alone, for what the tasks leave out: one row an hour, and one with a null hour
# for all of them together.
_TRAFFIC = """
SELECT hour, count(*) AS page_views, count(DISTINCT host) AS visitors,
       sum(bytes) AS bytes, count_if(status >= 400) AS errors,
       coalesce(sum(deliveries), 0) AS deliveries
FROM page_views GROUP BY GROUPING SETS ((hour), ())
"""
_TOP_PATHS = """
SELECT path, count(*) AS page_views FROM page_views
GROUP BY path ORDER BY page_views DESC, path ASC LIMIT :count
"""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of an hour or of all. `bytes` is None where no page view has any. `error_share`
    is errors / page views, 0 when there are none."""

    page_views: int
    visitors: int
    bytes: int | None
    errors: int
    error_share: float


@dataclass(frozen=True, slots=True)
class HourTraffic(Traffic):
    hour: str


@dataclass(frozen=True, slots=True)
class PathViews:
    """The page views of a path; None for those without one."""

    path: str | None
    page_views: int


@dataclass(frozen=True, slots=True)
class Report:
    """The report. `rows` counts the table's rows: those beyond the page views are redeliveries.
    `took_ms` is how long Spark computed, without the JVM's start."""

    table: str
    version: int
    took_ms: int
    rows: int
    totals: Traffic
    hours: list[HourTraffic]
    top_paths: list[PathViews]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def choose_table(warehouse_dir: StoragePath, name: str) -> str:
    """`name`, or the first of TABLES that exists. Raises WarehouseError when there is none."""
    if not warehouse_dir.is_dir():
        raise WarehouseError(
            f"there is no warehouse at {warehouse_dir}; `make demo` leaves one, that of another "
            "directory is --set warehouse.dir=DIR/warehouse"
        )
    candidates = (name,) if name else TABLES
    for candidate in candidates:
        if (warehouse_dir / candidate / storage.LOG_DIRECTORY).is_dir():
            return candidate
    advice = suggestion(name, tables_in(warehouse_dir)) if name else ""
    raise WarehouseError(
        f"no table {' or '.join(candidates)} in {warehouse_dir}"
        + (
            advice
            or ": `make demo` leaves one; the tables of another directory: "
            "--set warehouse.dir=DIR/warehouse"
        )
    )


def make_report(session: Any, warehouse_dir: StoragePath, table_name: str) -> Report:
    """Compute the report. Raises WarehouseError when the table or a column of it is missing."""
    began = time.monotonic()
    opened = WarehouseTable.open_to_read(warehouse_dir.resolve() / table_name)
    if opened is None:
        raise WarehouseError(f"no table {table_name} in {warehouse_dir}")
    lacking = set(COLUMNS) - set(opened.schema().names)
    if lacking:
        raise WarehouseError(f"table {table_name} has no column {', '.join(sorted(lacking))}")
    traffic, top = _counted(session, opened) or _queried(session, opened)
    totals = [row for row in traffic if row["hour"] is None]  # none when there is no row at all
    by_hour_rows = [row for row in traffic if row["hour"]]
    are_sized = not by_hour_rows or any(row["bytes"] is not None for row in by_hour_rows)
    hours = [HourTraffic(**_traffic(row, are_sized), hour=row["hour"]) for row in by_hour_rows]
    return Report(
        table=table_name,
        version=opened.version,
        took_ms=round((time.monotonic() - began) * 1000),
        rows=int(totals[0]["deliveries"]) if totals else 0,
        totals=Traffic(**_traffic(totals[0], are_sized)) if totals else Traffic(0, 0, 0, 0, 0.0),
        hours=sorted(hours, key=lambda hour: hour.hour),
        top_paths=[PathViews(row["path"], int(row["page_views"])) for row in top],
    )


Figures = tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]


def _counted(session: Any, table: WarehouseTable) -> Figures | None:
    """The rows of _TRAFFIC and _TOP_PATHS, counted by Arrow; None if it cannot count them all."""
    hours = by_hour(table.file_paths())
    if not hours:
        return [], []
    schema = table.schema()
    columns = pa.schema([schema.field(name) for name in COLUMNS])
    if not all(pa.types.is_integer(columns.field(name).type) for name in ("status", "bytes")):
        return None
    count = min(len(hours), TASKS_A_CORE * session.sparkContext.defaultParallelism)
    shares = [hours[start::count] for start in range(count)]

    def counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:  # one row: the number of the task
            for number in batch.column(0).to_pylist():
                yield from count_hours(shares[number], columns)

    found = session.range(0, count, 1, count).mapInArrow(counts, COUNTS_TEXT).persist()
    found.createOrReplaceTempView("counts")
    try:
        traffic = [row.asDict() for row in session.sql(_HOURS).collect()]
        if any(row["left_out"] for row in traffic):
            return None
        [(visitors,)] = session.sql(_HOSTS).collect()
        top = session.sql(_PATHS, args={"count": TOP_PATHS}).collect()
    finally:
        session.catalog.dropTempView("counts")
        found.unpersist()
    summed = ("page_views", "bytes", "errors", "deliveries")
    whole = {name: sum(row[name] or 0 for row in traffic) for name in summed}
    return [*traffic, {**whole, "hour": None, "visitors": visitors}], top


def _queried(session: Any, table: WarehouseTable) -> Figures:
    """The same rows, by Spark's queries."""
    rows = read_table(session, table, COLUMNS)
    if pa.types.is_integer(table.schema().field("bytes").type):
        rows = rows.withColumn("bytes", rows["bytes"].cast(BYTES_SQL))
    page_views = _page_views(rows)
    page_views.createOrReplaceTempView("page_views")
    try:
        traffic = session.sql(_TRAFFIC).collect()
        return traffic, session.sql(_TOP_PATHS, args={"count": TOP_PATHS}).collect()
    finally:
        session.catalog.dropTempView("page_views")


def _page_views(rows: Any) -> Any:
    """The rows with each event once, and `deliveries`: how often it was delivered."""
    from pyspark.sql import functions as f

    if not has_repeats(rows):
        return rows.withColumn("deliveries", f.lit(1))
    once = [f.first(name).alias(name) for name in COLUMNS if name != "guid"]
    return rows.groupBy("guid").agg(*once, f.count("*").alias("deliveries"))


def _traffic(row: Any, are_sized: bool) -> dict[str, Any]:
    page_views, errors = int(row["page_views"]), int(row["errors"])
    return {
        "page_views": page_views,
        "visitors": int(row["visitors"]),
        "bytes": int(row["bytes"] or 0) if are_sized else None,
        "errors": errors,
        "error_share": errors / page_views if page_views else 0.0,
    }
