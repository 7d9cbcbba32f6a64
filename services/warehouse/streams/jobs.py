"""The stream jobs' definitions: the DataFrames of topics to the DataFrame of the result.

    views-tumbling       page views per path and window
    views-sliding        the same, over windows that overlap
    member-sessions      visits of a member: a pause ends one
    search-to-click      clicks within half an hour of a search by the same member
    clicks-by-category   clicks per window, by the item's category in a table of another store
    views-per-member     page views per member of a keyed topic, without a shuffle
    impressions-per-item impressions per item of a topic keyed by item, without a shuffle
    top-items            the items clicked most in each window, written back to a topic
    related-items        pairs of items that the same members view, to the topic site-related

Events are decoded, and counted once by their guid if redelivered within the watermark. Times are
event_time. Nothing runs here: `runner` starts the queries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka2011 import streams as lib
from kafka2011.events.topics import CLICK, IMPRESSION, PAGE_VIEW, SEARCH, SITE_RELATED
from kafka2011.streams.times import interval

# topic -> its decoded events, as a stream
Streams = Mapping[str, Any]

CLICK_WITHIN_MINUTES = 30
# That a member views in one window: one that views more would make pairs of everything.
ITEMS_OF_A_MEMBER_MAX = 20
# Ways to items, not items; as in services/site/trending.py.
NOT_ITEMS = ("/", "/home", "/search")


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a job is built with; durations in ms. `items` is the DataFrame of the other store, for
    the job that joins it; `placement` the partitions of the topic, for one that relies on keys."""

    watermark_ms: int = 60_000
    window_ms: int = 60_000
    slide_ms: int = 20_000
    session_gap_ms: int = 1_800_000
    top: int = 10
    items: Any = None
    placement: lib.Placement | None = None


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A stream job. `build` makes the stream to write: to a topic if `is_ranked`, as events of
    `result_topic` if there is one, else to files."""

    name: str
    about: str
    topics: tuple[str, ...]
    build: Callable[[Streams, StreamSettings], Any]
    is_ranked: bool = False
    needs_items: bool = False
    result_topic: str = ""
    is_placed_by: str = ""  # the column by which the topic is keyed
    counts: str = "views"  # the result's column of counts, for such a job


def _once(events: Any, settings: StreamSettings) -> Any:
    return lib.deduplicated(events, watermark_ms=settings.watermark_ms)


def views_tumbling(streams: Streams, settings: StreamSettings) -> Any:
    views = _once(streams[PAGE_VIEW], settings)
    return lib.windowed_counts(views, "path", window_ms=settings.window_ms, count="views")


def views_sliding(streams: Streams, settings: StreamSettings) -> Any:
    return lib.windowed_counts(
        _once(streams[PAGE_VIEW], settings),
        "path",
        window_ms=settings.window_ms,
        slide_ms=settings.slide_ms,
        count="views",
    )


def member_sessions(streams: Streams, settings: StreamSettings) -> Any:
    views = _once(streams[PAGE_VIEW], settings)
    return lib.sessions(views, "member_id", gap_ms=settings.session_gap_ms, count="views")


def search_to_click(streams: Streams, settings: StreamSettings) -> Any:
    """A row for each search and later click of a member."""
    searches = _once(streams[SEARCH], settings).selectExpr(
        "member_id", "event_time AS searched_at", "query"
    )
    clicks = _once(streams[CLICK], settings).selectExpr(
        "member_id", "event_time AS clicked_at", "item"
    )
    return lib.join_streams(
        searches,
        clicks,
        "member_id",
        within_ms=CLICK_WITHIN_MINUTES * 60_000,
        first_time="searched_at",
        second_time="clicked_at",
    )


def clicks_by_category(streams: Streams, settings: StreamSettings) -> Any:
    """Clicks per category and window; items missing in the other store have category `unknown`."""
    items = settings.items.select("item", "category")
    clicks = _once(streams[CLICK], settings)
    joined = lib.join_table(clicks, items, "item", missing={"category": "unknown"})
    return lib.windowed_counts(joined, "category", window_ms=settings.window_ms, count="clicks")


def views_per_member(streams: Streams, settings: StreamSettings) -> Any:
    """Counts of each micro-batch; a repeated event counts again."""
    assert settings.placement is not None
    return lib.counts_in_place(streams[PAGE_VIEW], "member_id", settings.placement, count="views")


def impressions_per_item(streams: Streams, settings: StreamSettings) -> Any:
    """Like `views_per_member`, for the items shown."""
    assert settings.placement is not None
    rows = streams[IMPRESSION]
    return lib.counts_in_place(rows, "item", settings.placement, count="impressions")


def top_items(streams: Streams, settings: StreamSettings) -> Any:
    """Clicks per item and window. A window's rows are in one micro-batch, when it is closed."""
    clicks = _once(streams[CLICK], settings)
    return lib.windowed_counts(clicks, "item", window_ms=settings.window_ms, count="clicks")


def ranked(closed: Any, top: int) -> Any:
    """The first `top` rows of each closed window as messages: key and JSON payload."""
    from pyspark.sql import functions as f

    payload = f.struct("window_start", "window_end", "rank", "item", "clicks")
    rows = lib.top_k(closed, top, "item", count="clicks")
    return rows.select(f.col("item").alias("key"), f.to_json(payload).alias("payload"))


def items_together(streams: Streams, settings: StreamSettings) -> Any:
    """A row for each member and window, with the items that the member viewed in it."""
    from pyspark.sql import functions as f

    item = f.regexp_replace("path", r"\?.*", "")
    views = _once(streams[PAGE_VIEW], settings).withColumn("item", item)
    viewed = views.where(~f.col("item").isin(*NOT_ITEMS))
    window = f.window("event_time", interval(settings.window_ms))
    of_members = viewed.groupBy(window.alias("window"), "member_id").agg(
        f.collect_set("item").alias("items")
    )
    return of_members.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        "items",
    )


def related_pairs(closed: Any, top: int) -> Any:
    """The `top` pairs of each closed window that most members viewed: window_start, window_end (ms
    since the epoch), rank, item, related, members. Pairs of a single member are left out."""
    from pyspark.sql import functions as f

    known = closed.where(f.size("items").between(2, ITEMS_OF_A_MEMBER_MAX))
    first = known.withColumn("item", f.explode("items"))
    pairs = first.withColumn("related", f.explode("items")).where("item < related")
    by = ("window_start", "window_end", "item", "related")
    counted = pairs.groupBy(*by).agg(f.count("*").alias("members")).where("members > 1")
    named = counted.withColumn("pair", f.concat_ws("\n", "item", "related"))
    found = lib.top_k(named, top, "pair", count="members")
    times = [f.unix_millis(name).alias(name) for name in ("window_start", "window_end")]
    return found.select(*times, "rank", "item", "related", "members")


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
        is_placed_by="member_id",
    ),
    StreamJob(
        "impressions-per-item",
        "impressions per item of a topic keyed by item, without a shuffle",
        (IMPRESSION,),
        impressions_per_item,
        is_placed_by="item",
        counts="impressions",
    ),
    StreamJob(
        "top-items",
        "the items clicked most in each window, written to a topic",
        (CLICK,),
        top_items,
        is_ranked=True,
    ),
    StreamJob(
        "related-items",
        f"pairs of items that the same members view, as events of {SITE_RELATED}",
        (PAGE_VIEW,),
        items_together,
        result_topic=SITE_RELATED,
    ),
)
BY_NAME = {job.name: job for job in JOBS}
