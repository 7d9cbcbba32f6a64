"""The settings of the stream jobs."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.config import one_of, path, setting, text, whole
from kafka2011.runtime.shared_settings import SparkSettings, ZooKeeperConnect, shared
from kafka2011.runtime.storage_paths import StoragePath, storage_path


@dataclass(frozen=True, kw_only=True)
class StreamConfig(SchemaSettings, ZooKeeperConnect, SparkSettings):
    """A stream job (`kafka2011 stream NAME`). Each job has its own checkpoint."""

    zk_connect: str = shared(
        ZooKeeperConnect,
        "zk.connect",
        default="127.0.0.1:2181",
        doc="ZooKeeper of the brokers to read and write, host:port,host:port/chroot",
    )
    stream_dir: StoragePath = setting(
        "stream.dir",
        Path("var/streams"),
        storage_path,
        "directory of results and checkpoints, or s3://bucket/prefix",
    )
    interval_ms: int = setting(
        "stream.interval.ms", 2_000, whole(0), "time between two micro-batches, ms"
    )
    starting: str = setting(
        "stream.start",
        "earliest",
        one_of("earliest", "latest"),
        "where a job without a checkpoint starts",
    )
    bytes_max: int = setting(
        "stream.batch.bytes.max",
        0,
        whole(0),
        "most bytes of each topic in one micro-batch; 0: no limit",
    )
    watermark_ms: int = setting(
        "stream.watermark.ms",
        60_000,
        whole(0),
        "watermark: events older than the newest one by more than this are dropped, ms",
    )
    window_ms: int = setting("stream.window.ms", 60_000, whole(1), "length of a window, ms")
    slide_ms: int = setting(
        "stream.slide.ms", 20_000, whole(1), "time between the starts of two sliding windows, ms"
    )
    session_gap_ms: int = setting(
        "stream.session.gap.ms", 1_800_000, whole(1), "pause between events that ends a session, ms"
    )
    top: int = setting("stream.top", 10, whole(1, 10_000), "items written for each window")
    topic: str = setting(
        "stream.topic", "top-items", text, "topic that the job top-items writes to"
    )
    items: Path | None = setting(
        "stream.items",
        None,
        path,
        "file of items with their category: Parquet, or SQLite with a table `items`",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slide_ms > self.window_ms:
            raise ValueError("stream.slide.ms must not be above stream.window.ms")
