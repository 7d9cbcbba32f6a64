"""A topic's events as a stream, with or without repeated ones."""

from typing import Any

from kafka2011.streams.times import EVENT_TIME, interval

FORMAT = "kafka2011"


def events(
    session: Any,
    topic: str,
    *,
    zk_connect: str,
    starting: str = "earliest",
    registry_url: str = "",
    forms: str = "",
    bytes_max: int = 0,
    **options: str,
) -> Any:
    """The topic's events as a stream with the columns of its table, and the message's place.

    `starting`: earliest or latest, for a query without a checkpoint. `registry_url` and `forms` are
    the settings `schema.registry.url` and `event.forms`. `bytes_max` bounds one micro-batch; 0: no
    limit. `options` are further ones of the data source. A message that is not such an event is
    left out; to see those, read the source without this function (column `error`).
    """
    given = {"zk.connect": zk_connect, "topic": topic, "decode": "true", **options}
    given["startingOffsets"] = starting
    if forms:
        given["event.forms"] = forms
    if registry_url:
        given["schema.registry.url"] = registry_url
    if bytes_max:
        given["maxBytesPerTrigger"] = str(bytes_max)
    return session.readStream.format(FORMAT).options(**given).load().where("error IS NULL")


def deduplicated(
    events: Any, *, watermark_ms: int = 60_000, guid: str = "guid", time: str = EVENT_TIME
) -> Any:
    """Each event once, even if it was delivered again up to `watermark_ms` later.

    This sets the stream's watermark: what is older than the newest event by more than
    `watermark_ms` is dropped by every later window and join, and their state is bounded by it.
    Topics deliver at least once, so begin with this.
    """
    marked = events.withWatermark(time, interval(watermark_ms))
    return marked.dropDuplicatesWithinWatermark([guid])
