"""Counts in windows, sessions, and the largest counts of a window."""

from typing import Any

from kafka2011.streams.times import EVENT_TIME, interval


def windowed_counts(
    events: Any,
    by: str,
    *,
    window_ms: int,
    slide_ms: int | None = None,
    count: str = "count",
    time: str = EVENT_TIME,
) -> Any:
    """Events by the column `by` in windows: window_start, window_end, `by` and `count`.

    With `slide_ms` a window begins that often, so that they overlap; it must not be above
    `window_ms`. In output mode append a window comes once and complete, when the stream's watermark
    (`deduplicated`) has passed its end: later events are not counted.
    """
    from pyspark.sql import functions as f

    if window_ms < 1 or not 1 <= (slide_ms or window_ms) <= window_ms:
        raise ValueError(f"windows of {window_ms} ms every {slide_ms} ms: from 1 to window_ms")
    window = f.window(time, interval(window_ms), interval(slide_ms or window_ms))
    counted = events.groupBy(window.alias("window"), by).agg(f.count("*").alias(count))
    start, end = f.col("window.start"), f.col("window.end")
    return counted.select(start.alias("window_start"), end.alias("window_end"), by, count)


def sessions(
    events: Any, by: str, *, gap_ms: int, count: str = "count", time: str = EVENT_TIME
) -> Any:
    """Visits: `by`, session_start, session_end and the `count` of events.

    A pause of `gap_ms` or more ends a session; session_end is `gap_ms` behind its last event.
    """
    from pyspark.sql import functions as f

    session = f.session_window(time, interval(gap_ms))
    counted = events.groupBy(session.alias("session"), by).agg(f.count("*").alias(count))
    start, end = f.col("session.start"), f.col("session.end")
    return counted.select(by, start.alias("session_start"), end.alias("session_end"), count)


def top_k(
    batch: Any, k: int, by: str, *, count: str = "count", within: str = "window_start"
) -> Any:
    """The `k` rows with the largest `count` of each value of `within`, with a column `rank` from 1.

    Equal counts are in the order of `by`. For a table, or for the batches of Spark's foreachBatch:
    in output mode append all rows of a window are in one batch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(within).orderBy(f.desc(count), f.asc(by))
    return batch.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= k)
