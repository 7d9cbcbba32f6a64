"""The settings of `kafka2011 mirror`."""

from dataclasses import dataclass

from kafka2011.events.settings import FormSettings
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_group
from kafka2011.runtime.config import REQUIRED, address_map, boolean, one_of, setting, text, whole

INT_MAX = 2**31 - 1

Address = tuple[str, int]

# Monitoring events speak of the cluster that they were written in (contracts section 4).
NEVER_COPIED = frozenset({"audit"})


@dataclass(frozen=True, kw_only=True)
class MirrorConfig(FormSettings):
    """One mirror maker process. Several of one group share the source's partitions."""

    source_zk_connect: str = setting(
        "source.zk.connect", REQUIRED, text, "ZooKeeper of the cluster that is read"
    )
    target_zk_connect: str = setting(
        "target.zk.connect", REQUIRED, text, "ZooKeeper of the cluster that is written"
    )
    group_id: str = setting("groupid", "mirror", text, "consumer group in the source cluster")
    consumer_id: str = setting(
        "consumerid", "", text, "fixed part of the member's id; empty: generated"
    )
    topics_whitelist: str = setting(
        "topics.whitelist", "", text, "regular expression; copy only topics that match"
    )
    topics_blacklist: str = setting(
        "topics.blacklist", "", text, "regular expression; copy no topics that match"
    )
    address_map: dict[Address, Address] = setting(
        "address.map", {}, address_map, "published=dial,... for the brokers of both clusters"
    )
    autooffset_reset: str = setting(
        "autooffset.reset",
        "smallest",
        one_of("smallest", "largest"),
        "where to start a partition that this group never copied",
    )
    zk_session_timeout_ms: int = setting(
        "zk.sessiontimeout.ms", 6000, whole(100, INT_MAX), "a dead member is noticed after this, ms"
    )
    zk_connection_timeout_ms: int = setting(
        "zk.connectiontimeout.ms", 30_000, whole(1, INT_MAX), "wait for ZooKeeper at start, ms"
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms", 30_000, whole(1, INT_MAX), "a broker silent for this long is away, ms"
    )
    # As large as a set can be without containing a message above max.message.size, so that
    # ordinary sets need not be looked into.
    fetch_size: int = setting(
        "fetch.size", 1_000_000, whole(1, INT_MAX), "bytes asked of each partition per fetch"
    )
    fetch_size_max: int = setting(
        "fetch.size.max", 8_000_000, whole(1, INT_MAX), "fetch.size grows to this for one message"
    )
    fetcher_backoff_ms: int = setting(
        "fetcher.backoff.ms", 10, whole(0, INT_MAX), "pause after a fetch that brought nothing, ms"
    )
    fetcher_backoff_max_ms: int = setting(
        "fetcher.backoff.max.ms", 100, whole(0, INT_MAX), "the pause grows up to this, ms"
    )
    # A broker drops a larger message without a word, which would be a loss.
    message_bytes_max: int = setting(
        "max.message.size", 1_000_000, whole(1, INT_MAX), "the target brokers' setting of that name"
    )
    partition_bytes_max: int = setting(
        "mirror.partition.bytes.max",
        4 * 2**20,
        whole(1, INT_MAX),
        "fetched and not yet durable at the target, per partition",
    )
    batch_bytes_max: int = setting(
        "mirror.batch.bytes.max", 8 * 2**20, whole(1, INT_MAX), "sent between two barriers"
    )
    batch_ms: int = setting(
        "mirror.batch.ms", 50, whole(0, INT_MAX), "longest time between two barriers, ms"
    )
    map_interval_ms: int = setting(
        "mirror.map.interval.ms",
        1000,
        whole(0, INT_MAX),
        "the map from source to target offsets gets a point this often, per partition, ms",
    )
    flush_method: str = setting(
        "flush.method",
        "barrier",
        one_of("barrier", "offsets"),
        "how the target makes sure; offsets: polls, for a target of original brokers",
    )
    scatter: bool = setting(
        "mirror.scatter",
        False,
        boolean,
        "true: to any partition of any live broker, as the original; keeps no order and no map",
    )
    barrier_timeout_ms: int = setting(
        "mirror.barrier.timeout.ms", 10_000, whole(1, INT_MAX), "a target is away after this, ms"
    )
    handover_timeout_ms: int = setting(
        "mirror.handover.timeout.ms",
        5_000,
        whole(0, INT_MAX),
        "wait for the last barrier when a partition goes to another member, ms",
    )
    retry_min_ms: int = setting("mirror.retry.min.ms", 100, whole(1, INT_MAX), "first pause, ms")
    retry_max_ms: int = setting(
        "mirror.retry.max.ms", 5_000, whole(1, INT_MAX), "longest pause, ms; each is twice the last"
    )
    commit_interval_ms: int = setting(
        "offset.commit.interval.ms",
        500,
        whole(1, INT_MAX),
        "confirmed offsets go to ZooKeeper this often, ms",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        5_000,
        whole(0, 3_600_000),
        "between heartbeats to topic audit of the target, ms; 0: none",
    )
    status_interval_ms: int = setting(
        "mirror.status.interval.ms", 1000, whole(10, INT_MAX), "the sources' ends are read, ms"
    )

    def __post_init__(self) -> None:
        if self.topics_whitelist and self.topics_blacklist:
            raise ValueError("topics.whitelist and topics.blacklist exclude each other")
        try:
            check_group(self.group_id)
            if self.consumer_id:
                check_group(self.consumer_id)
        except KafkaError as error:
            raise ValueError(str(error)) from None
        if self.scatter and self.flush_method == "offsets":
            raise ValueError(
                "mirror.scatter leaves the partition to the broker, and flush.method=offsets can "
                "know nothing of it: use one of them"
            )
        if self.fetch_size_max < self.fetch_size:
            object.__setattr__(self, "fetch_size_max", self.fetch_size)

    def dialled(self, published: Address) -> Address:
        """Where to connect for a published address."""
        return self.address_map.get(published, published)
