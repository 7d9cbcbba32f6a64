"""Wires `kafka2011 online-consumer`: connector, reader, lag, metrics and signals.

GET /status on the metrics port shows owned partitions, lag, counts and latencies. Exit statuses: 0
after SIGTERM (positions committed, group left); 1 when ZooKeeper does not answer at start; 2 for a
filter that cannot be used.
"""

import json
import math
import os
import threading
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.groups.rebalance import SHARE
from kafka2011.consumer.groups.topic_filters import TopicFilter, blacklist_with, whitelist
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import Answer, MetricsServer, address_text, serve_metrics
from kafka2011.runtime.workers import Worker
from kafka2011.services.online_consumer.config import NEVER_READ, OnlineConsumerConfig
from kafka2011.services.online_consumer.event_counter import EventCounter
from kafka2011.services.online_consumer.reader import StreamReader
from kafka2011.services.online_consumer.validating import Validating
from kafka2011.services.registration import ServiceRegistration

STILL_SAMPLES = 5

log = get_logger(__name__)


def topic_filter(config: OnlineConsumerConfig) -> TopicFilter:
    """The filter of the settings. Raises IllegalTopicFilter."""
    if config.topics_whitelist:
        return whitelist(config.topics_whitelist)
    return blacklist_with(NEVER_READ, config.topics_blacklist)


def run(config: OnlineConsumerConfig, stop: threading.Event) -> int:
    """Read until `stop` is set. Returns the exit status."""
    try:
        wanted = topic_filter(config)
        registry = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
    except (KafkaError, ValueError) as error:
        log.error("start_failed", detail=str(error))
        return 2
    try:
        registry.start(config.zk_connection_timeout_ms)
    except CoordinationError as error:
        registry.close()
        log.error("start_failed", detail=str(error))
        return 1
    connector = ConsumerConnector(config, registry, name=config.process_name)
    registry.leave_on(stop)
    member = OnlineMember(config, connector, wanted)
    metrics = _metrics(config, member)
    registration = ServiceRegistration(
        config, kind="online-consumer", zk_connect=config.zk_connect, metrics=metrics
    )
    status = 1
    try:
        member.start()
        log.info(
            "serving",
            group=config.group_id,
            consumer=connector.consumer_id,
            metrics=address_text(metrics),
            pid=os.getpid(),
        )
        while not stop.wait(config.status_interval_ms / 1000):
            member.sample()
            if not member.is_reading:
                log.error("reading_ended")
                break
        else:
            status = 0
    finally:
        member.close()
        registration.close(says_goodbye=status == 0)
        registry.close()
        if metrics:
            metrics.close()
    log.info("stopped")
    return status


class OnlineMember:
    """The connector with its stream, the thread that reads it, and their status."""

    def __init__(
        self, config: OnlineConsumerConfig, connector: ConsumerConnector, wanted: TopicFilter
    ) -> None:
        self._config = config
        self._connector = connector
        self._wanted = wanted
        self.counter = EventCounter(config.forms)
        self._lag: dict[TopicPartition, int | None] = {}
        self._owned: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int | None] = {}
        self._still_samples = 0
        self._reading = Worker(self._read, "read", restarts=False)
        self.validating = Validating(connector)

    def start(self) -> None:
        self._reading.start()
        self.validating.start()

    def _read(self) -> None:
        [stream] = self._connector.create_message_streams_by_filter(self._wanted)
        StreamReader(self._connector, stream, self.counter).run()

    @property
    def is_reading(self) -> bool:
        return self._reading.is_alive()

    @property
    def is_settled(self) -> bool:
        return self._connector.is_settled

    def sample(self) -> None:
        """Fetch the lag, which is a request for each partition, and log the owned partitions when
        they changed. While nothing is read and the lag is 0, one sample in STILL_SAMPLES asks."""
        owned = self._connector.owned()
        if owned != self._owned:
            self._owned = owned
            log.info("partitions_owned", partitions=[str(name) for name in owned])
        positions = self._connector.positions()
        is_still = positions == self._positions and not any(
            lag is None or lag for lag in self._lag.values()
        )
        self._still_samples = self._still_samples + 1 if is_still else 0
        if self._still_samples % STILL_SAMPLES:
            return
        self._positions = positions
        try:
            self._lag = self._connector.lag()
        except (KafkaError, CoordinationError) as error:
            self._lag = dict.fromkeys(owned)
            log.warning("lag_unknown", reason=str(error))

    def status(self) -> dict[str, Any]:
        return {
            "group": self._config.group_id,
            "consumer": self._connector.consumer_id,
            "settled": self.is_settled,
            "owned": [str(name) for name in self._connector.owned()],
            "lag_bytes": {str(name): lag for name, lag in self._lag.items()},
            "topics": self.counter.snapshot(now_ms()),
            "damaged_chunks": self.counter.damaged_chunks,
            "validated": self.validating.status(),
            "consumer_stats": self._connector.stats.as_dict(),
        }

    def lag(self) -> dict[TopicPartition, int | None]:
        return dict(self._lag)

    def close(self) -> None:
        """Commit what was read, leave the group, end the reading."""
        self.validating.close()
        self._connector.shutdown()
        self._reading.join(10)


class MemberCollector(Collector):
    """The member's numbers, read at each scrape."""

    def __init__(self, member: OnlineMember) -> None:
        self._member = member

    def collect(self) -> Iterator[Metric]:
        messages = CounterMetricFamily("kafka2011_online_messages", "read", labels=("topic",))
        size = CounterMetricFamily("kafka2011_online_bytes", "of payloads", labels=("topic",))
        unreadable = CounterMetricFamily(
            "kafka2011_online_unreadable", "messages without an event header", labels=("topic",)
        )
        latency = GaugeMetricFamily(
            "kafka2011_online_latency_ms",
            "age of events when read, over the last 10 to 20 s",
            labels=("topic", "quantile"),
        )
        lag = GaugeMetricFamily(
            "kafka2011_online_lag_bytes",
            "not read yet; NaN: unknown",
            labels=("topic", "partition"),
        )
        for topic, found in self._member.counter.snapshot(now_ms()).items():
            messages.add_metric((topic,), found["messages"])
            size.add_metric((topic,), found["bytes"])
            unreadable.add_metric((topic,), found["unreadable"])
            for quantile, value in found["latency_ms"].items():
                latency.add_metric((topic, str(quantile)), value)
        for name, lag_bytes in self._member.lag().items():
            value = math.nan if lag_bytes is None else lag_bytes
            lag.add_metric((name.topic, f"{name.broker_id}-{name.partition}"), value)
        yield from (messages, size, unreadable, latency, lag)
        yield from self._member.validating.metrics()


def _metrics(config: OnlineConsumerConfig, member: OnlineMember) -> MetricsServer | None:
    def status() -> Answer:
        return 200, "application/json", json.dumps(member.status(), indent=2).encode() + b"\n"

    return serve_metrics(
        config,
        MemberCollector(member),
        lambda: member.is_settled,
        waits_for=SHARE,
        routes={"/status": status},
    )
