"""The protocol of Kafka 0.7.2: `session` walks a connection's requests, `handlers` answer them.

The logs are reached through `broker.core.partitions` alone.
"""
