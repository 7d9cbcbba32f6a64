"""Edges between processes, and the faults of a proxy in words."""

from itertools import pairwise
from typing import Any

import pytest

from kafka2011.services.dashboard.rows.flows import (
    BYTES_IN,
    FlowRows,
    faults_in_words,
    is_link,
    shares_of,
)
from kafka2011.services.dashboard.rows.sections import SectionRows
from kafka2011.services.dashboard.sampling.observations import ObservedProcess
from kafka2011.services.rates import Rates
from tests.unit.services.dashboard.conftest import observations, process


def named(text: str) -> ObservedProcess:
    """A process as `KIND DATACENTER/NAME`; a link is a proxy with a route for each broker, a
    balancer one without, and a mirror has copied."""
    kind, key = text.split()
    dc, name = key.split("/")
    routes = {"link": ["zookeeper", "broker-1"], "balancer": ["route-0"]}.get(kind, [])
    found = process("proxy" if routes else kind, name, dc)
    copied = [({"source": "1-0", "target": "11-0"}, 5.0)]
    opened = [({"route": route}, 1.0) for route in routes]
    found.samples = {
        "kafka2011_proxy_connections_open": opened,
        "kafka2011_mirror_copied_bytes_total": copied if kind == "mirror" else [],
    }
    return found


def edges(*processes: ObservedProcess) -> set[str]:
    seen = observations(*processes)
    flows = FlowRows(Rates(), 10_000)
    flows.name_brokers(seen)
    return set(flows.edge_rows(seen, flows.process_rows(seen)))


def edges_of(*paths: str) -> set[str]:
    """The edges of paths, each `PROCESS > PROCESS > ...`."""
    return {f"{one}>{other}" for path in paths for one, other in pairwise(path.split(" > "))}


BROKER, OFFLINE, FRONTEND = map(
    named, ("broker live/broker-1", "broker offline/broker-11", "frontend live/f")
)
MIRROR, LINK, BALANCER = map(
    named, ("mirror live/mirror-1", "link live/wan-link", "balancer live/balancer")
)


def test_a_proxy_with_a_route_for_each_broker_is_a_link() -> None:
    assert is_link(LINK)
    assert not is_link(BALANCER)


def test_mirrors_are_reached_over_the_link_where_there_is_one() -> None:
    direct = edges_of("live/broker-1 > live/mirror-1 > offline/broker-11")
    assert edges(BROKER, OFFLINE, MIRROR) == direct
    linked = edges_of("live/broker-1 > live/wan-link > live/mirror-1 > offline/broker-11")
    assert edges(BROKER, OFFLINE, MIRROR, LINK) == linked


def test_a_link_is_not_what_frontends_send_through_and_a_stopped_one_carries_nothing() -> None:
    stopped = ObservedProcess("live/wan-link", "live", "wan-link", "proxy")
    stopped.health.note_node(False, said_goodbye=True)
    for _ in range(2):
        stopped.health.note_scrape(False, "not registered")
    for link in (LINK, stopped):
        found = edges(FRONTEND, BROKER, BALANCER, link)
        assert found == edges_of("live/f > live/balancer > live/broker-1")


def test_events_with_a_key_go_past_the_balancer_to_the_broker_of_that_key() -> None:
    one, other = named("broker live/broker-1"), named("broker live/broker-2")
    frontend, balancer = named("frontend live/f"), named("balancer live/balancer")
    flows = FlowRows(Rates(), 10_000)
    for now_ms, count in ((1000, 0.0), (2000, 100.0)):
        # 100 bytes each, half of them with a key of broker 2.
        for broker, share in ((one, 0.25), (other, 0.75)):
            broker.samples = {
                "kafka2011_broker_messages_in_total": [({}, share * count)],
                "kafka2011_broker_bytes_in_total": [({}, share * count * 100)],
            }
        frontend.samples = {
            "kafka2011_frontend_messages_total": [({"topic": "t"}, count)],
            "kafka2011_frontend_keyed_bytes_total": [({"broker": "2"}, 50 * count)],
        }
        seen = observations(one, other, frontend, balancer, now_ms=now_ms)
        flows.name_brokers(seen)
        rows = flows.edge_rows(seen, flows.process_rows(seen))
    assert {key: row["bytes_s"] for key, row in rows.items()} == {
        "live/f>live/balancer": 5000,
        "live/f>live/broker-2": 5000,
        "live/balancer>live/broker-1": 2500,
        "live/balancer>live/broker-2": 2500,
    }


@pytest.mark.parametrize("ends", ["mirror-1", "balancer"])
def test_nothing_flows_through_what_is_away(ends: str) -> None:
    """Its last rates stayed for as long as it was away: 116 KB/s through a mirror that was dead."""
    broker, target, frontend, mirror, balancer = every = [
        named(f"{kind} {key}")
        for kind, key in (
            ("broker", "live/broker-1"),
            ("broker", "offline/broker-11"),
            ("frontend", "live/f"),
            ("mirror", "live/mirror-1"),
            ("balancer", "live/balancer"),
        )
    ]
    flows = FlowRows(Rates(), 10_000)

    def moving(now_ms: int) -> set[str]:
        seen = observations(*every, now_ms=now_ms)
        flows.name_brokers(seen)
        rows = flows.edge_rows(seen, flows.process_rows(seen))
        return {key for key, row in rows.items() if row["bytes_s"]}

    for now_ms, size in ((1000, 0.0), (2000, 100.0)):
        for each in (broker, target):
            each.samples = {"kafka2011_broker_bytes_in_total": [({}, size)]}
        frontend.samples = {"kafka2011_frontend_messages_total": [({"topic": "t"}, size)]}
        copied = [({"source": "1-0", "target": "11-0"}, size)]
        mirror.samples = {"kafka2011_mirror_copied_bytes_total": copied}
        for each in every:
            each.samples_ms = now_ms
        found = moving(now_ms)
    assert {edge for edge in found if ends in edge}
    away = mirror if ends == mirror.name else balancer
    for _ in range(5):
        away.health.note_scrape(False, "connection refused")
    from_it = {edge for edge in moving(3000) if edge.startswith(away.key)}
    assert from_it == set()


def test_nothing_flows_from_a_broker_that_is_down_to_what_reads() -> None:
    rows = {"a": {"out_s": 300.0}, "b": {"out_s": 0.0}, "c": {"out_s": 100.0}, "r": {"in_s": 200.0}}
    assert shares_of(rows, "r", ["a", "b", "c"]) == [("a", 150.0), ("b", 0.0), ("c", 50.0)]
    assert shares_of(rows, "r", ["b"]) == [("b", 0.0)]


def test_two_live_datacenters_with_the_same_broker_ids_meet_in_the_offline_one_only() -> None:
    west = (
        "frontend west/west-f",
        "broker west/west-broker-1",
        "link west/west-wan-link",
        "mirror west/west-mirror-1",
        "audit west/west-audit",
    )
    assert edges(FRONTEND, BROKER, MIRROR, OFFLINE, *map(named, west)) == edges_of(
        "live/f > live/broker-1 > live/mirror-1 > offline/broker-11 > west/west-audit",
        "west/west-f > west/west-broker-1 > west/west-wan-link > west/west-mirror-1",
        "west/west-mirror-1 > offline/broker-11",
        "west/west-broker-1 > west/west-audit",
    )


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


def test_before_a_process_was_read_its_rates_are_unknown() -> None:
    """What is read apart comes some samples after the first."""
    rows = SectionRows(60_000, 10_000)
    shown = []
    for second in range(4):
        read = process("broker", "broker-7")
        if second >= 2:
            read.samples = {BYTES_IN: [({"topic": "x"}, 1e9 + 100 * second)]}
        row = rows.sections(observations(read, now_ms=second * 1000))["processes"][read.key]
        shown.append(row["in_s"])
    assert shown == [None, None, None, 100]
