"""A broker's nodes in a real ZooKeeper, and what it does when its session or its id is in doubt."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.cluster import BrokerAddress, live_brokers, partitions_of, topics
from kafka2011.coordination.processes import ProcessRecord, alive, read_record
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from tests.faults.disks import build
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import held_port
from tests.support.raw_requests import entry, fetch, multi_fetch, offsets, offsets_answer
from tests.support.waiting import wait_until
from tests.support.zookeeper import end_session, registry_at, start_zookeeper

pytestmark = pytest.mark.integration

V = entry(b"hello")
SESSION_MS = 20_000  # outlives a busy machine; shorter where its end is awaited


@pytest.fixture
def registry(zk_connect: str) -> Iterator[ZooKeeperRegistry]:
    with registry_at(zk_connect) as made:
        yield made


def start(tmp_path: Path, broker_id: int, zk_connect: str, **settings: object) -> RunningBroker:
    settings = {"zk_sessiontimeout_ms": SESSION_MS, **settings}
    return start_broker(tmp_path, broker_id, zk_connect, **settings)


def value(registry: ZooKeeperRegistry, path: str) -> str | None:
    stored = registry.get(path)
    return stored.value.decode() if stored is not None and stored.value is not None else None


def test_nodes_and_values_are_those_of_0_7(
    tmp_path: Path, zk_connect: str, registry: ZooKeeperRegistry
) -> None:
    settings = {"topic_partition_count_map": "wide:5", "process_name": "broker-7"}
    with start(
        tmp_path, 7, zk_connect, num_partitions=2, datacenter="offline", **settings
    ) as broker:
        text = value(registry, "/brokers/ids/7")
        assert text is not None
        assert re.fullmatch(rf"127\.0\.0\.1-[0-9]{{13}}:127\.0\.0\.1:{broker.port}", text)
        assert live_brokers(registry) == {7: BrokerAddress("127.0.0.1", broker.port)}
        assert topics(registry) == []
        with broker.connect() as client:
            # Asking does not make a topic.
            client.ask(offsets(b"asked", -1, 1))
            client.ask(fetch(b"asked"))
            client.ask(multi_fetch((b"asked", 0, 0, 10)))
        assert broker.store(b"test", V)
        assert broker.store(b"wide", V)
        wait_until(lambda: topics(registry) == ["test", "wide"], "both topics registered")
        wait_until(lambda: value(registry, "/brokers/topics/wide/7") == "5", "wide's partitions")
        assert value(registry, "/brokers/topics/test/7") == "2"
        stored = registry.get("/brokers/topics/test")
        assert stored is not None
        assert stored.value is None, "the parent has no data, not an empty text"
        assert broker.store(b"bad", V[:-1] + b"!") is None
        wait_until(lambda: value(registry, "/brokers/topics/bad/7") == "2", "the node stays")
        wait_until(lambda: alive(registry), "the process is registered")
        served, metrics = (f"127.0.0.1:{port}" for port in (broker.port, broker.metrics_port))
        assert alive(registry) == [
            ProcessRecord("offline", "broker-7", "broker", served, metrics, broker.pid)
        ]
        assert broker.stop() == 0
    assert live_brokers(registry) == {}, "the session ended with the broker"
    assert alive(registry) == []
    assert topics(registry) == ["bad", "test", "wide"], "topic nodes are never deleted"
    assert partitions_of(registry, "test") == []
    with start(tmp_path, 7, zk_connect, num_partitions=2):
        # Topics on disk are registered before the broker serves.
        assert len(partitions_of(registry, "test")) == 2


def test_duplicate_id_ends_the_second_broker_and_leaves_the_first_alone(
    tmp_path: Path, zk_connect: str, registry: ZooKeeperRegistry
) -> None:
    """Z8."""
    with start(tmp_path / "one", 3, zk_connect) as first:
        with start(tmp_path / "two", 3, zk_connect, wait=False) as second:
            assert second.wait() == 1
            last = second.log().strip().splitlines()[-1]
            assert last == (
                "kafka2011 broker: broker id 3 is already registered by "
                f"127.0.0.1:{first.port}, which answers"
            )
        assert live_brokers(registry) == {3: BrokerAddress("127.0.0.1", first.port)}
        assert first.store(b"t", V)


def test_restart_after_a_kill_waits_for_its_own_stale_node(
    tmp_path: Path, zk_connect: str, registry: ZooKeeperRegistry
) -> None:
    """Z8: the original dies here. Once on the same port, once on another."""
    with start(tmp_path, 4, zk_connect) as broker:
        assert broker.store(b"t", V)
        port = broker.port
        broker.kill()
    for again in (port, held_port()):
        with start(tmp_path, 4, zk_connect, port=again, wait=False) as broker:
            broker.wait_for_event("waiting_for_stale_registration")
            end_session(registry, paths.broker_id_path(4))
            broker.wait_serving()
            assert live_brokers(registry) == {4: BrokerAddress("127.0.0.1", again)}
            assert value(registry, "/brokers/topics/t/4") == "1"
            broker.kill()


def test_stop_while_it_waits_for_a_stale_node_is_a_clean_stop(
    tmp_path: Path, zk_connect: str, registry: ZooKeeperRegistry
) -> None:
    with start(tmp_path, 8, zk_connect) as broker:
        assert broker.store(b"t", V)
        broker.kill()
    with start(tmp_path, 8, zk_connect, wait=False) as broker:
        wait_until(lambda: "waiting_for_stale_registration" in broker.log(), "it waits")
        assert broker.stop() == 0
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()


def test_expired_session_registers_again_and_serving_goes_on(
    tmp_path: Path, zk_connect: str, registry: ZooKeeperRegistry
) -> None:
    """Z1, by a process that is stopped for longer than its session lives."""
    with start(tmp_path, 5, zk_connect, zk_sessiontimeout_ms=4000) as broker:
        assert broker.store(b"one", V)
        assert broker.store(b"two", V)
        wait_until(lambda: topics(registry) == ["one", "two"], "topics registered")
        with broker.connect() as client:
            before = value(registry, "/brokers/ids/5")
            broker.pause()
            try:
                wait_until(lambda: 5 not in live_brokers(registry), "the session expired")
            finally:
                broker.resume()
            assert client.ask(offsets(b"one", -1, 1)) == offsets_answer(len(V))
            wait_until(lambda: 5 in live_brokers(registry), "registered again")
            assert value(registry, "/brokers/ids/5") != before
            wait_until(
                lambda: len(partitions_of(registry, "one") + partitions_of(registry, "two")) == 2,
                "its topics too",
            )
        assert broker.store(b"three", V)
        wait_until(lambda: partitions_of(registry, "three") != [], "a new topic as well")
        assert broker.metrics()["kafka2011_broker_registered"] == 1


@pytest.mark.parametrize("fails", [False, True], ids=["clean", "failed"])
def test_only_a_clean_stop_says_goodbye(
    tmp_path: Path, zk_connect: str, registry: ZooKeeperRegistry, *, fails: bool
) -> None:
    """One whose disk failed is down, not stopped."""
    trigger = tmp_path / "fail-once"
    environment = {"LD_PRELOAD": str(build(tmp_path)), "FAIL_FILE": str(trigger)}
    with start_broker(
        tmp_path, 7, zk_connect, environment=environment, process_name="broker-7"
    ) as broker:
        wait_until(lambda: alive(registry), "the process is registered")
        assert broker.store(b"t", V)
        assert broker.store(b"u", V)
        if fails:
            trigger.touch()
            assert not broker.store(b"t", V)
        assert broker.stop() == (3 if fails else 0)
    assert read_record(registry, "live", "broker-7").said_goodbye is not fails


def test_without_zookeeper_the_broker_serves_on_and_comes_back(tmp_path: Path) -> None:
    """Z2: killed and started again on its port, the sessions live on or are made anew."""
    data = tmp_path / "zookeeper"
    with contextlib.ExitStack() as stack:
        with start_zookeeper(data) as server:
            port = server.port
            broker = stack.enter_context(start(tmp_path, 6, f"127.0.0.1:{port}"))
        for number in range(20):  # each within the client's timeout
            assert broker.store(b"t%d" % (number % 3), V)
        with (
            start_zookeeper(data, client_port=port),
            registry_at(f"127.0.0.1:{port}") as registry,
        ):
            wait_until(lambda: 6 in live_brokers(registry), "registered again")
            wait_until(
                lambda: all(
                    registry.exists(paths.topic_broker_path(f"t{number}", 6)) for number in range(3)
                ),
                "topics of the time without ZooKeeper as well",
            )
            assert broker.stop() == 0
            wait_until(lambda: live_brokers(registry) == {}, "gone with its session")


def test_no_zookeeper_at_the_start_is_one_line(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1"
    with start_broker(tmp_path, 0, nowhere, wait=False, zk_connectiontimeout_ms=2500) as broker:
        assert broker.wait() == 1
        text = broker.log()
        assert "Traceback" not in text
        last = text.strip().splitlines()[-1]
        assert "kafka2011 broker: cannot register in ZooKeeper" in last
        assert last.endswith("within 500 ms, in attempt 2 of 2")


def test_stop_while_it_waits_for_zookeeper_is_a_clean_stop(tmp_path: Path) -> None:
    # The server.properties of 0.7 lets it wait for 1,000 s.
    nowhere = "127.0.0.1:1"
    with start_broker(
        tmp_path, 0, nowhere, wait=False, zk_connectiontimeout_ms=1_000_000
    ) as broker:
        wait_until(lambda: "waiting_for_zookeeper" in broker.log(), "it waits")
        assert broker.stop() == 0
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
