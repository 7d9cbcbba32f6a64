"""Settings that several processes share: each name, unit and description is declared once, here.

A configuration class inherits a group as it is. A process with a default of its own redeclares the
one field: `fetch_size: int = shared(FetchSettings, "fetch.size", default=1_000_000)`.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka2011.runtime.config import (
    address_map,
    boolean,
    one_of,
    path,
    setting,
    settings_of,
    text,
    whole,
)
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.runtime.storage_paths import StoragePath, storage_path

INT_MAX = 2**31 - 1
MIRROR_GROUP = "mirror"  # by default; its offsets say how far the offline tier has come

Address = tuple[str, int]


def shared(group: type, name: str, **changes: Any) -> Any:
    """The declaration of setting `name` in `group`, for a dataclass field with other values.

    `changes` are any of `default`, `parse`, `doc` and `has_effect`; the rest is the group's.
    """
    field = settings_of(group)[name]
    declared = {key: field.metadata[key] for key in ("parse", "doc", "has_effect")}
    default = changes.pop("default", field.default)
    assert default is not dataclasses.MISSING, f"{name}: state the default"
    return setting(name, default, **{**declared, **changes})


@dataclass(frozen=True, kw_only=True)
class ZooKeeperConnect(ProcessConfig):
    """The one ZooKeeper of a process."""

    zk_connect: str = setting(
        "zk.connect", "", text, "ZooKeeper, host:port,host:port/chroot; empty: none"
    )


@dataclass(frozen=True, kw_only=True)
class ZooKeeperSessionSettings(ProcessConfig):
    """The session with any ZooKeeper that the process uses."""

    zk_session_timeout_ms: int = setting(
        "zk.sessiontimeout.ms",
        6000,
        whole(1, INT_MAX),
        "ZooKeeper session timeout, ms: a process that died is noticed after this",
    )


@dataclass(frozen=True, kw_only=True)
class ZooKeeperSettings(ZooKeeperConnect, ZooKeeperSessionSettings):
    """0.7's three time-outs. zk.synctime.ms has an effect in the group consumer only."""

    zk_connection_timeout_ms: int = setting(
        "zk.connectiontimeout.ms",
        6000,
        whole(1, INT_MAX),
        "longest wait for the first connection to ZooKeeper, ms",
    )
    zk_sync_time_ms: int = setting(
        "zk.synctime.ms", 2000, whole(1, INT_MAX), "default of rebalance.backoff.ms, ms"
    )


@dataclass(frozen=True, kw_only=True)
class AddressMapSettings(ProcessConfig):
    """For a process outside the network in which the brokers publish their addresses."""

    address_map: dict[Address, Address] = setting(
        "address.map",
        {},
        address_map,
        "published=dial,...: connect to the address `dial` instead of a broker's published one",
    )

    def dialled(self, published: Address) -> Address:
        """The address to connect to for a published one."""
        return self.address_map.get(published, published)


@dataclass(frozen=True, kw_only=True)
class DialSettings(AddressMapSettings):
    """Connections to brokers."""

    socket_timeout_ms: int = setting(
        "socket.timeout.ms",
        30_000,
        whole(1, INT_MAX),
        "longest wait for a broker to answer or to take bytes, ms",
    )


@dataclass(frozen=True, kw_only=True)
class FetchSize(ProcessConfig):
    """How much one fetch requests."""

    fetch_size: int = setting(
        "fetch.size",
        1_048_576,
        whole(1, INT_MAX),
        "bytes requested of each partition in one fetch",
    )


@dataclass(frozen=True, kw_only=True)
class FetchSettings(FetchSize):
    """Fetching in a loop."""

    # Unlike 0.7, where a message above fetch.size stops its partition for good.
    fetch_size_max: int = setting(
        "fetch.size.max",
        16_777_216,
        whole(1, INT_MAX),
        "bytes up to which a fetch grows for one large message; at least fetch.size",
    )
    # Unlike 0.7, whose brokers cannot wait.
    fetch_wait_ms: int = setting(
        "fetch.wait.max.ms",
        1000,
        whole(0, INT_MAX),
        "longest that a fetch waits at the broker for data, ms; 0: brokers are polled",
    )
    # Unlike 0.7, which fetches again at once.
    fetch_gather_ms: int = setting(
        "fetch.gather.ms",
        0,
        whole(0, 60_000),
        "pause after a fetch that got all there is, ms: fewer requests, but messages arrive that "
        "much later",
    )
    # Unlike 0.7 (1000 ms, always): the pause starts here and doubles up to the maximum while
    # there is nothing to read, so that a new message is read in milliseconds at little cost.
    fetcher_backoff_ms: int = setting(
        "fetcher.backoff.ms",
        10,
        whole(0, INT_MAX),
        "pause after an empty fetch that did not wait at the broker, ms; doubles",
    )
    fetcher_backoff_max_ms: int = setting(
        "fetcher.backoff.max.ms", 100, whole(0, INT_MAX), "longest pause after empty fetches, ms"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fetch_size_max < self.fetch_size:
            object.__setattr__(self, "fetch_size_max", self.fetch_size)


@dataclass(frozen=True, kw_only=True)
class TopicFilterSettings(ProcessConfig):
    """Which topics a process that reads many of them takes."""

    topics_whitelist: str = setting(
        "topics.whitelist", "", text, "regular expression: only topics whose whole name matches"
    )
    topics_blacklist: str = setting(
        "topics.blacklist", "", text, "regular expression: all topics but those that match"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topics_whitelist and self.topics_blacklist:
            raise ValueError("topics.whitelist and topics.blacklist exclude each other")


@dataclass(frozen=True, kw_only=True)
class DatacenterSettings(ProcessConfig):
    """For a process that sees both datacenters."""

    live_zk_connect: str = setting(
        "live.zk.connect", "", text, "ZooKeeper of the live datacenter; empty: left out"
    )
    offline_zk_connect: str = setting(
        "offline.zk.connect", "", text, "ZooKeeper of the offline datacenter; empty: left out"
    )


@dataclass(frozen=True, kw_only=True)
class WarehousePlace(ProcessConfig):
    """Where another process keeps the warehouse."""

    warehouse_dir: StoragePath | None = setting(
        "warehouse.dir",
        None,
        storage_path,
        "directory of the Delta tables, or s3://bucket/prefix; unset: no warehouse",
    )


@dataclass(frozen=True, kw_only=True)
class ReportPlace(ProcessConfig):
    """Where another process keeps the reports."""

    report_dir: Path | None = setting(
        "report.dir", None, path, "directory of the reports' tables and charts; unset: no reports"
    )


@dataclass(frozen=True, kw_only=True)
class LoadInterval(ProcessConfig):
    """How often the warehouse is loaded."""

    interval_ms: int = setting(
        "load.interval.ms", 0, whole(0), "time between two loads, ms; 0: load once and end"
    )


@dataclass(frozen=True, kw_only=True)
class AuditWindow(ProcessConfig):
    """The time grid in which messages are counted; the same in all processes."""

    window_ms: int = setting(
        "audit.window.ms", 600_000, whole(1), "width of an audit window, ms; the same everywhere"
    )


@dataclass(frozen=True, kw_only=True)
class AuditSwitch(ProcessConfig):
    """For a client that may count its events."""

    audit_enable: bool = setting(
        "audit.enable",
        False,
        boolean,
        "true: count the events that are durable, and report the counts to topic audit",
    )


@dataclass(frozen=True, kw_only=True)
class HeartbeatSettings(ProcessConfig):
    """For a process that writes monitoring events."""

    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        5_000,
        whole(0, 3_600_000),
        "time between heartbeats on the topic audit, ms; 0: none",
    )


@dataclass(frozen=True, kw_only=True)
class FlushMethod(ProcessConfig):
    """How a writer makes sure that a broker has its messages on disk."""

    flush_method: str = setting(
        "flush.method",
        "barrier",
        one_of("barrier", "offsets"),
        "how a flush is confirmed: barrier (an Offsets request on the same connection), or offsets "
        "(polls the end of the log; for original brokers, explicit partitions only)",
    )


@dataclass(frozen=True, kw_only=True)
class MessageSize(ProcessConfig):
    """The largest message."""

    message_bytes_max: int = setting(
        "max.message.size", 1_000_000, whole(1, INT_MAX), "largest payload of a message, bytes"
    )


@dataclass(frozen=True, kw_only=True)
class DecompressedSize(ProcessConfig):
    """The most that one request may unpack to."""

    decompressed_bytes_max: int = setting(
        "decompressed.bytes.max",
        16 * 2**20,
        whole(1, INT_MAX),
        "most bytes that the compressed sets of one request may decompress to, in all",
    )


@dataclass(frozen=True, kw_only=True)
class TopicNameRule(ProcessConfig):
    """Which topic names are valid."""

    topic_name_rule: str = setting(
        "topic.name.rule",
        "strict",
        one_of("strict", "0.7"),
        "strict: [A-Za-z0-9._-]{1,249} without a leading dot; 0.7: what the original accepts",
    )


@dataclass(frozen=True, kw_only=True)
class DataDir(ProcessConfig):
    """A directory of the process's own; each process states its default and what is in it."""

    data_dir: Path = setting("data.dir", Path("var"), path, "directory of this process's state")


@dataclass(frozen=True, kw_only=True)
class SparkSettings(ProcessConfig):
    """For a job that starts Spark."""

    spark_master: str = setting(
        "spark.master", "local[2,3]", text, "Spark master, unless spark-submit names one"
    )
    spark_event_log_dir: Path | None = setting(
        "spark.event.log.dir", None, path, "event logs for `kafka2011 history`; unset: none"
    )
