"""The stream jobs' definitions: the DataFrames of topics to the DataFrame of the result.

    views-tumbling       page views per path and window
    views-sliding        the same, over windows that overlap
    member-sessions      visits of a member: a pause ends one
    search-to-click      clicks within half an hour of a search by the same member
    clicks-by-category   clicks per window, by the item's category in a table of another store
    views-per-member     page views per member of a keyed topic, without a shuffle
    top-items            the items clicked most in each window, written back to a topic

Events are decoded, and counted once by their guid if redelivered within the watermark. Times are
event_time. Nothing runs here: `runner` starts the queries.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka2011.events.topics import CLICK, PAGE_VIEW, SEARCH

# topic -> its decoded events, as a stream
Streams = Mapping[str, Any]

CLICK_WITHIN_MINUTES = 30


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Durations in ms. `items` is the DataFrame of the other store, for the job that joins it."""

    watermark_ms: int = 60_000
    window_ms: int = 60_000
    slide_ms: int = 20_000
    session_gap_ms: int = 1_800_000
    top: int = 10
    items: Any = None


@dataclass(frozen=True, slots=True)
class StreamJob:
    """`build` makes the stream to write: to a topic if `is_ranked`, else to files."""

    name: str
    about: str
    topics: tuple[str, ...]
    build: Callable[[Streams, StreamSettings], Any]
    is_ranked: bool = False
    needs_items: bool = False


def _ms(duration_ms: int) -> str:
    return f"{duration_ms} milliseconds"


def _once(events: Any, settings: StreamSettings) -> Any:
    """Decodable events, de-duplicated within the watermark."""
    return (
        events.where("error IS NULL")
        .withWatermark("event_time", _ms(settings.watermark_ms))
        .dropDuplicatesWithinWatermark(["guid"])
    )


def _windows(events: Any, settings: StreamSettings, key: str, count: str, slide_ms: int) -> Any:
    from pyspark.sql import functions as f

    window = f.window("event_time", _ms(settings.window_ms), _ms(slide_ms))
    return (
        events.groupBy(window.alias("window"), key)
        .agg(f.count("*").alias(count))
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            key,
            count,
        )
    )


def views_tumbling(streams: Streams, settings: StreamSettings) -> Any:
    views = _once(streams[PAGE_VIEW], settings)
    return _windows(views, settings, "path", "views", settings.window_ms)


def views_sliding(streams: Streams, settings: StreamSettings) -> Any:
    views = _once(streams[PAGE_VIEW], settings)
    return _windows(views, settings, "path", "views", settings.slide_ms)


def member_sessions(streams: Streams, settings: StreamSettings) -> Any:
    from pyspark.sql import functions as f

    session = f.session_window("event_time", _ms(settings.session_gap_ms))
    return (
        _once(streams[PAGE_VIEW], settings)
        .groupBy(session.alias("session"), "member_id")
        .agg(f.count("*").alias("views"))
        .select(
            "member_id",
            f.col("session.start").alias("session_start"),
            f.col("session.end").alias("session_end"),
            "views",
        )
    )


def search_to_click(streams: Streams, settings: StreamSettings) -> Any:
    """A row for each search and later click of a member; the watermark bounds both sides' state."""
    from pyspark.sql import functions as f

    searches = _once(streams[SEARCH], settings).select(
        f.col("member_id"), f.col("event_time").alias("searched_at"), f.col("query")
    )
    clicks = _once(streams[CLICK], settings).select(
        f.col("member_id").alias("clicker"), f.col("event_time").alias("clicked_at"), f.col("item")
    )
    latest = f.col("searched_at") + f.expr(f"INTERVAL {CLICK_WITHIN_MINUTES} MINUTES")
    is_pair = (
        (f.col("member_id") == f.col("clicker"))
        & (f.col("clicked_at") >= f.col("searched_at"))
        & (f.col("clicked_at") <= latest)
    )
    return searches.join(clicks, is_pair).drop("clicker")


def clicks_by_category(streams: Streams, settings: StreamSettings) -> Any:
    """Clicks per category and window; items missing in the other store have category `unknown`."""
    from pyspark.sql import functions as f

    items = f.broadcast(settings.items.select("item", "category"))
    clicks = _once(streams[CLICK], settings).join(items, "item", "left")
    clicks = clicks.withColumn("category", f.coalesce("category", f.lit("unknown")))
    return _windows(clicks, settings, "category", "clicks", settings.window_ms)


def views_per_member(streams: Streams, settings: StreamSettings) -> Any:
    """Counts of each micro-batch, made in the task that reads the partition.

    A producer's key places all messages of a member in one partition, and a stream reads a
    partition in one task. So each member's are in one task, and nothing is shuffled. Redelivered
    events count again: to recognise them needs state, which Spark distributes by a shuffle.
    """
    del settings
    views = streams[PAGE_VIEW].where("error IS NULL").select("partition", "member_id")
    return views.mapInArrow(_count_members, "member_id long, partition int, views long")


def _count_members(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row a member and partition, over all batches of the task."""
    counted = None
    for batch in batches:
        found = pa.table(batch).group_by(["member_id", "partition"])
        part = found.aggregate([([], "count_all")]).rename_columns({"count_all": "views"})
        if counted is not None:
            together = pa.concat_tables([counted, part]).group_by(["member_id", "partition"])
            part = together.aggregate([("views", "sum")]).rename_columns({"views_sum": "views"})
        counted = part
    if counted is not None:
        chosen = counted.select(["member_id", "partition", "views"])
        yield from chosen.combine_chunks().to_batches()


def top_items(streams: Streams, settings: StreamSettings) -> Any:
    """Clicks per item and window. A window's rows are in one micro-batch, when it is closed."""
    clicks = _once(streams[CLICK], settings)
    return _windows(clicks, settings, "item", "clicks", settings.window_ms)


def ranked(closed: Any, top: int) -> Any:
    """The first `top` rows of each closed window as messages: key and JSON payload."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("window_start").orderBy(f.desc("clicks"), f.asc("item"))
    payload = f.struct("window_start", "window_end", "rank", "item", "clicks")
    return (
        closed.withColumn("rank", f.row_number().over(order))
        .where(f.col("rank") <= top)
        .select(f.col("item").alias("key"), f.to_json(payload).alias("payload"))
    )


JOBS = (
    StreamJob("views-tumbling", "page views per path and window", (PAGE_VIEW,), views_tumbling),
    StreamJob("views-sliding", "the same over windows that overlap", (PAGE_VIEW,), views_sliding),
    StreamJob("member-sessions", "visits; a pause ends one", (PAGE_VIEW,), member_sessions),
    StreamJob(
        "search-to-click",
        f"clicks within {CLICK_WITHIN_MINUTES} minutes of a search",
        (SEARCH, CLICK),
        search_to_click,
    ),
    StreamJob(
        "clicks-by-category",
        "clicks per window, by the category that a table of items names",
        (CLICK,),
        clicks_by_category,
        needs_items=True,
    ),
    StreamJob(
        "views-per-member",
        "page views per member of a topic keyed by member, without a shuffle",
        (PAGE_VIEW,),
        views_per_member,
    ),
    StreamJob(
        "top-items",
        "the items clicked most in each window, written to a topic",
        (CLICK,),
        top_items,
        is_ranked=True,
    ),
)
BY_NAME = {job.name: job for job in JOBS}
