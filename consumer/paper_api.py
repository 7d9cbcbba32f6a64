"""The consumer in the paper's words (section 3.1): settings as keywords, one topic, its streams.

with Consumer(group_id="g", zk_connect="127.0.0.1:2181") as consumer:
    streams = consumer.create_message_streams("topic1", 1)
    for message in streams[0]:
        work(message.payload)
"""

from collections.abc import Mapping
from typing import Unpack, overload

from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.keywords import ConsumerSettings
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination.registry import Registry
from kafka2011.runtime.keywords import with_keywords


class Consumer(ConsumerConnector):
    """A ConsumerConnector with keyword settings, named as the fields of ConsumerConfig, with values
    as in a properties file or parsed.

    Raises TypeError for a name that is no setting, ConfigError (a ValueError) for values that do
    not fit, and CoordinationUnavailable as the connector does.
    """

    def __init__(
        self, registry: Registry | None = None, **settings: Unpack[ConsumerSettings]
    ) -> None:
        config = with_keywords("Consumer", ConsumerConfig, settings, ["registry"])
        super().__init__(config, registry)

    @overload
    def create_message_streams(
        self, topic_counts: Mapping[str, int]
    ) -> dict[str, list[MessageStream]]: ...

    @overload
    def create_message_streams(self, topic_counts: str, count: int = 1) -> list[MessageStream]: ...

    def create_message_streams(
        self, topic_counts: Mapping[str, int] | str, count: int = 1
    ) -> dict[str, list[MessageStream]] | list[MessageStream]:
        """`count` streams of one topic, as a list; or of several, as in ConsumerConnector."""
        if isinstance(topic_counts, str):
            return super().create_message_streams({topic_counts: count})[topic_counts]
        return super().create_message_streams(topic_counts)
