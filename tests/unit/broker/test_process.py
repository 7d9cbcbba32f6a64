"""What a broker does at its start with the names that it finds in its data directory."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafka2011.broker.metrics import BrokerCollector
from kafka2011.coordination import paths
from tests.support.in_process_broker import in_process_broker
from tests.support.memory_zookeeper import InMemoryZooKeeper

TOPICS = ["t-0", "a b-0", "ü-0"]
NO_TOPICS = ["a\x01b-0", "a\nb-0", "\udcff-0", "\ue000-0", "-0"]


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ({}, ["t"]),
        ({"topic_name_rule": "0.7"}, ["a b", "t", "ü"]),
        ({"topic_name_rule": "0.7", "max_topic_name_length": 2}, ["t", "ü"]),
    ],
)
def test_only_topics_that_are_served_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], served: list[str]
) -> None:
    """And what can be no topic at all disturbs neither the start nor a scrape."""
    zookeeper = InMemoryZooKeeper()
    monkeypatch.setattr(
        "kafka2011.broker.process.ZooKeeperRegistry", lambda *_, **__: zookeeper.client()
    )
    for name in TOPICS + NO_TOPICS:
        (tmp_path / "logs" / name).mkdir(parents=True)
    settings |= {"enable_zookeeper": "true", "zk_connect": "memory:1"}
    with in_process_broker(tmp_path, **settings) as started:
        registry = zookeeper.client()
        registry.start()
        assert sorted(registry.children(paths.BROKER_TOPICS)) == served
        broker = started.broker
        scrape = CollectorRegistry()
        scrape.register(
            BrokerCollector(broker.metrics, broker.logs, broker._gauges, lambda _: (1, 1))
        )
        assert 'log_end{partition="0",topic="a b"}' in generate_latest(scrape).decode()
    for name in NO_TOPICS:
        assert not list((tmp_path / "logs" / name).iterdir()), "it is somebody else's"
