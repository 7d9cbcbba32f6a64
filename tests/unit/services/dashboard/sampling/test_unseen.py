"""While no page is open the dashboard reads rarely, and at once when one is opened."""

import threading

import pytest

from kafka2011.coordination import paths
from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.dashboard.sampling import clusters, sampler
from kafka2011.services.dashboard.sampling.clusters import ClusterSampler
from kafka2011.services.dashboard.sampling.sampler import Sampler
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.waiting import wait_until


def test_a_cluster_is_read_at_once_when_a_page_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SAMPLE_S", 0.01)
    monkeypatch.setattr(clusters, "UNSEEN_SAMPLES", 10**6)
    zookeeper = InMemoryZooKeeper()
    admin = zookeeper.client()
    admin.start()
    is_asked = threading.Event()

    def is_unseen() -> bool:
        is_asked.set()
        return True

    make = lambda _address: zookeeper.client()  # noqa: E731
    one = ClusterSampler("live", "h:1", make, is_unseen=is_unseen)  # type: ignore[arg-type]
    try:
        wait_until(lambda: one.observed.at_ms, "the first sample")
        wait_until(is_asked.is_set, "the long pause")
        admin.create(paths.topic_path("new"))

        def is_read_when_hurried() -> bool:
            one.hurry()
            return "new" in one.observed.topics

        wait_until(is_read_when_hurried, "what came while no page was open")
    finally:
        one.close()


def test_a_request_counts_as_an_open_page_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Sampler(DashboardConfig(live_zk_connect="127.0.0.1:1"))
    try:
        assert not one.is_unseen, "a page may be opened at the start"
        monkeypatch.setattr(sampler, "UNSEEN_S", -1.0)
        assert one.is_unseen
        monkeypatch.setattr(sampler, "UNSEEN_S", 3600.0)
        one.seen()
        assert not one.is_unseen
    finally:
        one.close()
