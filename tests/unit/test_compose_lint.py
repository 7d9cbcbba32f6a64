"""docker-compose.yml, the Dockerfiles and the embedded deployment, held against each other.

What a reviewer would have to look for by eye each time: hardening, limits, health checks, networks,
words that one of the two Compose generations refuses, and that containers and local processes
start the same entry points with the same variables (contracts sections 2, 7, 9).
"""

import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka2011.broker.config import BrokerConfig
from kafka2011.cli.schedule import SCHEDULABLE
from kafka2011.runtime.config import load
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.runtime.process_settings import known_names
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.containers.demo import FRONTENDS
from kafka2011.services.dashboard.config import DashboardConfig
from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.embedded.topology import ProcessSpec, plan
from kafka2011.services.frontend.config import FrontendConfig
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.online_consumer.config import OnlineConsumerConfig
from kafka2011.services.proxy.config import ProxyConfig
from kafka2011.services.schema_registry.config import SchemaRegistryConfig
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.schedule.config import ScheduleConfig
from kafka2011.services.warehouse.schedule.timetable import parse_schedule
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from tests import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DEFAULT = {name: service for name, service in SERVICES.items() if "profiles" not in service}
# make up CHAOS=on: deploy/docker/chaos.yml over docker-compose.yml.
CHAOS_TEXT = (ROOT / "deploy/docker/chaos.yml").read_text(encoding="utf-8")
CHAOS: dict[str, dict[str, Any]] = yaml.safe_load(CHAOS_TEXT)["services"]
DOCKERFILES = sorted((ROOT / "deploy/docker").glob("*.Dockerfile"))

MEMORY_MB_MAX = 6 * 1024
# Variables that only a container needs: it listens on all interfaces, and Spark is a cluster.
CONTAINERS_ONLY = {
    "KAFKA2011_LOG_FORMAT",
    "KAFKA2011_BIND_ADDRESS",
    "KAFKA2011_ZK_BIND_ADDRESS",
    "KAFKA2011_SPARK_MASTER",
    "KAFKA2011_DASHBOARD_BIND",
    "KAFKA2011_REGISTRY_BIND",
    # What the page may break: local processes by their directory, containers by chaos.yml.
    "KAFKA2011_DASHBOARD_CHAOS_DIR",
    # Who may ask for a page; there is more than loopback in a container.
    "KAFKA2011_DASHBOARD_HOSTS",
    # Nobody keeps a list of restarts after a `docker kill`, and there may be a second datacenter.
    "KAFKA2011_AUDIT_REDELIVERY_EXPECTED",
    "KAFKA2011_AUDIT_SERVERS_BLACKLIST",
    # Nobody starts a process after what it needs, so it waits.
    "KAFKA2011_ZK_CONNECTIONTIMEOUT_MS",
    "KAFKA2011_ZK_START_TIMEOUT_MS",
    # Profile `two-live`.
    "KAFKA2011_LIVE_MORE_ZK_CONNECT",
    # Profile `ha`: three servers.
    "KAFKA2011_ZK_ENSEMBLE",
    "KAFKA2011_ZK_SERVER_ID",
    # Twice the processes on the same two cores, so each asks less often.
    "KAFKA2011_FETCHER_BACKOFF_MS",
    "KAFKA2011_AUDIT_POLL_MS",
}

# Who stands in both datacenters.
SHARED = {"audit", "registry", "dashboard", "shell", "prometheus"}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One service of two files as Compose merges them: mappings by key, lists behind each other."""
    service = dict(base)
    for key, value in over.items():
        before = service.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            service[key] = before | value
        elif isinstance(value, list) and isinstance(before, list):
            service[key] = before + value
        else:
            service[key] = value
    return service


CHAOS_SERVICES = {name: merged(SERVICES.get(name, {}), over) for name, over in CHAOS.items()}
each_service = pytest.mark.parametrize("name", SERVICES)
# Also as deploy/docker/chaos.yml makes them.
each_variant = pytest.mark.parametrize(
    ("name", "service"),
    [
        *(pytest.param(name, service, id=name) for name, service in SERVICES.items()),
        *(pytest.param(n, s, id=f"{n} with chaos") for n, s in CHAOS_SERVICES.items()),
    ],
)


def networks_of(name: str) -> set[str]:
    return set(SERVICES[name]["networks"])


def megabytes(limit: str) -> int:
    found = re.fullmatch(r"(\d+)([mg])", limit)
    assert found, f"{limit!r} is not written in m or g"
    return int(found[1]) * (1024 if found[2] == "g" else 1)


# --- hardening -----------------------------------------------------------------------------------


@each_variant
def test_service_runs_without_rights(name: str, service: dict[str, Any]) -> None:
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    forbidden = {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "userns_mode"}
    assert not forbidden & set(service)
    sockets = [volume for volume in service.get("volumes", []) if "sock" in str(volume)]
    # chaos.yml alone gives the engine's socket away: to one process, by the socket's group.
    is_given = name == "dashboard" and service is not SERVICES["dashboard"]
    assert sockets == (["${ENGINE_SOCKET:-/var/run/docker.sock}:/engine.sock"] if is_given else [])
    groups = service.get("group_add", [])
    assert len(groups) == is_given
    assert all(group.startswith("${ENGINE_SOCKET_GROUP:?") for group in groups)


@each_variant
def test_service_is_limited(name: str, service: dict[str, Any]) -> None:
    assert megabytes(service["mem_limit"]) <= 2048
    assert 0 < service["cpus"] <= 1.0, "more than one would be refused on a machine with one"
    assert 0 < service["pids_limit"] <= 512
    assert service["logging"]["options"]["max-size"]
    assert all("size=" in mount for mount in service["tmpfs"])


@each_variant
def test_service_ends_and_is_reaped(name: str, service: dict[str, Any]) -> None:
    assert service["init"] is True
    assert service["stop_grace_period"]
    assert service["restart"] in ("on-failure", "no")


@each_variant
def test_service_has_a_health_check_unless_it_is_run_by_hand(
    name: str, service: dict[str, Any]
) -> None:
    health = service["healthcheck"]
    if set(service.get("profiles", [])) & {"jobs", "tools"}:
        assert health == {"disable": True}
        return
    assert health["test"][0] == "CMD"
    assert "/opt/kafka2011/probe.py" in health["test"]
    assert {"interval", "timeout", "retries", "start_period"} <= set(health)


@each_variant
def test_only_the_dashboard_is_published_and_only_on_loopback(
    name: str, service: dict[str, Any]
) -> None:
    ports = service.get("ports", [])
    assert ports == (["127.0.0.1:${DASHBOARD_PORT:-8088}:8088"] if name == "dashboard" else [])


@each_variant
def test_image_is_one_that_is_built_here(name: str, service: dict[str, Any]) -> None:
    image = service["image"]
    found = re.fullmatch(r"kafka2011/([a-z]+):\$\{KAFKA2011_VERSION:-dev\}", image)
    assert found, image
    assert service["pull_policy"] == "never"
    assert re.search(
        rf"^image {found[1]} ", (ROOT / "deploy/tools/images.sh").read_text(encoding="utf-8"), re.M
    )


def test_the_default_profile_fits_its_memory() -> None:
    total = sum(megabytes(service["mem_limit"]) for service in DEFAULT.values())
    assert total <= MEMORY_MB_MAX, f"{total} MB"


def test_nothing_is_called_latest() -> None:
    for path in [ROOT / "docker-compose.yml", *DOCKERFILES, ROOT / "deploy/tools/images.sh"]:
        assert "latest" not in path.read_text(encoding="utf-8"), path


# --- both Compose generations, both builders -----------------------------------------------------


def test_no_word_that_either_compose_generation_refuses() -> None:
    # docker-compose 1.29 refuses `name`; Compose v2 warns of `version`.
    assert set(COMPOSE) - {"services", "networks", "volumes"} == {
        key for key in COMPOSE if key.startswith("x-")
    }
    for name, service in SERVICES.items():
        assert "deploy" not in service, name
        assert "start_interval" not in service["healthcheck"], name
        # A condition would make 1.29 give up for good when a slow machine misses a deadline.
        assert isinstance(service.get("depends_on", []), list), name
        for volume in service.get("volumes", []):
            assert len(volume.partition(":")[0]) > 1, "2.26 takes one letter for a Windows drive"


def test_a_service_never_waits_for_one_of_a_profile() -> None:
    for name, service in DEFAULT.items():
        assert set(service.get("depends_on", [])) <= set(DEFAULT), name


def test_every_variable_is_in_the_env_file_with_its_default() -> None:
    env = (ROOT / ".env").read_text(encoding="utf-8")
    named = dict(re.findall(r"^#?([A-Z0-9_]+)=(.*)$", env, re.M))
    used = dict(re.findall(r"\$\{([A-Z0-9_]+):-([^}]*)\}", TEXT))
    assert not re.findall(r"\$\{[A-Z0-9_]+\}", TEXT), "every variable has a default"
    assert {name: named.get(name) for name in used} == used
    assert set(named) - set(used) == {"COMPOSE_PROJECT_NAME"}
    assert re.findall(r"^[^#\n].*", env, re.M) == ["COMPOSE_PROJECT_NAME=kafka2011"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_needs_no_buildkit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for word in (r"RUN --", r"COPY --(chmod|link|parents)", r"<<", r"^# *syntax="):
        assert not re.search(word, text, re.M), word


@pytest.mark.parametrize("image", ["app", "haproxy", "prometheus"])
def test_image_that_runs_names_its_user(image: str) -> None:
    text = (ROOT / "deploy/docker" / f"{image}.Dockerfile").read_text(encoding="utf-8")
    assert "USER kafka2011" in text.rpartition("\nFROM ")[2]


# --- topology ------------------------------------------------------------------------------------


def test_the_topology_is_that_of_the_architecture() -> None:
    kinds = {
        "zookeeper": ["zookeeper-live", "zookeeper-offline"],
        "broker": ["broker-1", "broker-2", "broker-3", "broker-11", "broker-12"],
        "proxy": ["wan-link"],
        "frontend": ["frontend-1", "frontend-2"],
        "online-consumer": ["online-1", "online-2"],
        "mirror": ["mirror-1", "mirror-2"],
        "audit": ["audit"],
        "registry": ["registry"],
        "dashboard": ["dashboard"],
    }
    for kind, names in kinds.items():
        for name in names:
            assert DEFAULT[name]["command"][0] == kind, name
    others = {"balancer", "spark-master", "spark-worker-1", "spark-worker-2", "loader"}
    assert set(DEFAULT) == others | {name for names in kinds.values() for name in names}


def test_the_datacenters_are_apart() -> None:
    networks = COMPOSE["networks"]
    assert {name for name, options in networks.items() if not options.get("internal")} == {"shared"}
    for name in SERVICES:
        both = {"live", "offline"} <= networks_of(name)
        assert both == (name in SHARED), name
    assert networks_of("mirror-1") == networks_of("mirror-2") == {"wan", "offline", "shared"}
    assert networks_of("wan-link") == {"live", "wan"}
    assert {name for name in SERVICES if "wan" in networks_of(name)} == {
        "wan-link",
        "mirror-1",
        "mirror-2",
    }


def test_the_wan_link_answers_under_the_names_of_the_live_datacenter() -> None:
    brokers = [name for name in SERVICES if re.fullmatch(r"broker-\d", name)]
    aliases = SERVICES["wan-link"]["networks"]["wan"]["aliases"]
    assert set(aliases) == {"zookeeper-live", *brokers}
    routes = SERVICES["wan-link"]["environment"]["KAFKA2011_PROXY_ROUTES"]
    for name in brokers:
        port = SERVICES[name]["environment"]["KAFKA2011_PORT"]
        # By the alias that only the live network has: the plain name would lead back to the link.
        assert f"0.0.0.0:{port}>live-{name}:{port}" in routes
        assert SERVICES[name]["networks"]["live"]["aliases"] == [f"live-{name}"]


def test_three_zookeepers_are_the_ones_that_everybody_is_told() -> None:
    lines = (ROOT / "deploy/docker/ha.env").read_text(encoding="utf-8").splitlines()
    told = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert told.pop("COMPOSE_PROFILES") == "ha"
    used = set(re.findall(r"\$\{([A-Z0-9_]+):-", TEXT))
    assert set(told) <= used, "variables that nothing reads"
    for datacenter in ("live", "offline"):
        first = f"zookeeper-{datacenter}"
        names = [first, f"{first}-2", f"{first}-3"]
        assert told[f"ZK_{datacenter.upper()}"] == ",".join(f"{name}:2181" for name in names)
        members = enumerate(names, 1)
        ensemble = ",".join(f"{number}={name}:2888:3888" for number, name in members)
        assert told[f"ZK_{datacenter.upper()}_ENSEMBLE"] == ensemble
        for number, name in enumerate(names, 1):
            environment = SERVICES[name]["environment"]
            assert environment["KAFKA2011_ZK_SERVER_ID"] == number
            assert f"ZK_{datacenter.upper()}_ENSEMBLE" in environment["KAFKA2011_ZK_ENSEMBLE"]
            assert networks_of(name) == {datacenter}
    aliases = {
        alias
        for name in ("zookeeper-live", "zookeeper-live-2", "zookeeper-live-3")
        for alias in SERVICES[name]["networks"]["live"]["aliases"]
    }
    assert {place.partition(":")[0] for place in told["WAN_ZOOKEEPERS"].split("|")} == aliases


def test_the_second_live_datacenter_is_like_the_first_and_apart_from_it() -> None:
    """The same broker ids behind the same direct names, in networks of its own."""
    west = {name for name in SERVICES if name.startswith("west-")}
    assert {name for name, s in SERVICES.items() if "two-live" in s.get("profiles", [])} == west
    for number in (1, 2, 3):
        first, second = SERVICES[f"broker-{number}"], SERVICES[f"west-broker-{number}"]
        assert second["networks"]["west"] == first["networks"]["live"]
        for key in ("KAFKA2011_BROKERID", "KAFKA2011_PORT", "KAFKA2011_NUM_PARTITIONS"):
            assert second["environment"][key] == first["environment"][key]
    for name in west:
        assert not {"live", "wan"} & networks_of(name), name
        assert set(SERVICES[name].get("depends_on", [])) <= west | set(DEFAULT), name
    assert networks_of("west-mirror-1") == {"wan-west", "offline", "shared"}
    link = SERVICES["west-wan-link"]
    assert networks_of("west-wan-link") == {"west", "wan-west"}
    aliases = SERVICES["wan-link"]["networks"]["wan"]["aliases"]
    assert len(link["networks"]["wan-west"]["aliases"]) == len(aliases)
    # Every server belongs to exactly one audit.
    rules = [SERVICES[name]["environment"] for name in ("audit", "west-audit")]
    assert rules[0]["KAFKA2011_AUDIT_SERVERS_BLACKLIST"] == "west-.*"
    assert rules[1]["KAFKA2011_AUDIT_SERVERS_WHITELIST"] == "west-.*"
    for name, service in SERVICES.items():
        server = service.get("environment", {}).get("KAFKA2011_FRONTEND_SERVER")
        assert server in (None, name)


def test_with_chaos_messages_can_be_lost_before_the_balancer() -> None:
    link = CHAOS_SERVICES["frontend-link"]
    assert set(CHAOS) - set(SERVICES) == {"frontend-link"}
    assert link["hostname"] == "frontend-link"
    assert link["environment"]["KAFKA2011_PROCESS_NAME"] == link["hostname"]
    assert link["environment"]["KAFKA2011_METRICS_PORT"] == 8080
    route = link["environment"]["KAFKA2011_PROXY_ROUTES"]
    assert route == "balancer=0.0.0.0:9092>balancer:9092", "one route: a balancer to the page"
    for name in ("frontend-1", "frontend-2"):
        told = CHAOS_SERVICES[name]["environment"] | {"KAFKA2011_BROKER_LIST": None}
        assert told == SERVICES[name]["environment"] | {"KAFKA2011_BROKER_LIST": None}
        assert CHAOS_SERVICES[name]["environment"]["KAFKA2011_BROKER_LIST"].endswith(
            ":frontend-link:9092"
        )
    for text in (value for s in CHAOS.values() for value in str(s.get("environment")).split("'")):
        assert not re.search(r"\$\{(?!COMPOSE_PROJECT_NAME)[A-Z0-9_]+\}", text), text


def test_a_second_job_finds_room_on_the_spark_cluster() -> None:
    """Beside the load job, which never ends: else `make report` would wait for it for ever."""
    text = (ROOT / "deploy/docker/spark/spark-defaults.conf").read_text(encoding="utf-8")
    conf = dict(line.split(maxsplit=1) for line in text.splitlines() if line[:1] not in "#")
    workers = [name for name in DEFAULT if name.startswith("spark-worker-")]
    executors = int(conf["spark.cores.max"]) // int(conf["spark.executor.cores"])
    for name in workers:
        words = SERVICES[name]["command"]
        cores, memory = (words[words.index(word) + 1] for word in ("--cores", "--memory"))
        each = -(-executors // len(workers))  # Spark spreads a job's executors over the workers
        assert int(cores) >= 2 * each * int(conf["spark.executor.cores"])
        assert megabytes(memory) >= 2 * each * megabytes(conf["spark.executor.memory"])
        assert megabytes(memory) < megabytes(SERVICES[name]["mem_limit"])


def test_what_is_scheduled_can_be_read_and_leaves_its_logs_where_the_history_looks() -> None:
    text = (ROOT / "deploy/docker/schedule").read_text(encoding="utf-8")
    assert {job.command[0] for job in parse_schedule(text, SCHEDULABLE)} == {"report", "reports"}
    for name in ("report", "schedule", "spark-history"):
        assert "spark-events:/data" in SERVICES[name]["volumes"], name
    for name in ("report", "schedule"):
        assert SERVICES[name]["environment"]["KAFKA2011_SPARK_EVENT_LOG_DIR"] == "/data"
    command = SERVICES["spark-history"]["command"]
    assert command[command.index("--dir") + 1] == "/data"
    # The two read the same table in the same way, so a report does not depend on who started it.
    own = {"KAFKA2011_PROCESS_NAME", *COMPOSE["x-offline"], *COMPOSE["x-settings"]}
    assert {k: v for k, v in SERVICES["schedule"]["environment"].items() if k not in own} == (
        SERVICES["report"]["environment"]
    )


def test_what_sends_messages_starts_last() -> None:
    last = {name for name, s in SERVICES.items() if s.get("labels") == {"kafka2011.start": "last"}}
    assert last == {n for n, s in SERVICES.items() if (s.get("command") or [""])[0] == "frontend"}


def test_one_frontend_alone_sends_the_access_log() -> None:
    """Two would send every line twice, and where it is not mounted there is nothing to send."""
    senders = [n for n, s in SERVICES.items() if (s.get("command") or [""])[0] == "frontend"]
    assert senders[0] == FRONTENDS[0]  # `make demo-docker INPUT=` starts this one
    for name in senders:
        is_first = name == FRONTENDS[0]
        source = SERVICES[name]["environment"]["KAFKA2011_SOURCE"]
        assert source == ("${FRONTEND_SOURCE:-synthetic}" if is_first else "synthetic"), name
        assert ("KAFKA2011_INPUT_PATH" in SERVICES[name]["environment"]) == is_first, name
        assert ("/input" in str(SERVICES[name]["volumes"])) == is_first, name


def test_every_broker_has_its_own_port_and_published_name() -> None:
    brokers = {name: s["environment"] for name, s in SERVICES.items() if name.startswith("broker-")}
    assert len({environment["KAFKA2011_PORT"] for environment in brokers.values()}) == len(brokers)
    for name, environment in brokers.items():
        assert environment["KAFKA2011_HOSTNAME"] == name
        assert environment["KAFKA2011_BROKERID"] == int(name.removeprefix("broker-"))


@each_service
def test_service_knows_its_own_name(name: str) -> None:
    service = SERVICES[name]
    assert service["hostname"] == name
    environment = service.get("environment", {})
    if "KAFKA2011_PROCESS_NAME" in environment:
        assert environment["KAFKA2011_PROCESS_NAME"] == name
        assert environment["KAFKA2011_METRICS_PORT"] == 8080


def test_the_balancer_has_every_live_broker_and_closes_no_idle_connection() -> None:
    text = (ROOT / "deploy/docker/haproxy.cfg").read_text(encoding="utf-8")
    for name in ("broker-1", "broker-2", "broker-3"):
        port = SERVICES[name]["environment"]["KAFKA2011_PORT"]
        assert re.search(rf"^ +server {name} live-{name}:{port}$", text, re.M)
    assert re.search(r"timeout client 24d\n +timeout server 24d", text)
    assert "option clitcpka" in text


def test_prometheus_scrapes_every_process() -> None:
    config = yaml.safe_load((ROOT / "deploy/docker/prometheus.yml").read_text(encoding="utf-8"))
    targets = {
        target
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    serving = {
        f"{name}:8080"
        for name, service in DEFAULT.items()
        if "KAFKA2011_METRICS_PORT" in service.get("environment", {}) or name == "balancer"
    }
    assert targets == serving


# --- the same processes as the embedded deployment -----------------------------------------------

SIZES = {"live_brokers": 3, "offline_brokers": 2, "mirrors": 2, "frontends": 2}


def embedded(**settings: object) -> dict[str, ProcessSpec]:
    ports = count(20_000)
    specs = plan(
        EmbeddedConfig(**SIZES, **settings),  # type: ignore[arg-type]
        Path("/data"),
        lambda: next(ports),
    )
    return {spec.name: spec for spec in specs}


def words_after_the_interpreter(command: tuple[str, ...]) -> list[str]:
    """`-m kafka2011 broker` -> broker; `bin/spark-submit dir/load.py` -> spark-submit load.py."""
    words = list(command)
    if words[1:3] == ["-m", "kafka2011"]:
        return words[3:]
    return [Path(words[0]).name, Path(words[1]).name, *words[2:]]


def test_containers_start_the_entry_points_of_the_embedded_deployment() -> None:
    for name, spec in embedded().items():
        if name == "balancer":  # HAProxy in containers
            continue
        service = SERVICES[name]
        words = [*service.get("entrypoint", []), *service["command"]]
        wanted = words_after_the_interpreter(spec.command)
        assert [Path(word).name for word in words] == wanted, name


def test_containers_set_the_variables_of_the_embedded_deployment() -> None:
    synthetic, from_log = embedded(), embedded(input_path="access.log")
    for name, spec in synthetic.items():
        wanted = set(spec.environment)
        if name == "frontend-1":  # one set of variables serves both sources here
            wanted |= set(from_log["frontend-1"].environment)
        in_containers = "wan-link" if name == "balancer" else name  # where the proxy stands there
        found = set(SERVICES[in_containers]["environment"]) - {"HOME"}
        assert found - CONTAINERS_ONLY == wanted - CONTAINERS_ONLY, name


CONFIGS: dict[str, type[ProcessConfig]] = {
    "zookeeper": ZooKeeperConfig,
    "broker": BrokerConfig,
    "frontend": FrontendConfig,
    "online-consumer": OnlineConsumerConfig,
    "mirror": MirrorConfig,
    "proxy": ProxyConfig,
    "audit": AuditConfig,
    "registry": SchemaRegistryConfig,
    "dashboard": DashboardConfig,
    "/opt/kafka2011/spark-jobs/load.py": WarehouseConfig,
    "/opt/kafka2011/spark-jobs/report.py": WarehouseConfig,
    "schedule": ScheduleConfig,
}
NOT_OURS = {"balancer", "west-balancer", "prometheus", "shell", "chaos"}
NOT_OURS |= {"spark-master", "spark-worker-1", "spark-worker-2", "spark-history"}


EVERY = SERVICES | CHAOS_SERVICES
HA = (ROOT / "deploy/docker/ha.env").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("lines", [pytest.param([], id="default"), pytest.param(HA, id="ha")])
@pytest.mark.parametrize("name", sorted(set(EVERY) - NOT_OURS))
def test_every_process_accepts_its_variables(name: str, lines: list[str]) -> None:
    """As the process itself reads them: a bad value would only show when a profile is used."""
    service = EVERY[name]
    told = dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def value_of(variable: re.Match[str]) -> str:
        return told.get(variable[1], variable[2])

    environment = {
        key: re.sub(r"\$\{([A-Z0-9_]+):-([^}]*)\}", value_of, str(value))
        for key, value in service["environment"].items()
    }
    environment = {k: v.replace("${COMPOSE_PROJECT_NAME}", "x") for k, v in environment.items()}
    load(CONFIGS[service["command"][0]], environment=environment, known_elsewhere=known_names())


def test_services_of_one_kind_differ_only_by_name_and_place() -> None:
    own = {"PROCESS_NAME", "BROKERID", "HOSTNAME", "PORT", "ZK_CONNECT", "DATACENTER"}
    own |= {"FRONTEND_SERVER", "SEED", "ZK_ENSEMBLE", "ZK_SERVER_ID"}
    own |= {
        "SOURCE",
        "INPUT_PATH",
        "RATE",
        "LIVE_ZK_CONNECT",
    }  # of one frontend, of `load`, of west
    for first, *others in (
        ("broker-1", "broker-2", "broker-3", "broker-11", "broker-12"),
        ("frontend-2", "frontend-1", "load", "west-frontend-1"),
        ("online-1", "online-2"),
        ("mirror-1", "mirror-2"),
        ("broker-1", "west-broker-1", "west-broker-2", "west-broker-3"),
        ("zookeeper-live", "zookeeper-live-2", "zookeeper-live-3", "zookeeper-offline"),
        ("zookeeper-offline", "zookeeper-offline-2", "zookeeper-offline-3"),
    ):
        for other in others:
            one, two = SERVICES[first]["environment"], SERVICES[other]["environment"]
            differing = {key for key in one | two if one.get(key) != two.get(key)}
            assert differing <= {f"KAFKA2011_{name}" for name in own}, other
