"""Reading: the simple consumer, the group consumer with its streams, and bounded range reads."""

from kafka2011.consumer.paper_api import Consumer
from kafka2011.consumer.simple import SimpleConsumer

__all__ = ["Consumer", "SimpleConsumer"]
