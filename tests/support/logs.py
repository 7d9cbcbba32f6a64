"""Logs on a temporary directory for unit tests: a manager, its clock, and entries to append."""

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.partitions import Partitions
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.log import Log, LogSettings
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.retention import RetentionPolicy, SegmentSummary
from kafka2011.runtime import config
from kafka2011.runtime.clock import Clock
from tests.support.clock import ManualClock


def entry(payload: bytes, magic: int = 1) -> bytes:
    """One plain entry, put together without our codec."""
    crc = zlib.crc32(payload).to_bytes(4, "big")
    body = (b"\1\0" if magic else b"\0") + crc + payload
    return len(body).to_bytes(4, "big") + body


def keep_everything(segments: Sequence[SegmentSummary], now_ms: int) -> int:
    return 0


def settings(
    segment_bytes_max: int = 2**30,
    roll_age_ms: int = 10**12,
    flush_interval_messages: int | None = None,
    flush_interval_ms: int = 3000,
    retention: RetentionPolicy = keep_everything,
) -> LogSettings:
    return LogSettings(
        segment_bytes_max, roll_age_ms, flush_interval_messages, flush_interval_ms, retention
    )


def manager(
    root: Path,
    files: FileLayer | None = None,
    *,
    clock: Clock | None = None,
    topics_max: int = 1000,
    partitions_max: int = 1000,
    open_segments_max: int = 100,
    **for_logs: Any,
) -> LogManager:
    """A manager that is loaded. Close it, or `abandon` it as a crash would."""
    made = LogManager(
        root,
        root.parent / f"{root.name}-quarantine",
        lambda _topic: settings(**for_logs),
        files=files or FileLayer(),
        clock=clock or ManualClock(),
        topics_max=topics_max,
        partitions_max=partitions_max,
        open_segments_max=open_segments_max,
    )
    made.load()
    return made


def abandon(made: LogManager) -> None:
    """Drop a manager as SIGKILL would: nothing is flushed, written or marked."""
    for log in made.logs.values():
        for segment in log.segments:
            made.open_files.forget(segment)
            if segment.fd >= 0:  # leased: the kernel closes it with the process
                segment.users = 1
                made.open_files.release(segment)
    made.unlock()


def contents(log: Log) -> bytes:
    """Everything below the watermark, read as fetches read it."""
    import os

    found = b""
    offset = log.start_offset
    while (region := log.read(offset, 2**31 - 1)) is not None:
        data = os.pread(region.fd, region.count, region.position)
        assert len(data) == region.count
        region.release()
        found += data
        offset += len(data)
    return found


def broker_config(root: Path, **properties: object) -> BrokerConfig:
    """A broker's settings without ZooKeeper; `num_partitions=2` sets num.partitions."""
    settings = {
        "brokerid": 0,
        "log.dir": root,
        "enable.zookeeper": "false",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    loaded, _ = config.load(BrokerConfig, overrides=overrides, environment={})
    return loaded


class DiskInThread:
    """Writes and flushes where it is asked to, in this thread."""

    def appended(self, log: Log) -> None: ...

    def write(self) -> None: ...

    def request_flush(self, log: Log) -> None:
        log.flush()


def partitions_of(settings: BrokerConfig, logs: LogManager, waits: Any = None) -> Partitions:
    return Partitions(
        settings,
        logs,
        DiskInThread(),
        waits,
        rng=random.Random(0),
        topic_seen=lambda _: None,
    )
