"""The plan of the embedded deployment, as a pure function of its settings."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafka2011.events.forms import parse_forms
from kafka2011.runtime.config import ConfigError, environment_name, load
from kafka2011.runtime.process_settings import known_names
from kafka2011.services.embedded.config import PORTS_MAX, EmbeddedConfig
from kafka2011.services.embedded.topology import ProcessSpec, plan
from kafka2011.services.frontend.config import FrontendConfig


def planned(**settings: Any) -> dict[str, ProcessSpec]:
    ports = count(20_000)
    specs = plan(EmbeddedConfig(**settings), Path("/data"), lambda _offset: next(ports))
    return {spec.name: spec for spec in specs}


def test_the_default_is_the_deployment_of_the_paper() -> None:
    specs = planned()
    assert list(specs) == [
        *("zookeeper-live", "zookeeper-offline", "registry"),
        *("broker-1", "broker-2", "broker-11", "broker-12"),
        *("balancer", "mirror-1", "online-1", "online-2"),
        *("site", "audit", "loader", "dashboard", "frontend-1"),
    ]
    ports = [port for spec in specs.values() for port in spec.ports.values()]
    assert len(ports) == len(set(ports))
    known = {*known_names(), "report.table", "report.dir"}
    variables = {name for spec in specs.values() for name in spec.environment}
    assert variables <= {environment_name(name) for name in known}


@pytest.mark.parametrize("kind", [{"dashboard_port": 0}, {"replicas": 3}], ids=["plain", "sets"])
def test_every_port_has_an_offset_of_its_own(kind: dict[str, int]) -> None:
    offsets: list[int] = []

    def port_at(offset: int) -> int:
        offsets.append(offset)
        return 10_000 + offset

    config: Any = {"live_brokers": 10, "offline_brokers": 20, "chaos": "on", **kind}
    plan(EmbeddedConfig(**config), Path("/data"), port_at)
    assert len(offsets) == len(set(offsets))
    assert max(offsets) <= PORTS_MAX


LARGEST = (
    *("embedded.live.brokers=10", "embedded.offline.brokers=20", "embedded.mirrors=20"),
    *("embedded.frontends=20", "embedded.online.consumers=20", "embedded.chaos=on"),
    "embedded.dashboard.port=0",
)


@pytest.mark.parametrize("replicas", ["1", "3"])
def test_in_the_largest_deployment_every_process_has_a_name_and_ports_of_its_own(
    replicas: str,
) -> None:
    words = [*LARGEST, f"embedded.replicas={replicas}"]
    config, _ = load(EmbeddedConfig, overrides=words, environment={})
    offsets: list[int] = []

    def port_at(offset: int) -> int:
        offsets.append(offset)
        return offset

    specs = plan(config, Path("/data"), port_at)
    assert len({spec.name for spec in specs}) == len(specs)
    brokers = [spec for spec in specs if spec.kind == "broker"]
    ids = {(spec.datacenter, spec.environment["KAFKA2011_BROKERID"]) for spec in brokers}
    assert len({broker_id for _, broker_id in ids}) == len(ids) == 30
    assert len(set(offsets)) == len(offsets)
    assert max(offsets) <= PORTS_MAX


def test_more_live_brokers_than_there_are_ids_below_the_offline_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"embedded.live.brokers.*must be at most 10: .* from 11"):
        load(EmbeddedConfig, overrides=["embedded.live.brokers=11"], environment={})


def test_counts_are_settings() -> None:
    names = planned(live_brokers=3, offline_brokers=1, mirrors=2, online_consumers=0, frontends=2)
    assert {"broker-3", "mirror-2", "frontend-2"} <= set(names)
    assert not any(name.startswith("online") or name == "broker-12" for name in names)


def test_brokers_of_one_datacenter_know_only_their_own_zookeeper() -> None:
    environments = {name: spec.environment for name, spec in planned().items()}
    live = environments["broker-1"]["KAFKA2011_ZK_CONNECT"]
    offline = environments["broker-11"]["KAFKA2011_ZK_CONNECT"]
    assert live != offline
    assert environments["broker-2"]["KAFKA2011_ZK_CONNECT"] == live
    assert environments["mirror-1"]["KAFKA2011_SOURCE_ZK_CONNECT"] == live
    assert environments["mirror-1"]["KAFKA2011_TARGET_ZK_CONNECT"] == offline


def test_an_access_log_is_sent_by_one_frontend_only() -> None:
    specs = planned(frontends=3, input_path="access.log")
    assert [name for name in specs if name.startswith("frontend")] == ["frontend-1"]
    assert specs["frontend-1"].environment["KAFKA2011_SOURCE"] == "access-log"
    assert planned()["frontend-1"].environment["KAFKA2011_FRONTEND_KEYED"] == "true"


def test_where_things_may_be_broken_the_mirror_goes_over_a_link() -> None:
    specs = planned(chaos="on")
    link, mirror = specs["wan-link"], specs["mirror-1"].environment
    routes = link.environment["KAFKA2011_PROXY_ROUTES"]
    assert mirror["KAFKA2011_SOURCE_ZK_CONNECT"] == f"127.0.0.1:{link.ports['zookeeper']}"
    dialled = dict(pair.split("=") for pair in mirror["KAFKA2011_ADDRESS_MAP"].split(","))
    for name in ("broker-1", "broker-2"):
        published = f"127.0.0.1:{specs[name].ports['broker']}"
        assert f"{name}={dialled[published]}>{published}" in routes
    assert "wan-link" not in planned()


def test_every_process_of_events_knows_the_forms_and_those_that_decode_the_registry() -> None:
    specs = planned(event_forms=parse_forms("login:2011"))
    url = f"http://127.0.0.1:{specs['registry'].ports['registry']}"
    for name, spec in specs.items():
        handles_events = spec.kind not in ("zookeeper", "broker", "proxy", "registry")
        decodes = spec.kind in ("frontend", "loader", "dashboard", "site")
        wanted = ("*:id,login:2011" if handles_events else None, url if decodes else None)
        found = map(
            spec.environment.get, ("KAFKA2011_EVENT_FORMS", "KAFKA2011_SCHEMA_REGISTRY_URL")
        )
        assert tuple(found) == wanted, name


def test_with_replicas_each_live_broker_is_a_set_over_all_machines() -> None:
    specs = planned(replicas=3)
    brokers = {name: spec for name, spec in specs.items() if name.startswith("broker-")}
    members = [f"broker-{number}-{name}" for number in (1, 2, 3) for name in "abc"]
    assert sorted(brokers) == sorted([*members, "broker-11", "broker-12"])
    directories = {spec.environment["KAFKA2011_LOG_DIR"] for spec in brokers.values()}
    assert len(directories) == len(brokers)
    assert {path.split("/")[2] for path in directories} == {
        *("machine-1", "machine-2", "machine-3", "broker-11", "broker-12")
    }
    assert brokers["broker-2-c"].environment["KAFKA2011_LOG_DIR"] == "/data/machine-3/broker-2/logs"
    # Each machine is the first choice of one set, whose member's start makes the set.
    first = {name: spec.setup for name, spec in brokers.items() if spec.setup}
    assert sorted(first) == ["broker-1-a", "broker-2-b", "broker-3-c"]
    for name, command in first.items():
        assert command[command.index("--member") + 1] == name[-1]
        assert command.count("--member") == 3
    targets = specs["balancer"].environment["KAFKA2011_PROXY_ROUTES"].partition(">")[2].split("|")
    assert len(targets) == 9


def test_without_a_rate_the_frontends_send_heartbeats_alone() -> None:
    settings = planned(rate=0)["frontend-1"].environment
    assert settings["KAFKA2011_SOURCE"] == "none"
    ours, _ = load(FrontendConfig, environment=settings, known_elsewhere=known_names())
    assert ours.source == "none"
