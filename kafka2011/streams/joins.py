"""Joins: of two streams within a time, and of a stream with a table."""

from collections.abc import Mapping
from typing import Any

from kafka2011.streams.times import interval


def join_streams(
    first: Any, second: Any, on: str, *, within_ms: int, first_time: str, second_time: str
) -> Any:
    """A row for each pair with equal `on`, the second at most `within_ms` after the first.

    Both need a watermark (`deduplicated`) on their time columns; it bounds what is kept of each.
    Except for `on` no column may be in both: select and rename before. Raises ValueError.
    """
    from pyspark.sql import functions as f

    both = sorted(set(first.columns) & set(second.columns) - {on})
    if both:
        raise ValueError(f"both streams have a column {', '.join(both)}: rename it in one")
    other = f"second_{on}"
    began, came = f.col(first_time), f.col(second_time)
    latest = began + f.expr(f"INTERVAL '{interval(within_ms)}'")
    is_pair = (f.col(on) == f.col(other)) & (came >= began) & (came <= latest)
    return first.join(second.withColumnRenamed(on, other), is_pair).drop(other)


def join_table(
    events: Any, table: Any, on: str, *, missing: Mapping[str, Any] | None = None
) -> Any:
    """Events with the columns of the `table` row that has the same `on`.

    An event without such a row is kept, with nulls or the values that `missing` gives by column.
    The table is copied to every executor, and files are read again in each batch.
    """
    from pyspark.sql import functions as f

    joined = events.join(f.broadcast(table), on, "left")
    for column, value in (missing or {}).items():
        joined = joined.withColumn(column, f.coalesce(column, f.lit(value)))
    return joined
