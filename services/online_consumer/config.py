"""The settings of `kafka2011 online-consumer`: a consumer's, and which topics it reads."""

from dataclasses import dataclass

from kafka2011.consumer.config import ConsumerConfig
from kafka2011.events.settings import FormSettings
from kafka2011.runtime.config import setting, text, whole

# Monitoring events are the audit's, not a product's.
NEVER_READ = frozenset({"audit"})


@dataclass(frozen=True, kw_only=True)
class OnlineConsumerConfig(ConsumerConfig, FormSettings):
    """One member of the group."""

    group_id: str = setting("groupid", "online", text, "the consumer group; its members share")
    topics_whitelist: str = setting(
        "topics.whitelist", "", text, "regular expression; read only topics that match"
    )
    topics_blacklist: str = setting(
        "topics.blacklist", "", text, "regular expression; read no topics that match"
    )
    status_interval_ms: int = setting(
        "online.status.interval.ms", 1000, whole(10, 3_600_000), "lag is asked for this often, ms"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topics_whitelist and self.topics_blacklist:
            raise ValueError("topics.whitelist and topics.blacklist exclude each other")
