"""The settings of a consumer: every name of 0.7 (reference section 10.3) and ours.

Where a default differs from 0.7's it is marked; a 0.7 value given explicitly is always used as it
stands.
"""

from dataclasses import dataclass

from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_group
from kafka2011.runtime.config import REQUIRED, address_map, boolean, one_of, setting, text, whole
from kafka2011.runtime.process_config import ProcessConfig

__all__ = ["ConsumerConfig"]

INT_MAX = 2**31 - 1

Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ProcessConfig):
    """One member of a consumer group. Usable without any file: `ConsumerConfig(group_id="g")`."""

    group_id: str = setting("groupid", REQUIRED, text, "the consumer group; its members share")
    consumer_id: str = setting(
        "consumerid", "", text, "fixed part of the consumer's id; empty: generated"
    )
    zk_connect: str = setting(
        "zk.connect", "127.0.0.1:2181", text, "ZooKeeper, host:port,host:port/chroot"
    )
    zk_session_timeout_ms: int = setting(
        "zk.sessiontimeout.ms", 6000, whole(100, INT_MAX), "a dead member is noticed after this, ms"
    )
    zk_connection_timeout_ms: int = setting(
        "zk.connectiontimeout.ms", 6000, whole(1, INT_MAX), "wait this long for ZooKeeper at start"
    )
    zk_sync_time_ms: int = setting(
        "zk.synctime.ms", 2000, whole(1, INT_MAX), "default of rebalance.backoff.ms"
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms", 30_000, whole(1, INT_MAX), "a broker silent for this long is away, ms"
    )
    # Unlike 0.7 (65536): the kernel sizes the buffer by itself; a fixed one halves the rate.
    socket_buffer_bytes: int = setting(
        "socket.buffersize", 0, whole(0, INT_MAX), "SO_RCVBUF; 0 leaves it to the system"
    )
    fetch_size: int = setting(
        "fetch.size", 1_048_576, whole(1, INT_MAX), "bytes asked of each partition per fetch"
    )
    # Unlike 0.7, where a message above fetch.size stops its partition for good.
    fetch_size_max: int = setting(
        "fetch.size.max", 16_777_216, whole(1, INT_MAX), "fetch.size grows to this for one message"
    )
    # Unlike 0.7 (1000 ms, always): the pause starts here and doubles up to the maximum while
    # nothing comes, so that a waiting message is seen in milliseconds at little cost.
    fetcher_backoff_ms: int = setting(
        "fetcher.backoff.ms", 10, whole(0, INT_MAX), "pause after a fetch that brought nothing, ms"
    )
    fetcher_backoff_max_ms: int = setting(
        "fetcher.backoff.max.ms", 100, whole(0, INT_MAX), "the pause grows up to this, ms"
    )
    autocommit_enable: bool = setting(
        "autocommit.enable", True, boolean, "commit by timer, on rebalance and at shutdown"
    )
    autocommit_interval_ms: int = setting(
        "autocommit.interval.ms", 10_000, whole(1, INT_MAX), "the timer, ms"
    )
    queued_chunks_max: int = setting(
        "queuedchunks.max", 10, whole(1, INT_MAX), "fetched chunks waiting in each stream"
    )
    rebalance_retries_max: int = setting(
        "rebalance.retries.max", 4, whole(1, INT_MAX), "attempts before a warning; they go on"
    )
    rebalance_backoff_ms_set: int = setting(
        "rebalance.backoff.ms", 0, whole(0, INT_MAX), "longest pause between attempts, ms"
    )
    autooffset_reset: str = setting(
        "autooffset.reset",
        "smallest",
        text,
        "where to start without a usable offset: smallest, largest; others (earliest, too) raise",
    )
    consumer_timeout_ms: int = setting(
        "consumer.timeout.ms", -1, whole(-1, INT_MAX), "a stream raises after this; -1 waits"
    )
    shallow_iterator_enable: bool = setting(
        "shallowiterator.enable",
        False,
        boolean,
        "streams hand out entries as they stand in the log, wrappers unopened",
    )
    mirror_topics_whitelist: str = setting(
        "mirror.topics.whitelist", "", text, "0.7.0's embedded mirror", has_effect=False
    )
    mirror_topics_blacklist: str = setting(
        "mirror.topics.blacklist", "", text, "0.7.0's embedded mirror", has_effect=False
    )
    mirror_consumer_numthreads: int = setting(
        "mirror.consumer.numthreads", 1, whole(), "0.7.0's embedded mirror", has_effect=False
    )
    backoff_increment_ms: int = setting(
        "backoff.increment.ms", 1000, whole(), "0.7.0's fetcher.backoff.ms", has_effect=False
    )
    address_map: dict[Address, Address] = setting(
        "address.map", {}, address_map, "published=dial,...: where to connect instead"
    )
    rule: str = setting(
        "topic.name.rule", "strict", one_of("strict", "0.7"), "which topic names may be consumed"
    )

    def __post_init__(self) -> None:
        try:
            check_group(self.group_id)
            if self.consumer_id:
                check_group(self.consumer_id)
        except KafkaError as error:
            raise ValueError(str(error)) from None
        if self.fetch_size_max < self.fetch_size:
            object.__setattr__(self, "fetch_size_max", self.fetch_size)

    @property
    def rebalance_backoff_ms(self) -> int:
        """Longest pause between two attempts of a rebalance, ms."""
        return self.rebalance_backoff_ms_set or self.zk_sync_time_ms

    def dialled(self, published: Address) -> Address:
        """Where to connect for a published address."""
        return self.address_map.get(published, published)
