"""The settings of a consumer: every name of 0.7's consumer.properties, and our own.

A default that differs from 0.7's is marked; a value that is set always overrides it.
"""

from dataclasses import dataclass

from kafka2011.events.settings import FormSettings
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_group
from kafka2011.runtime.config import REQUIRED, boolean, setting, text, whole
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.runtime.shared_settings import (
    INT_MAX,
    AuditSwitch,
    AuditWindow,
    DialSettings,
    FetchSettings,
    TopicNameRule,
    ZooKeeperSettings,
    shared,
)

__all__ = ["ConsumerConfig", "GroupMember"]


@dataclass(frozen=True, kw_only=True)
class GroupMember(ProcessConfig):
    """A member of a consumer group."""

    group_id: str = setting(
        "groupid", REQUIRED, text, "consumer group; its members share the partitions"
    )
    consumer_id: str = setting(
        "consumerid", "", text, "fixed part of the member's id; empty: generated"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_group(self.group_id)
            if self.consumer_id:
                check_group(self.consumer_id)
        except KafkaError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(
    GroupMember, FetchSettings, DialSettings, ZooKeeperSettings, FormSettings, AuditWindow
):
    """One member of a consumer group. Usable without any file: `ConsumerConfig(group_id="g")`."""

    zk_connect: str = shared(ZooKeeperSettings, "zk.connect", default="127.0.0.1:2181")
    zk_session_timeout_ms: int = shared(
        ZooKeeperSettings, "zk.sessiontimeout.ms", parse=whole(100, INT_MAX)
    )
    # Unlike 0.7 (65536): the kernel sizes the buffer by itself; a fixed one halves the rate.
    socket_buffer_bytes: int = setting(
        "socket.buffersize",
        0,
        whole(0, INT_MAX),
        "SO_RCVBUF of a connection, bytes; 0: sized by the kernel",
    )
    autocommit_enable: bool = setting(
        "autocommit.enable", True, boolean, "commit periodically, at a rebalance and at shutdown"
    )
    autocommit_interval_ms: int = setting(
        "autocommit.interval.ms", 10_000, whole(1, INT_MAX), "time between two commits, ms"
    )
    queued_chunks_max: int = setting(
        "queuedchunks.max", 10, whole(1, INT_MAX), "most fetched chunks queued for each stream"
    )
    rebalance_retries_max: int = setting(
        "rebalance.retries.max",
        4,
        whole(1, INT_MAX),
        "failed attempts of a rebalance before a warning is logged; attempts continue",
    )
    rebalance_backoff_ms_set: int = setting(
        "rebalance.backoff.ms",
        0,
        whole(0, INT_MAX),
        "longest pause between attempts of a rebalance, ms; 0: zk.synctime.ms",
    )
    autooffset_reset: str = setting(
        "autooffset.reset",
        "smallest",
        text,
        "where to start without a valid offset: smallest, largest; any other value: an error",
    )
    consumer_timeout_ms: int = setting(
        "consumer.timeout.ms",
        -1,
        whole(-1, INT_MAX),
        "a stream raises when no message arrived for this long, ms; -1: it waits",
    )
    shallow_iterator_enable: bool = setting(
        "shallowiterator.enable",
        False,
        boolean,
        "true: streams return entries as stored, without opening compressed ones",
    )
    mirror_topics_whitelist: str = setting(
        "mirror.topics.whitelist",
        "",
        text,
        "the mirror is a separate process: kafka2011 mirror",
        has_effect=False,
    )
    mirror_topics_blacklist: str = setting(
        "mirror.topics.blacklist",
        "",
        text,
        "the mirror is a separate process: kafka2011 mirror",
        has_effect=False,
    )
    mirror_consumer_numthreads: int = setting(
        "mirror.consumer.numthreads",
        1,
        whole(),
        "the mirror is a separate process: kafka2011 mirror",
        has_effect=False,
    )
    backoff_increment_ms: int = setting(
        "backoff.increment.ms",
        1000,
        whole(),
        "0.7.0's name of fetcher.backoff.ms",
        has_effect=False,
    )
    rule: str = shared(TopicNameRule, "topic.name.rule")
    audit_enable: bool = shared(
        AuditSwitch,
        "audit.enable",
        doc="true: count what the group has read, beside its offsets in ZooKeeper",
    )

    @property
    def rebalance_backoff_ms(self) -> int:
        """Longest pause between two attempts of a rebalance, ms."""
        return self.rebalance_backoff_ms_set or self.zk_sync_time_ms
