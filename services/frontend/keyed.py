"""A producer for events with keys, and the topics announced before the first of these is sent.

A broker announces a topic's partitions at its first message for it, and a producer spreads keys
over the partitions that are announced. So that no key begins in one partition and goes on in
another, each live broker first gets an empty message set, which makes it create its logs.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import fields

from kafka2011.coordination import cluster
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.producer import BrokerUnavailable, NotDurable, Producer, ProducerConfig
from kafka2011.runtime.logs import get_logger
from kafka2011.services.frontend.config import FrontendConfig

ANNOUNCED_TIMEOUT_S = 20.0
_LOOK_S = 0.05

log = get_logger(__name__)


class KeyedProducer:
    """A `producer` and its connection to ZooKeeper. Raises CoordinationError when that fails."""

    def __init__(self, config: FrontendConfig) -> None:
        zk_connect = config.live_zk_connect or config.zk_connect
        self.registry = ZooKeeperRegistry(zk_connect, config.zk_session_timeout_ms)
        try:
            timeout_ms = config.zk_connection_timeout_ms or config.zk_session_timeout_ms
            self.registry.start(timeout_ms)
            self.producer = Producer(_settings(config), registry=self.registry)
        except BaseException:
            self.registry.close()
            raise

    def close(self) -> None:
        """Close both. Idempotent; what is still pending is sent by the next start."""
        try:
            self.producer.close(timeout_ms=0)
        except NotDurable as error:  # after a failed delivery, which the journal does not cover
            log.warning("closed", detail=str(error))
        self.registry.close()


def _settings(config: FrontendConfig) -> ProducerConfig:
    """The frontend's producer settings, without the addresses."""
    kept = {each.name: getattr(config, each.name) for each in fields(ProducerConfig)}
    return ProducerConfig(**{**kept, "broker_list": ProducerConfig().broker_list, "zk_connect": ""})


def announce(
    producer: Producer, registry: Registry, topics: Sequence[str], stop: threading.Event
) -> bool:
    """Make every live broker announce the topics; False if that is not known within 20 s, or `stop`
    was set: then keys may move."""
    for topic in topics:
        for broker_id in _lacking(registry, topic):
            try:
                producer.send_set(topic, b"", broker_id=broker_id, partition=0)
            except BrokerUnavailable as error:
                log.warning("not_announced", topic=topic, broker=broker_id, detail=str(error))
    deadline = time.monotonic() + ANNOUNCED_TIMEOUT_S
    while lacking := [topic for topic in topics if _lacking(registry, topic)]:
        if time.monotonic() > deadline or stop.wait(_LOOK_S):
            log.warning("keys_may_move", topics=",".join(lacking))
            return False
    return True


def _lacking(registry: Registry, topic: str) -> set[int]:
    """The live brokers that have not announced the topic."""
    announced = {one.broker_id for one in cluster.partitions_of(registry, topic)}
    return cluster.live_brokers(registry).keys() - announced
