"""The settings of `kafka2011 mirror`."""

from dataclasses import dataclass

from kafka2011.consumer.config import ConsumerConfig, GroupMember
from kafka2011.events.settings import FormSettings
from kafka2011.runtime.config import REQUIRED, boolean, one_of, setting, text, whole
from kafka2011.runtime.shared_settings import (
    INT_MAX,
    MIRROR_GROUP,
    DecompressedSize,
    DialSettings,
    FetchSettings,
    FlushMethod,
    HeartbeatSettings,
    MessageSize,
    TopicFilterSettings,
    ZooKeeperSessionSettings,
    ZooKeeperSettings,
    shared,
)

# A monitoring event counts messages of the cluster that it was written to, and of no other.
NEVER_COPIED = frozenset({"audit"})


@dataclass(frozen=True, kw_only=True)
class MirrorConfig(
    GroupMember,
    TopicFilterSettings,
    FetchSettings,
    MessageSize,
    DecompressedSize,
    FlushMethod,
    HeartbeatSettings,
    FormSettings,
    DialSettings,
    ZooKeeperSessionSettings,
):
    """One mirror maker process. The members of one group share the source's partitions."""

    source_zk_connect: str = setting(
        "source.zk.connect", REQUIRED, text, "ZooKeeper of the cluster to read"
    )
    target_zk_connect: str = setting(
        "target.zk.connect", REQUIRED, text, "ZooKeeper of the cluster to write"
    )
    group_id: str = shared(
        GroupMember,
        "groupid",
        default=MIRROR_GROUP,
        doc="consumer group in the source cluster; its members share the partitions",
    )
    autooffset_reset: str = shared(
        ConsumerConfig,
        "autooffset.reset",
        parse=one_of("smallest", "largest"),
        doc="where to start in a partition that this group has not copied yet",
    )
    zk_session_timeout_ms: int = shared(
        ZooKeeperSessionSettings, "zk.sessiontimeout.ms", parse=whole(100, INT_MAX)
    )
    zk_connection_timeout_ms: int = shared(
        ZooKeeperSettings, "zk.connectiontimeout.ms", default=30_000
    )
    # A set of this size cannot contain a message above max.message.size, so that ordinary sets
    # need not be examined.
    fetch_size: int = shared(FetchSettings, "fetch.size", default=1_000_000)
    fetch_size_max: int = shared(FetchSettings, "fetch.size.max", default=8_000_000)
    fetch_gather_ms: int = shared(FetchSettings, "fetch.gather.ms", default=20)
    # A broker drops a larger message without an error, which would be a loss.
    message_bytes_max: int = shared(
        MessageSize, "max.message.size", doc="max.message.size of the target brokers, bytes"
    )
    decompressed_bytes_max: int = shared(
        DecompressedSize,
        "decompressed.bytes.max",
        doc="decompressed.bytes.max of the target brokers; sets are cut to stay below it",
    )
    refused_entry: str = setting(
        "mirror.refused.entry",
        "stop",
        one_of("stop", "skip"),
        "what to do at an entry that the target refuses: stop its partition there, or skip the "
        "entry and record its place (kafka2011 mirror refused)",
    )
    partition_bytes_max: int = setting(
        "mirror.partition.bytes.max",
        4 * 2**20,
        whole(1, INT_MAX),
        "most bytes of a partition fetched and not yet durable at the target",
    )
    batch_bytes_max: int = setting(
        "mirror.batch.bytes.max",
        8 * 2**20,
        whole(1, INT_MAX),
        "most bytes sent between two barriers",
    )
    batch_ms: int = setting(
        "mirror.batch.ms", 50, whole(0, INT_MAX), "longest time between two barriers, ms"
    )
    map_interval_ms: int = setting(
        "mirror.map.interval.ms",
        1000,
        whole(0, INT_MAX),
        "time between two points of a partition's map from source to target offsets, ms",
    )
    scatter: bool = setting(
        "mirror.scatter",
        False,
        boolean,
        "true: write to any partition of any live broker, as the original; no order, no map",
    )
    barrier_timeout_ms: int = setting(
        "mirror.barrier.timeout.ms",
        10_000,
        whole(1, INT_MAX),
        "longest wait for a target's barrier, ms; then the target is unreachable",
    )
    handover_timeout_ms: int = setting(
        "mirror.handover.timeout.ms",
        5_000,
        whole(0, INT_MAX),
        "longest wait for the last barrier before a partition is released to another member, ms",
    )
    retry_min_ms: int = setting(
        "mirror.retry.min.ms",
        100,
        whole(1, INT_MAX),
        "first pause between attempts to reach a broker, ms; doubles",
    )
    retry_max_ms: int = setting(
        "mirror.retry.max.ms",
        5_000,
        whole(1, INT_MAX),
        "longest pause between attempts to reach a broker, ms",
    )
    commit_interval_ms: int = setting(
        "offset.commit.interval.ms",
        500,
        whole(1, INT_MAX),
        "time between two commits of confirmed offsets to ZooKeeper, ms",
    )
    status_interval_ms: int = setting(
        "mirror.status.interval.ms",
        1000,
        whole(10, INT_MAX),
        "time between two reads of the sources' ends, for the lag, ms",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scatter and self.flush_method == "offsets":
            raise ValueError(
                "mirror.scatter leaves the partition to the broker, which flush.method=offsets "
                "does not support: use one of them"
            )
