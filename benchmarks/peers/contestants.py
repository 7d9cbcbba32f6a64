"""Which peers there are, each with the settings that the paper's comparison asks for: asynchronous,
where an answer comes before the disk has the message, and durable, where it comes after."""

from functools import partial

from benchmarks.peers import (
    activemq,
    kafka2011,
    kafka_original,
    nats_jetstream,
    rabbitmq,
    rabbitmq_streams,
    redis_streams,
    tansu,
)
from benchmarks.peers.common import ASYNCHRONOUS, DURABLE, Contestant

_RABBITMQ_VERSION = ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"]
_ACTIVEMQ_VERSION = ["dpkg-query", "-W", "-f", "${Version}", "activemq"]
_REDIS_VERSION = ["redis-server", "--version"]

CONTESTANTS = (
    Contestant(
        "kafka2011",
        DURABLE,
        "group commit: confirmed and visible after fdatasync",
        [],
        partial(kafka2011.serve, setting=DURABLE),
    ),
    Contestant(
        "kafka2011",
        ASYNCHRONOUS,
        "fdatasync and visible every 10,000 messages or every second",
        [],
        partial(kafka2011.serve, setting=ASYNCHRONOUS),
    ),
    Contestant(
        "Kafka 0.7.2",
        ASYNCHRONOUS,
        "answers nothing; fsync every 10,000 messages or every second",
        [],
        partial(kafka_original.serve, flush_interval=10_000),
    ),
    Contestant(
        "Redis Streams",
        DURABLE,
        "appendonly, fsync before the answer",
        _REDIS_VERSION,
        partial(redis_streams.serve, fsync="always"),
    ),
    Contestant(
        "Redis Streams",
        ASYNCHRONOUS,
        "appendonly, fsync every second",
        _REDIS_VERSION,
        partial(redis_streams.serve, fsync="everysec"),
    ),
    Contestant(
        "NATS JetStream",
        ASYNCHRONOUS,
        "file storage, fsync every two minutes; has no other setting in this version",
        ["nats-server", "--version"],
        nats_jetstream.serve,
    ),
    Contestant(
        "RabbitMQ streams",
        ASYNCHRONOUS,
        "confirmed when written, never fsynced; has no other setting",
        _RABBITMQ_VERSION,
        rabbitmq_streams.serve,
    ),
    Contestant(
        "RabbitMQ classic",
        DURABLE,
        "durable queue, persistent messages, publisher confirms (after fsync)",
        _RABBITMQ_VERSION,
        partial(rabbitmq.serve, confirms=True),
    ),
    Contestant(
        "RabbitMQ classic",
        ASYNCHRONOUS,
        "durable queue, persistent messages, no confirms",
        _RABBITMQ_VERSION,
        partial(rabbitmq.serve, confirms=False),
    ),
    Contestant(
        "ActiveMQ",
        DURABLE,
        "persistent, KahaDB, fsync before a commit is confirmed",
        _ACTIVEMQ_VERSION,
        activemq.serve,
    ),
    Contestant(
        "Tansu",
        ASYNCHRONOUS,
        "SQLite: confirmed when written, fsync at checkpoints of 4 MiB; has no other setting",
        ["tansu", "--version"],
        tansu.serve,
    ),
)
