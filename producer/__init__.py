"""The producer: topic and payload to produce requests, and word on what is durable.

from kafka2011.producer import Producer

with Producer(broker_list="0:127.0.0.1:9092") as producer:
    producer.send("greetings", b"hello")
    producer.flush()          # returns when the brokers have it on disk, or raises NotDurable
"""

from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.errors import (
    BrokerUnavailable,
    BrokerUnreachable,
    InvalidPartition,
    NotDurable,
    ProducerClosed,
    QueueFull,
    Unconfirmed,
)
from kafka2011.producer.producer import Part, Producer

__all__ = [
    "BrokerUnavailable",
    "BrokerUnreachable",
    "InvalidPartition",
    "NotDurable",
    "Part",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "QueueFull",
    "Unconfirmed",
]
