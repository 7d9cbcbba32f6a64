"""Logs on a temporary directory for unit tests: a manager, its clock, and entries to append."""

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.data_waits import DataWaits
from kafka2011.broker.core.partitions import Partitions
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.log import Log, LogSettings
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.retention import SegmentSummary
from kafka2011.runtime import config
from kafka2011.runtime.clock import Clock
from tests.support.clock import ManualClock
from tests.support.commands import dotted
from tests.support.raw_requests import entry

__all__ = ["ManualClock", "entry"]


def keep_everything(segments: Sequence[SegmentSummary], now_ms: int) -> int:
    return 0


def settings(**changes: Any) -> LogSettings:
    """One segment for ever, flushed by group commit, but for the `changes`."""
    return replace(LogSettings(2**30, 10**12, None, 3000, keep_everything), **changes)


def manager(
    root: Path,
    files: FileLayer | None = None,
    *,
    clock: Clock | None = None,
    wall: Clock | None = None,
    **changes: Any,
) -> LogManager:
    """A manager that is loaded; `changes` to its limits and to the settings of its logs. `replica`
    makes the directory one's.

    Close it, or `abandon` it as a crash would.
    """
    limits = {"topics_max": 1000, "partitions_max": 1000, "open_segments_max": 100, "replica": None}
    limits = {name: changes.pop(name, limit) for name, limit in limits.items()}
    made = LogManager(
        root,
        root.parent / f"{root.name}-quarantine",
        lambda _topic: settings(**changes),
        files=files or FileLayer(),
        clock=clock or ManualClock(),
        wall=wall,
        **limits,
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
    settings = {"brokerid": 0, "log.dir": root, "enable.zookeeper": "false", **dotted(properties)}
    overrides = [f"{name}={value}" for name, value in settings.items()]
    loaded, _ = config.load(BrokerConfig, overrides=overrides, environment={})
    return loaded


class DiskInThread:
    """Writes and flushes where it is asked to, in this thread."""

    def appended(self, log: Log) -> None: ...

    def write(self) -> None: ...

    def request_flush(self, log: Log) -> None:
        log.flush()


def partitions_of(
    config: BrokerConfig, logs: LogManager, waits: DataWaits | None = None
) -> Partitions:
    rng = random.Random(0)
    waits = waits or DataWaits(None, 0)
    return Partitions(config, logs, DiskInThread(), waits, rng=rng, topic_seen=lambda _: None)
