"""The traffic report: page views, visitors and bytes per hour, top paths, share of errors.

Reads only the warehouse's table. Definitions: a page view is a row, counted once per guid however
often it was delivered; a visitor is a distinct host; null bytes are 0; a path is the second word of
the request with its query; an error is a status of 400 or more; hours are those of event_time in
UTC; paths with equally many views are ordered by their UTF-8 bytes.
"""

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from kafka2011.runtime.places import Place
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import WarehouseError, WarehouseTable
from kafka2011.services.warehouse.table_views import has_repeats, read_table

TOP_PATHS = 20
TABLES = ("access_log", "page_view")  # the first that exists, when no table is named
COLUMNS = ("guid", "hour", "host", "path", "status", "bytes")

# One row an hour, and one with a null hour for all of them together.
_TRAFFIC = """
SELECT hour, count(*) AS page_views, count(DISTINCT host) AS visitors,
       coalesce(sum(bytes), 0) AS bytes, count_if(status >= 400) AS errors,
       coalesce(sum(deliveries), 0) AS deliveries
FROM page_views GROUP BY GROUPING SETS ((hour), ())
"""
_TOP_PATHS = """
SELECT path, count(*) AS page_views FROM page_views
GROUP BY path ORDER BY page_views DESC, path ASC LIMIT :count
"""


@dataclass(frozen=True, slots=True)
class Traffic:
    """`error_share` is errors / page views, 0 when there are none."""

    page_views: int
    visitors: int
    bytes: int
    errors: int
    error_share: float


@dataclass(frozen=True, slots=True)
class HourTraffic(Traffic):
    hour: str


@dataclass(frozen=True, slots=True)
class PathViews:
    path: str
    page_views: int


@dataclass(frozen=True, slots=True)
class Report:
    """`rows` are the table's rows: those above the number of page views are redeliveries.
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


def choose_table(warehouse_dir: Place, name: str) -> str:
    """`name`, or the first of TABLES that exists. Raises WarehouseError when there is none."""
    candidates = (name,) if name else TABLES
    for candidate in candidates:
        if (warehouse_dir / candidate / storage.LOG_DIRECTORY).is_dir():
            return candidate
    raise WarehouseError(f"no table {' or '.join(candidates)} in {warehouse_dir}")


def make_report(session: Any, warehouse_dir: Place, table_name: str) -> Report:
    """Compute the report. Raises WarehouseError when the table or a column of it is missing."""
    began = time.monotonic()
    opened = WarehouseTable.open(warehouse_dir.resolve() / table_name)
    if opened is None:
        raise WarehouseError(f"no table {table_name} in {warehouse_dir}")
    lacking = set(COLUMNS) - set(opened.schema().names)
    if lacking:
        raise WarehouseError(f"table {table_name} has no column {', '.join(sorted(lacking))}")
    page_views = _page_views(read_table(session, opened, COLUMNS))
    page_views.createOrReplaceTempView("page_views")
    try:
        traffic = session.sql(_TRAFFIC).collect()
        top = session.sql(_TOP_PATHS, args={"count": TOP_PATHS}).collect()
    finally:
        session.catalog.dropTempView("page_views")
    totals = [row for row in traffic if row["hour"] is None]  # none when there is no row at all
    hours = [HourTraffic(**_traffic(row), hour=row["hour"]) for row in traffic if row["hour"]]
    return Report(
        table=table_name,
        version=opened.version,
        took_ms=round((time.monotonic() - began) * 1000),
        rows=int(totals[0]["deliveries"]) if totals else 0,
        totals=Traffic(**_traffic(totals[0])) if totals else Traffic(0, 0, 0, 0, 0.0),
        hours=sorted(hours, key=lambda hour: hour.hour),
        top_paths=[PathViews(row["path"], int(row["page_views"])) for row in top],
    )


def _page_views(rows: Any) -> Any:
    """The rows with each event once, and `deliveries`: how often it was delivered."""
    from pyspark.sql import functions as f

    if not has_repeats(rows):
        return rows.withColumn("deliveries", f.lit(1))
    once = [f.first(name).alias(name) for name in COLUMNS if name != "guid"]
    return rows.groupBy("guid").agg(*once, f.count("*").alias("deliveries"))


def _traffic(row: Any) -> dict[str, Any]:
    page_views, errors = int(row["page_views"]), int(row["errors"])
    return {
        "page_views": page_views,
        "visitors": int(row["visitors"]),
        "bytes": int(row["bytes"]),
        "errors": errors,
        "error_share": errors / page_views if page_views else 0.0,
    }
