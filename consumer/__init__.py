"""Consuming: message streams of a consumer group, and requests to a single broker.

`Consumer` (or `ConsumerConnector`, of the same calls) is a group member whose `MessageStream`s an
application iterates; `SimpleConsumer` fetches from one broker. What is named here is the
consumer's public surface; it is loaded at first use, so that a SimpleConsumer costs no ZooKeeper
client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka2011.consumer.aio import AioStream
    from kafka2011.consumer.batch import Batch
    from kafka2011.consumer.chunk import Chunk, ConsumedMessage, ShallowMessage, TopicPartition
    from kafka2011.consumer.config import ConsumerConfig
    from kafka2011.consumer.errors import (
        BrokerUnavailable,
        ConsumerClosed,
        ConsumerFailed,
        ConsumerStateError,
        ConsumerTimeout,
        PartitionStuck,
    )
    from kafka2011.consumer.groups.connector import ConsumerConnector
    from kafka2011.consumer.groups.topic_filters import TopicFilter, blacklist, whitelist
    from kafka2011.consumer.paper_api import Consumer
    from kafka2011.consumer.simple import EARLIEST, LATEST, FetchedSet, SimpleConsumer
    from kafka2011.consumer.stream import MessageStream
    from kafka2011.coordination.errors import CoordinationUnavailable
    from kafka2011.protocol.errors import IllegalTopicFilter, OffsetOutOfRange
    from kafka2011.protocol.requests import FetchRequest

__all__ = [
    "EARLIEST",
    "LATEST",
    "AioStream",
    "Batch",
    "BrokerUnavailable",
    "Chunk",
    "ConsumedMessage",
    "Consumer",
    "ConsumerClosed",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerFailed",
    "ConsumerStateError",
    "ConsumerTimeout",
    "CoordinationUnavailable",
    "FetchRequest",
    "FetchedSet",
    "IllegalTopicFilter",
    "MessageStream",
    "OffsetOutOfRange",
    "PartitionStuck",
    "ShallowMessage",
    "SimpleConsumer",
    "TopicFilter",
    "TopicPartition",
    "blacklist",
    "whitelist",
]

_NAMES_OF = {
    "consumer.aio": ["AioStream"],
    "consumer.batch": ["Batch"],
    "consumer.chunk": ["Chunk", "ConsumedMessage", "ShallowMessage", "TopicPartition"],
    "consumer.config": ["ConsumerConfig"],
    "consumer.errors": [
        "BrokerUnavailable",
        "ConsumerClosed",
        "ConsumerFailed",
        "ConsumerStateError",
        "ConsumerTimeout",
        "PartitionStuck",
    ],
    "consumer.groups.connector": ["ConsumerConnector"],
    "consumer.groups.topic_filters": ["TopicFilter", "blacklist", "whitelist"],
    "consumer.paper_api": ["Consumer"],
    "consumer.simple": ["EARLIEST", "LATEST", "FetchedSet", "SimpleConsumer"],
    "consumer.stream": ["MessageStream"],
    "coordination.errors": ["CoordinationUnavailable"],
    "protocol.errors": ["IllegalTopicFilter", "OffsetOutOfRange"],
    "protocol.requests": ["FetchRequest"],
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kafka2011.{_MODULE_OF[name]}"), name)
