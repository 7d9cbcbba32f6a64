"""Windows and joins over topics as they grow, for Spark's Structured Streaming.

    events                 a topic's decoded events as a stream
    deduplicated           each event once, by its guid
    windowed_counts        counts by key in windows of event time, complete when lateness is over
    sessions               visits: a pause ends one
    join_streams           pairs of two streams' events with one key, the second after the first
    join_table             events with the matching row of a table
    top_k                  the most frequent of each window
    placement_of, counts_in_place, merged
                           counts by key without a shuffle, where the producer placed by that key

Each takes and returns a DataFrame, so Spark's own operations fit between them. Durations are in
milliseconds; the column of the event's time is `event_time` by default.
"""

from kafka2011.streams.joins import join_streams, join_table
from kafka2011.streams.placement import (
    Misplaced,
    Placement,
    counts_in_place,
    merged,
    placement_of,
)
from kafka2011.streams.reading import deduplicated, events
from kafka2011.streams.windows import sessions, top_k, windowed_counts

__all__ = [
    "Misplaced",
    "Placement",
    "counts_in_place",
    "deduplicated",
    "events",
    "join_streams",
    "join_table",
    "merged",
    "placement_of",
    "sessions",
    "top_k",
    "windowed_counts",
]
