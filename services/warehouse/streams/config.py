"""The settings of the stream jobs."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.config import one_of, path, setting, text, whole


@dataclass(frozen=True, kw_only=True)
class StreamConfig(SchemaSettings):
    """A stream job (`kafka2011 stream NAME`). Each job has a checkpoint of its own."""

    zk_connect: str = setting(
        "zk.connect", "127.0.0.1:2181", text, "ZooKeeper of the brokers that are read and written"
    )
    stream_dir: Path = setting(
        "stream.dir", Path("var/streams"), path, "results and checkpoints stand in here"
    )
    interval_ms: int = setting(
        "stream.interval.ms", 2_000, whole(0), "time between two micro-batches"
    )
    starting: str = setting(
        "stream.start",
        "earliest",
        one_of("earliest", "latest"),
        "where a job starts that has no checkpoint",
    )
    bytes_max: int = setting(
        "stream.batch.bytes.max",
        0,
        whole(0),
        "bytes of each topic in one micro-batch; 0: all there is",
    )
    watermark_ms: int = setting(
        "stream.watermark.ms",
        60_000,
        whole(0),
        "how much later than the newest an event may come and still count",
    )
    window_ms: int = setting("stream.window.ms", 60_000, whole(1), "length of a window")
    slide_ms: int = setting(
        "stream.slide.ms", 20_000, whole(1), "from one sliding window's start to the next's"
    )
    session_gap_ms: int = setting(
        "stream.session.gap.ms", 1_800_000, whole(1), "a pause of this length ends a visit"
    )
    top: int = setting("stream.top", 10, whole(1, 10_000), "items of a window that are written")
    topic: str = setting(
        "stream.topic", "top-items", text, "the topic that top-items is written to"
    )
    items: Path | None = setting(
        "stream.items",
        None,
        path,
        "items with their category: Parquet, or the table items of an SQLite file",
    )
    spark_master: str = setting(
        "spark.master", "local[2,3]", text, "Spark master, unless spark-submit names one"
    )
    spark_event_log_dir: Path | None = setting(
        "spark.event.log.dir", None, path, "event logs for `kafka2011 history`; unset: none"
    )

    def __post_init__(self) -> None:
        if self.slide_ms > self.window_ms:
            raise ValueError("stream.slide.ms must not be above stream.window.ms")
