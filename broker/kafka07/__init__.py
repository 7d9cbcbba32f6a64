"""The protocol of Kafka 0.7.2: `session` walks a connection's requests, `handlers`
answer them, `checks` validates what they would append.

The logs are reached through `broker.core.partitions` alone.
"""
