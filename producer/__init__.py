"""Producing: messages to brokers, synchronously, asynchronously, from asyncio, from `logging`.

    from kafka2011.producer import Producer

    with Producer(broker_list="0:127.0.0.1:9092") as producer:
        producer.send("greetings", b"hello")
        producer.flush()          # returns when the brokers have it on disk, or raises NotDurable

What is named here is the producer's public surface; it is loaded at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka2011.coordination.errors import CoordinationUnavailable
    from kafka2011.producer.aio import AioProducer
    from kafka2011.producer.asynchronous.callbacks import Event, EventHandler, ProducerCallbacks
    from kafka2011.producer.config import ProducerConfig
    from kafka2011.producer.errors import (
        BrokerUnavailable,
        BrokerUnreachable,
        InvalidPartition,
        NotDurable,
        ProducerClosed,
        QueueFull,
        SenderFailed,
        Unconfirmed,
    )
    from kafka2011.producer.log_handler import ShippingHandler, json_record
    from kafka2011.producer.producer import Part, Producer
    from kafka2011.producer.requests import SetPart
    from kafka2011.producer.stats import ProducerStats
    from kafka2011.protocol.errors import IllegalTopicName, MessageSizeTooLarge

__all__ = [
    "AioProducer",
    "BrokerUnavailable",
    "BrokerUnreachable",
    "CoordinationUnavailable",
    "Event",
    "EventHandler",
    "IllegalTopicName",
    "InvalidPartition",
    "MessageSizeTooLarge",
    "NotDurable",
    "Part",
    "Producer",
    "ProducerCallbacks",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerStats",
    "QueueFull",
    "SenderFailed",
    "SetPart",
    "ShippingHandler",
    "Unconfirmed",
    "json_record",
]

_NAMES_OF = {
    "coordination.errors": ["CoordinationUnavailable"],
    "producer.aio": ["AioProducer"],
    "producer.asynchronous.callbacks": ["Event", "EventHandler", "ProducerCallbacks"],
    "producer.config": ["ProducerConfig"],
    "producer.errors": [
        "BrokerUnavailable",
        "BrokerUnreachable",
        "InvalidPartition",
        "NotDurable",
        "ProducerClosed",
        "QueueFull",
        "SenderFailed",
        "Unconfirmed",
    ],
    "producer.log_handler": ["ShippingHandler", "json_record"],
    "producer.producer": ["Part", "Producer"],
    "producer.requests": ["SetPart"],
    "producer.stats": ["ProducerStats"],
    "protocol.errors": ["IllegalTopicName", "MessageSizeTooLarge"],
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kafka2011.{_MODULE_OF[name]}"), name)
