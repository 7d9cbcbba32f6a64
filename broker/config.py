"""The broker's settings: every name of 0.7's server.properties, and our own.

A default differs from 0.7's where every connection may use that much, or where 0.7 had no limit;
the description says so. A value that is set always wins over such a default.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from kafka2011.broker.log.log import LogSettings
from kafka2011.broker.log.retention import RetentionPolicy, by_age, by_size, each_in_turn
from kafka2011.runtime.config import (
    REQUIRED,
    boolean,
    comma_list,
    path,
    per_topic,
    setting,
    text,
    whole,
)
from kafka2011.runtime.shared_settings import (
    DecompressedSize,
    MessageSize,
    TopicNameRule,
    ZooKeeperSessionSettings,
    ZooKeeperSettings,
    shared,
)

MIB = 1024 * 1024
HOUR_MS = 3_600_000

# 0.7's defaults, used for the flush properties left unset when another one is set.
FLUSH_INTERVAL_MESSAGES_07 = 500
FLUSH_SCHEDULER_INTERVAL_MS_07 = 3000


def plain_address(text: str) -> IPv4Address | IPv6Address:
    """The IP address in `text`; that of an IPv4 client of a socket for both, without its prefix.
    Raises ValueError."""
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def ip_addresses(value: str) -> tuple[str, ...]:
    """Parse IP addresses, separated by commas; each in its one usual form."""
    found = []
    for part in comma_list(value):
        try:
            found.append(str(plain_address(part)))
        except ValueError:
            raise ValueError(f"{part!r} must be an IP address") from None
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(TopicNameRule, ZooKeeperSessionSettings):
    """Settings of one broker."""

    broker_id: int = setting(
        "brokerid",
        REQUIRED,
        whole(0, 2**31 - 1),
        "id of this broker, a whole number, unique in the cluster",
    )
    port: int = setting("port", 6667, whole(0, 65535), "port to listen on; 0: any free port")
    hostname: str | None = setting(
        "hostname", None, text, "address published in ZooKeeper; unset: bind.address"
    )
    bind_address: str | None = setting(
        "bind.address",
        None,
        text,
        "address to listen on; unset: hostname, else 127.0.0.1. Unlike 0.7, which always listens "
        "on all interfaces",
    )
    log_dir: Path = setting(
        "log.dir", REQUIRED, path, "directory of the logs, one subdirectory for each partition"
    )
    quarantine_dir: Path | None = setting(
        "quarantine.dir",
        None,
        path,
        "directory, outside log.dir, for copies of what recovery cuts; unset: <log.dir>-quarantine",
    )

    num_partitions: int = setting(
        "num.partitions", 1, whole(1, 100_000), "partitions of each topic on this broker"
    )
    topic_partition_count_map: dict[str, int] = setting(
        "topic.partition.count.map",
        {},
        per_topic(1, 100_000),
        "num.partitions of single topics, topic:number,...",
    )
    max_topic_name_length: int = setting(
        "max.topic.name.length", 255, whole(1, 255), "longest topic name, in characters"
    )
    topics_max: int = setting(
        "topics.max",
        1000,
        whole(1),
        "most topics on this broker; a produce that would create one more is refused",
    )
    partitions_max: int = setting(
        "partitions.max",
        10_000,
        whole(1),
        "most partitions on this broker; a produce that would create one more is refused",
    )

    socket_send_buffer_bytes: int | None = setting(
        "socket.send.buffer",
        None,
        whole(1024, 2**30),
        "SO_SNDBUF of a connection, bytes; unset: sized by the kernel (0.7: 102400)",
    )
    socket_receive_buffer_bytes: int | None = setting(
        "socket.receive.buffer",
        None,
        whole(1024, 2**30),
        "SO_RCVBUF of a connection, bytes; unset: sized by the kernel (0.7: 102400)",
    )
    request_bytes_max: int = setting(
        "max.socket.request.bytes",
        10 * MIB,
        whole(1, 2**31 - 1),
        "largest request accepted, bytes (0.7: 104857600; each connection may buffer one)",
    )
    message_bytes_max: int = shared(
        MessageSize,
        "max.message.size",
        parse=whole(0, 2**31 - 1),
        doc="largest payload of a message, bytes; a set with a larger one is dropped",
    )
    parts_max: int = setting(
        "multi.request.parts.max",
        1000,
        whole(1, 32767),
        "most topic-partitions in one multi-request",
    )
    fetch_bytes_max: int = setting(
        "fetch.bytes.max",
        256 * MIB,
        whole(1, 2**31 - 1),
        "most bytes of a fetch, or of one part of a multi-fetch; a larger size is reduced to this",
    )
    decompressed_bytes_max: int = shared(DecompressedSize, "decompressed.bytes.max")
    decompression_depth_max: int = setting(
        "decompression.depth.max", 4, whole(1, 16), "deepest nesting of compressed sets"
    )
    buffered_request_bytes_max: int = setting(
        "buffered.request.bytes.max",
        256 * MIB,
        whole(MIB),
        "most bytes of buffers for requests, over all connections",
    )
    connections_max: int = setting(
        "connections.max", 1000, whole(1), "most open connections; further ones are closed at once"
    )
    connections_per_address_max: int = setting(
        "connections.max.per.address",
        100,
        whole(1),
        "most open connections from one address, except loopback and "
        "connections.unlimited.addresses",
    )
    unlimited_addresses: tuple[str, ...] = setting(
        "connections.unlimited.addresses",
        (),
        ip_addresses,
        "IP addresses, such as a load balancer's, that only connections.max limits",
    )
    read_deadline_ms: int = setting(
        "request.read.deadline.ms",
        30_000,
        whole(1),
        "longest time from a request's first byte to its last, ms; idle connections stay open",
    )
    send_deadline_ms: int = setting(
        "response.send.deadline.ms",
        30_000,
        whole(1),
        "longest time that a client may read nothing of its response, ms",
    )

    segment_bytes_max: int = setting(
        "log.file.size",
        2**30,
        whole(5, 2**31 - 1),
        "a segment larger than this is rolled at the next append, bytes",
    )
    topic_segment_bytes_max: dict[str, int] = setting(
        "topic.log.file.size", {}, per_topic(5), "log.file.size of single topics"
    )
    roll_hours: int = setting(
        "log.roll.hours",
        168,
        whole(1, 10**6),
        "a segment older than this is rolled at the next append, hours",
    )
    topic_roll_hours: dict[str, int] = setting(
        "topic.log.roll.hours", {}, per_topic(), "log.roll.hours of single topics"
    )
    retention_hours: int = setting(
        "log.retention.hours",
        168,
        whole(1, 10**6),
        "segments last written longer ago than this are deleted, hours",
    )
    topic_retention_hours: dict[str, int] = setting(
        "topic.log.retention.hours", {}, per_topic(), "log.retention.hours of single topics"
    )
    retention_bytes: int = setting(
        "log.retention.size", -1, whole(-1), "bytes of a partition to keep; -1: no limit"
    )
    topic_retention_bytes: dict[str, int] = setting(
        "topic.log.retention.size",
        {},
        per_topic(1, 2**63 - 1),
        "log.retention.size of single topics (0.7 fails to start when it is set)",
    )
    retention_interval_minutes: int = setting(
        "log.cleanup.interval.mins",
        10,
        whole(1, 10**6),
        "time between two rounds of retention, minutes",
    )
    open_segments_max: int = setting(
        "open.segments.max", 2000, whole(1), "most segment files kept open when not in use"
    )

    flush_interval_messages: int | None = setting(
        "log.flush.interval",
        None,
        whole(1, 2**31 - 1),
        "messages of a partition after which it is flushed (0.7: 500); when none of the flush "
        "settings is set, every append is flushed as soon as possible, several sets together",
    )
    flush_scheduler_interval_ms: int | None = setting(
        "log.default.flush.scheduler.interval.ms",
        None,
        whole(1, 2**31 - 1),
        "time between two checks for partitions to flush by time, ms (0.7: 3000)",
    )
    flush_interval_ms: int | None = setting(
        "log.default.flush.interval.ms",
        None,
        whole(1, 2**31 - 1),
        "longest time before an append is flushed, ms (0.7: the scheduler's interval)",
    )
    topic_flush_interval_ms: dict[str, int] = setting(
        "topic.flush.intervals.ms",
        {},
        per_topic(),
        "log.default.flush.interval.ms of single topics",
    )
    flush_threads: int = setting(
        "flush.threads", 4, whole(1, 256), "threads that flush to disk, beside the network loop"
    )

    enable_zookeeper: bool = setting(
        "enable.zookeeper", True, boolean, "false: a broker on its own, without ZooKeeper"
    )
    zk_connect: str | None = shared(
        ZooKeeperSettings,
        "zk.connect",
        default=None,
        doc="ZooKeeper, host:port,host:port/chroot; required when enable.zookeeper=true",
    )
    zk_connection_timeout_ms: int | None = shared(
        ZooKeeperSettings,
        "zk.connectiontimeout.ms",
        default=None,
        doc="longest wait for the first connection to ZooKeeper, ms; unset: the session timeout",
    )
    replica_name: str | None = setting(
        "replica.name",
        None,
        text,
        "name of this replica in the set of brokerid (kafka2011 replicas create); unset: a broker "
        "that has the only copy of its partitions",
    )
    replica_port: int = setting(
        "replica.port",
        0,
        whole(0, 65535),
        "port on which the other replicas of the set are served; 0: any free port",
    )
    replica_rack: str | None = setting(
        "replica.rack",
        None,
        text,
        "what fails together with this replica's machine, any text, for kafka2011 replicas plan; "
        "unset: the machine alone (hostname)",
    )
    replica_lag_max_ms: int = setting(
        "replica.lag.max.ms",
        10_000,
        whole(100),
        "longest time that a leader waits for a replica that is behind, before it goes on without "
        "it, ms",
    )
    replica_silence_ms: int = setting(
        "replica.silence.ms",
        15_000,
        whole(100),
        "longest silence of a leader before another replica takes over, ms; should be longer than "
        "replica.lag.max.ms",
    )
    replica_registration_gap_ms: int = setting(
        "replica.registration.gap.ms",
        2_000,
        whole(0),
        "pause between removing the old leader's address from ZooKeeper and adding the new one's, "
        "for 0.7 producers to notice, ms",
    )
    replica_unconfirmed_bytes_max: int = setting(
        "replica.unconfirmed.bytes.max",
        64 * 1024 * 1024,
        whole(0),
        "how much a leader takes while too few replicas are in sync to confirm it, bytes in all "
        "partitions; then it refuses to append until they are",
    )
    replica_catchup_bytes_per_s: int = setting(
        "replica.catchup.bytes.per.second",
        50_000_000,
        whole(0),
        "highest rate at which a leader sends to replicas that are not in sync, bytes a second for "
        "all of them; 0: no limit",
    )
    num_threads: int | None = setting(
        "num.threads", None, whole(1), "one loop serves all connections", has_effect=False
    )
    monitoring_period_s: int | None = setting(
        "monitoring.period.secs",
        None,
        whole(1),
        "a reader of /metrics computes rates",
        has_effect=False,
    )
    zk_sync_time_ms: int | None = shared(
        ZooKeeperSettings,
        "zk.synctime.ms",
        default=None,
        doc="0.7's broker does not use it either",
        has_effect=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.enable_zookeeper and not self.zk_connect:
            raise ValueError("zk.connect is required (or set enable.zookeeper=false)")
        if self.replica_name is not None and not self.enable_zookeeper:
            raise ValueError("replica.name needs ZooKeeper: enable.zookeeper=true")
        if self.replica_name is not None and not self.port:
            raise ValueError("replica.name needs a port of its own: set port")
        if self.bind_address in ("0.0.0.0", "::") and not self.hostname:
            raise ValueError(
                f"bind.address={self.bind_address} cannot be published in ZooKeeper: "
                "set hostname as well"
            )
        if self.enable_zookeeper and ":" in self.published_host:
            raise ValueError(
                f"hostname={self.published_host}: an IPv6 address does not fit 0.7's registration"
            )

    @property
    def listen_address(self) -> str:
        return self.bind_address or self.hostname or "127.0.0.1"

    @property
    def published_host(self) -> str:
        return self.hostname or self.listen_address

    @property
    def quarantine(self) -> Path:
        if self.quarantine_dir is not None:
            return self.quarantine_dir
        logs = self.log_dir
        if logs.name in ("", ".."):  # `.` has no name in it to put another one beside
            logs = Path(os.path.abspath(logs))
        return logs.parent / f"{logs.name}-quarantine"

    @property
    def group_commit(self) -> bool:
        """Whether none of 0.7's flush properties is set: then each append is flushed at once."""
        return (
            self.flush_interval_messages is None
            and self.flush_scheduler_interval_ms is None
            and self.flush_interval_ms is None
            and not self.topic_flush_interval_ms
        )

    @property
    def scheduler_interval_ms(self) -> int:
        return self.flush_scheduler_interval_ms or FLUSH_SCHEDULER_INTERVAL_MS_07

    def partition_count(self, topic: str) -> int:
        return self.topic_partition_count_map.get(topic, self.num_partitions)

    def log_settings(
        self, retention: Callable[[str], RetentionPolicy] | None = None
    ) -> Callable[[str], LogSettings]:
        """A function from a topic to its logs' settings; `retention` replaces 0.7's policies."""
        policy_of = retention or self.retention_policy

        def settings_for(topic: str) -> LogSettings:
            return LogSettings(
                segment_bytes_max=self.topic_segment_bytes_max.get(topic, self.segment_bytes_max),
                roll_age_ms=self.topic_roll_hours.get(topic, self.roll_hours) * HOUR_MS,
                flush_interval_messages=None
                if self.group_commit
                else self.flush_interval_messages or FLUSH_INTERVAL_MESSAGES_07,
                flush_interval_ms=self.topic_flush_interval_ms.get(
                    topic, self.flush_interval_ms or self.scheduler_interval_ms
                ),
                retention=policy_of(topic),
            )

        return settings_for

    def retention_limits(self, topic: str) -> tuple[int, int]:
        """How long a segment is kept after its last write, ms, and how many bytes of a partition
        are kept, -1 for all."""
        return (
            self.topic_retention_hours.get(topic, self.retention_hours) * HOUR_MS,
            self.topic_retention_bytes.get(topic, self.retention_bytes),
        )

    def retention_policy(self, topic: str) -> RetentionPolicy:
        """0.7's policy: by age, then by size."""
        age_ms_max, log_bytes_min = self.retention_limits(topic)
        return each_in_turn(by_age(age_ms_max), by_size(log_bytes_min))
