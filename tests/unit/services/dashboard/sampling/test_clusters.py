"""What the dashboard reads in ZooKeeper."""

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.processes import ProcessRecord, register_process
from kafka2011.services.dashboard.config import more_datacenters
from kafka2011.services.dashboard.sampling.clusters import (
    ClusterSampler,
    pause_s,
    read_group,
    read_partition_counts,
    read_processes,
)
from kafka2011.services.dashboard.sampling.observations import ObservedCluster
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.processes import expect_process
from tests.support.waiting import wait_until

NOT_YET = ObservedCluster("live", "h:1").reason


@pytest.mark.parametrize(
    ("took_s", "every_s", "share", "wanted_s"),
    [
        (0.01, 4.0, 25, 4.0),
        (0.5, 4.0, 25, 12.5),
        (20.0, 3.0, 20, 30.0),  # an object store was starting meanwhile
        (20.0, 40.0, 20, 40.0),
        (9.0, 2.0, 0, 2.0),
    ],
)
def test_a_long_read_is_made_less_often_and_never_put_off_for_minutes(
    took_s: float, every_s: float, share: int, wanted_s: float
) -> None:
    assert pause_s(took_s, every_s, share) == wanted_s


def test_partitions_are_those_registered_and_counts_are_read_once() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    for broker, text in (("1", b"2"), ("11", b"3"), ("12", b"many"), ("x", b"1")):
        registry.put(f"{paths.topic_path('clicks')}/{broker}", text)
    found = read_partition_counts(registry, ["clicks", "gone"], {})
    assert found == {"clicks": {1: 2, 11: 3}, "gone": {}}
    registry.put(f"{paths.topic_path('clicks')}/1", b"9")
    registry.delete_recursive(f"{paths.topic_path('clicks')}/11")
    assert read_partition_counts(registry, ["clicks"], found) == {"clicks": {1: 2}}
    assert read_partition_counts(registry, ["clicks"], {}) == {"clicks": {1: 9}}


def test_a_new_topics_partitions_have_their_owners_at_once_though_no_member_came() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    base = paths.group_path("g")

    def claim(topic: str) -> None:
        registry.put(f"{base}/owners/{topic}/1-0", b"g_host-1-0")
        registry.put(f"{base}/offsets/{topic}/1-0", b"7")

    claim("clicks")
    first = read_group(registry, "g")
    registry.put(f"{base}/owners/clicks/1-0", b"g_host-2-0")
    assert read_group(registry, "g", first).owners == first.owners  # as read before
    claim("views")
    found = read_group(registry, "g", first)
    assert found.owners.keys() == found.offsets.keys() == {("clicks", "1-0"), ("views", "1-0")}


def test_processes_of_a_further_live_datacenter_are_called_by_its_name() -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    expect_process(registry, "live", "west-broker-1", "broker")
    expect_process(registry, "shared", "x", "odd")
    record = ProcessRecord("live", "west-frontend-1", "frontend", "", "west-frontend-1:8080", 7)
    registration = register_process(registry, record)
    assert registration.wait(60)
    expected, kinds, alive, goodbyes = read_processes(registry, [], "west")
    assert kinds == {
        "west/west-broker-1": "broker",
        "west/west-frontend-1": "frontend",
        "shared/x": "odd",
    }
    assert alive["west/west-frontend-1"].metrics_address == "west-frontend-1:8080"
    assert not goodbyes
    assert read_processes(registry, expected, "west") == (expected, kinds, alive, goodbyes)
    assert "live/west-broker-1" in read_processes(registry, expected)[1]
    registration.close()
    assert read_processes(registry, expected, "west")[2:] == ({}, {"west/west-frontend-1"})


def test_further_datacenters_are_named_once_each() -> None:
    assert more_datacenters(" west=a:1,b:2 ; east=c:3;") == {"west": "a:1,b:2", "east": "c:3"}
    for text in ("west", "west=", "We st=a:1", "live=a:1", "west=a:1;west=b:1"):
        with pytest.raises(ValueError, match=r"must be|taken"):
            more_datacenters(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (paths.process_path("live", "x"), b"[" * 60_000),
        (paths.process_alive_path("live", "good"), b"[" * 60_000),
        (paths.process_alive_path("live", "good"), b'{"pid": ' + b"9" * 5000 + b"}"),
        (f"{paths.topic_path('clicks')}/{'9' * 5000}", b"1"),
        (f"{paths.topic_path('clicks')}/\u0663", b"1"),
        (f"{paths.BROKER_IDS}/{'9' * 5000}", b"h-1:h:9092"),
        (f"{paths.REPLICAS}/{'9' * 5000}/state", b"{}"),
        (f"{paths.group_path('g')}/offsets/clicks/{'9' * 5000}-0", b"5"),
        (f"{paths.group_path('g')}/offsets/clicks/1-1", b"9" * 5000),
        (f"{paths.group_path('g')}/ids/g_h", b"[" * 60_000),
    ],
)
def test_a_node_that_no_process_of_ours_wrote_hides_nothing_else(path: str, value: bytes) -> None:
    zookeeper = InMemoryZooKeeper()
    admin = zookeeper.client()
    admin.start()
    admin.put(f"{paths.BROKER_IDS}/1", b"h-1:h:9092")
    admin.put(f"{paths.topic_path('clicks')}/1", b"2")
    admin.put(f"{paths.group_path('g')}/offsets/clicks/1-0", b"7")
    expect_process(admin, "live", "good", "broker")
    admin.put(path, value)
    make = lambda _address: zookeeper.client()  # noqa: E731
    one = ClusterSampler("live", "h:1", make)  # type: ignore[arg-type]
    try:
        wait_until(lambda: one.observed.at_ms or one.observed.reason != NOT_YET, "a sample")
        seen = one.observed
    finally:
        one.close()
    assert (seen.is_answering, seen.reason) == (True, "")
    assert list(seen.brokers) == [1]
    assert seen.partitions == {"clicks": {1: 2}}
    assert seen.expected["live/good"] == "broker"
    assert seen.groups["g"].offsets["clicks", "1-0"] == (7, 0)
