"""Edges between processes, and the faults of a proxy in words."""

from typing import Any

import pytest

from kafka2011.services.dashboard.rows.flows import FlowRows, faults_in_words, is_link
from kafka2011.services.dashboard.rows.rates import Rates
from kafka2011.services.dashboard.sampling.observations import Observations, ObservedProcess


def process(kind: str, name: str, dc: str = "live", **samples: Any) -> ObservedProcess:
    found = ObservedProcess(f"{dc}/{name}", dc, name, kind)
    found.health.note_node(True)
    found.health.note_scrape(True)
    found.samples = samples
    return found


def proxy(name: str, *routes: str) -> ObservedProcess:
    opened = [({"route": route}, 1.0) for route in routes]
    return process("proxy", name, kafka2011_proxy_connections_open=opened)


def edges(*processes: ObservedProcess) -> set[str]:
    seen = Observations(0, {p.key: p for p in processes}, {}, None, {}, None, {}, {})
    flows = FlowRows(Rates(), 10_000)
    flows.name_brokers(seen)
    return set(flows.edge_rows(seen, flows.process_rows(seen)))


def test_a_proxy_with_a_route_for_each_broker_is_a_link() -> None:
    assert is_link(proxy("wan-link", "zookeeper", "broker-1"))
    assert not is_link(proxy("balancer", "route-0"))


def test_mirrors_are_reached_over_the_link_where_there_is_one() -> None:
    brokers = process("broker", "broker-1"), process("broker", "broker-11", "offline")
    mirror = process("mirror", "mirror-1")
    assert edges(*brokers, mirror) == {
        "live/broker-1>live/mirror-1",
        "live/mirror-1>offline/broker-11",
    }
    assert edges(*brokers, mirror, proxy("wan-link", "zookeeper", "broker-1")) == {
        "live/broker-1>live/wan-link",
        "live/wan-link>live/mirror-1",
        "live/mirror-1>offline/broker-11",
    }


def test_a_link_is_not_what_frontends_send_through() -> None:
    found = edges(
        process("frontend", "f"),
        process("broker", "broker-1"),
        proxy("wan-link", "zookeeper", "broker-1"),
        proxy("balancer", "route-0"),
    )
    assert found == {"live/f>live/balancer", "live/balancer>live/broker-1"}


def test_a_proxy_that_was_stopped_carries_nothing() -> None:
    gone = ObservedProcess("live/wan-link", "live", "wan-link", "proxy")
    gone.health.note_node(False, said_goodbye=True)
    gone.health.note_scrape(False, "not registered")
    gone.health.note_scrape(False, "not registered")
    balancer = proxy("balancer", "route-0")
    found = edges(process("frontend", "f"), process("broker", "broker-1"), balancer, gone)
    assert found == {"live/f>live/balancer", "live/balancer>live/broker-1"}


def test_two_live_datacenters_with_the_same_broker_ids_meet_in_the_offline_one_only() -> None:
    def mirror(name: str, dc: str) -> ObservedProcess:
        copied = [({"source": "1-0", "target": "11-0"}, 5.0)]
        return process("mirror", name, dc, kafka2011_mirror_copied_bytes_total=copied)

    link = proxy("west-wan-link", "zookeeper", "broker-1")
    link.key, link.datacenter = "west/west-wan-link", "west"
    found = edges(
        process("frontend", "f"),
        process("broker", "broker-1"),
        mirror("mirror-1", "live"),
        process("frontend", "west-f", "west"),
        process("broker", "west-broker-1", "west"),
        link,
        mirror("west-mirror-1", "west"),
        process("audit", "west-audit", "west"),
        process("broker", "broker-11", "offline"),
    )
    assert found == {
        "live/f>live/broker-1",
        "live/broker-1>live/mirror-1",
        "live/mirror-1>offline/broker-11",
        "west/west-f>west/west-broker-1",
        "west/west-broker-1>west/west-wan-link",
        "west/west-wan-link>west/west-mirror-1",
        "west/west-mirror-1>offline/broker-11",
        "west/west-broker-1>west/west-audit",
        "offline/broker-11>west/west-audit",
    }


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ([{"faults": {"cut": True, "delay_ms": 0}}] * 2, ["cut"]),
        (
            [{"faults": {"delay_ms": 400, "rate_bytes_s": 20_000}, "drop_remaining": 3}],
            ["400 ms late", "20 KB/s at most", "drops 3 messages"],
        ),
        ([{"faults": {"hold": [], "cut": False}}], []),
    ],
)
def test_faults_are_listed_once_in_words(routes: list[dict[str, Any]], words: list[str]) -> None:
    assert faults_in_words({"routes": dict(enumerate(routes))}) == words
