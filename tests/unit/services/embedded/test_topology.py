"""The plan of the embedded deployment, as a pure function of its settings."""

from itertools import count
from pathlib import Path

from kafka2011.events.forms import parse_forms
from kafka2011.runtime.config import environment_name
from kafka2011.runtime.process_settings import known_names
from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.embedded.topology import ProcessSpec, plan


def planned(**settings: object) -> dict[str, ProcessSpec]:
    ports = count(20_000)
    specs = plan(EmbeddedConfig(**settings), Path("/data"), lambda: next(ports))  # type: ignore[arg-type]
    return {spec.name: spec for spec in specs}


def test_the_default_is_the_deployment_of_the_paper() -> None:
    assert list(planned()) == [
        "zookeeper-live",
        "zookeeper-offline",
        "registry",
        "broker-1",
        "broker-2",
        "broker-11",
        "broker-12",
        "balancer",
        "mirror-1",
        "online-1",
        "online-2",
        "audit",
        "loader",
        "dashboard",
        "frontend-1",
    ]


def test_counts_are_settings() -> None:
    names = planned(live_brokers=3, offline_brokers=1, mirrors=2, online_consumers=0, frontends=2)
    assert {"broker-3", "mirror-2", "frontend-2"} <= set(names)
    assert not any(name.startswith("online") or name == "broker-12" for name in names)


def test_no_port_is_given_twice() -> None:
    ports = [port for spec in planned().values() for port in spec.ports.values()]
    assert len(ports) == len(set(ports))


def test_every_variable_is_a_setting_that_some_process_knows() -> None:
    known = {environment_name(name) for name in known_names()} | {
        environment_name("report.table"),
        environment_name("report.dir"),
    }
    for spec in planned().values():
        assert set(spec.environment) <= known, spec.name


def test_brokers_of_one_datacenter_know_only_their_own_zookeeper() -> None:
    specs = planned()
    live = specs["broker-1"].environment["KAFKA2011_ZK_CONNECT"]
    offline = specs["broker-11"].environment["KAFKA2011_ZK_CONNECT"]
    assert live != offline
    assert specs["broker-2"].environment["KAFKA2011_ZK_CONNECT"] == live
    assert specs["mirror-1"].environment["KAFKA2011_SOURCE_ZK_CONNECT"] == live
    assert specs["mirror-1"].environment["KAFKA2011_TARGET_ZK_CONNECT"] == offline


def test_an_access_log_is_sent_by_one_frontend_only() -> None:
    specs = planned(frontends=3, input_path="access.log")
    assert [name for name in specs if name.startswith("frontend")] == ["frontend-1"]
    assert specs["frontend-1"].environment["KAFKA2011_SOURCE"] == "access-log"


def test_where_things_may_be_broken_the_mirror_goes_over_a_link() -> None:
    specs = planned(chaos="on")
    link, mirror = specs["wan-link"], specs["mirror-1"]
    routes = link.environment["KAFKA2011_PROXY_ROUTES"]
    assert mirror.environment["KAFKA2011_SOURCE_ZK_CONNECT"] == (
        f"127.0.0.1:{link.ports['zookeeper']}"
    )
    for name in ("broker-1", "broker-2"):
        published = f"127.0.0.1:{specs[name].ports['broker']}"
        pairs = dict(
            pair.split("=") for pair in mirror.environment["KAFKA2011_ADDRESS_MAP"].split(",")
        )
        assert f"{name}={pairs[published]}>{published}" in routes
    assert "wan-link" not in planned()


def test_everybody_knows_the_forms_and_who_decodes_the_registry() -> None:
    specs = planned(event_forms=parse_forms("login:2011"))
    port = specs["registry"].ports["registry"]
    for name, spec in specs.items():
        forms = spec.environment.get("KAFKA2011_EVENT_FORMS")
        handles_events = spec.kind not in ("zookeeper", "broker", "proxy", "registry")
        assert forms == ("*:id,login:2011" if handles_events else None), name
        url = spec.environment.get("KAFKA2011_SCHEMA_REGISTRY_URL")
        decodes = spec.kind in ("frontend", "loader", "dashboard")
        assert url == (f"http://127.0.0.1:{port}" if decodes else None), name
