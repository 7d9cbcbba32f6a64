"""The settings of `kafka2011 online-consumer`: a consumer's, and the topics to read."""

from dataclasses import dataclass

from kafka2011.consumer.config import ConsumerConfig, GroupMember
from kafka2011.events.settings import FormSettings
from kafka2011.runtime.config import setting, whole
from kafka2011.runtime.shared_settings import FetchSettings, TopicFilterSettings, shared

# Monitoring events are for the audit, not for a product.
NEVER_READ = frozenset({"audit"})


@dataclass(frozen=True, kw_only=True)
class OnlineConsumerConfig(ConsumerConfig, TopicFilterSettings, FormSettings):
    """One member of the group."""

    group_id: str = shared(GroupMember, "groupid", default="online")
    fetch_gather_ms: int = shared(FetchSettings, "fetch.gather.ms", default=20)
    # A tier of its own: what the group has read is validated against what was produced.
    audit_enable: bool = shared(ConsumerConfig, "audit.enable", default=True)
    status_interval_ms: int = setting(
        "online.status.interval.ms",
        1000,
        whole(10, 3_600_000),
        "time between two measurements of the lag, ms",
    )
