"""The Compose files, the Dockerfiles and the embedded deployment against each other.

Hardening, limits, health checks, networks, keys that one of the two Compose generations refuses,
and that containers and local processes start the same entry points with the same variables.
"""

import re
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka2011.broker.config import BrokerConfig
from kafka2011.cli.schedule import SCHEDULABLE
from kafka2011.runtime.config import load
from kafka2011.runtime.process_settings import config_classes, known_names
from kafka2011.services.containers.demo import FRONTENDS
from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.embedded.topology import ProcessSpec, plan
from kafka2011.services.proxy.route import CHECK_REQUEST
from kafka2011.services.warehouse.schedule.timetable import parse_schedule
from tests import ROOT
from tests.unit import text_of

TEXT = text_of("docker-compose.yml")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DEFAULT = {name: service for name, service in SERVICES.items() if "profiles" not in service}
# make up CHAOS=on: deploy/docker/chaos.yml over docker-compose.yml.
CHAOS: dict[str, dict[str, Any]] = yaml.safe_load(text_of("deploy/docker/chaos.yml"))["services"]
# make up REPLICAS=3: the same of deploy/docker/replicated.yml.
REPLICATED: dict[str, dict[str, Any]] = yaml.safe_load(text_of("deploy/docker/replicated.yml"))[
    "services"
]
DOCKERFILES = sorted((ROOT / "deploy/docker").glob("*Dockerfile"))
IMAGES = text_of("deploy/tools/images.sh")
PREFLIGHT = text_of("deploy/tools/preflight.sh")
HAPROXY = text_of("deploy/docker/haproxy.cfg")
HA = dict(re.findall(r"^([A-Z_]+)=(.*)$", text_of("deploy/docker/ha.env"), re.M))
STORE = dict(re.findall(r"^([A-Z_]+)=(.*)$", text_of("deploy/docker/object-store.env"), re.M))
# The services that build the images, each the first of its image.
BUILDERS = [name for name, service in SERVICES.items() if "build" in service]
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+):-([^}]*)\}")

# What every container has, word for word.
EVERYWHERE = {
    "user": "10001:10001",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "init": True,
    "pull_policy": "never",
}
RIGHTS = {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "userns_mode"}
# Variables that only a container needs.
CONTAINERS_ONLY = [
    # All interfaces, other hosts in a page's address, Spark as a cluster.
    *("BIND_ADDRESS", "ZK_BIND_ADDRESS", "DASHBOARD_BIND", "REGISTRY_BIND"),
    *("LOG_FORMAT", "SPARK_MASTER"),
    # Faults of local processes go through a directory, of containers through chaos.yml.
    "DASHBOARD_CHAOS_DIR",
    # After a `docker kill` there is no list of restarts; and there may be a second datacenter.
    *("AUDIT_REDELIVERY_EXPECTED", "AUDIT_SERVERS_BLACKLIST", "LIVE_MORE_ZK_CONNECT"),
    # A process may be started before what it needs, so it waits; profile `ha`.
    *("ZK_CONNECTIONTIMEOUT_MS", "ZK_START_TIMEOUT_MS", "ZK_ENSEMBLE", "ZK_SERVER_ID"),
    # Each has its own limit of memory.
    *("BUFFERED_REQUEST_BYTES_MAX", "MIRROR_PARTITION_BYTES_MAX"),
    # Twice the processes on the same two cores, so each polls less often.
    *("FETCHER_BACKOFF_MS", "AUDIT_POLL_MS"),
]

# What a client of an object store takes from its environment.
AWS = {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One service of two files as Compose merges them: mappings by key, lists behind each other."""
    service = base | over
    for key in base.keys() & over.keys():
        if isinstance(over[key], dict):
            service[key] = base[key] | over[key]
        elif isinstance(over[key], list):
            service[key] = base[key] + over[key]
    return service


CHAOS_SERVICES = {name: merged(SERVICES.get(name, {}), over) for name, over in CHAOS.items()}
REPLICATED_SERVICES = {n: merged(SERVICES.get(n, {}), over) for n, over in REPLICATED.items()}
REPLICAS = sorted(set(REPLICATED) - set(SERVICES))
EVERY = SERVICES | CHAOS_SERVICES | {name: REPLICATED_SERVICES[name] for name in REPLICAS}
# Each service of docker-compose.yml, and each as chaos.yml and replicated.yml change it.
each_variant = pytest.mark.parametrize(
    ("name", "service"),
    [
        *(pytest.param(name, service, id=name) for name, service in SERVICES.items()),
        *(pytest.param(n, s, id=f"{n} with chaos") for n, s in CHAOS_SERVICES.items()),
        *(pytest.param(n, s, id=f"{n} replicated") for n, s in REPLICATED_SERVICES.items()),
    ],
)


def environment_of(name: str) -> dict[str, Any]:
    return dict(SERVICES[name].get("environment", {}))


def networks_of(name: str) -> set[str]:
    return set(SERVICES[name]["networks"])


def members_of(network: str) -> set[str]:
    return {name for name in SERVICES if network in networks_of(name)}


def running(command: str) -> list[str]:
    return [n for n, s in SERVICES.items() if (s.get("command") or [""])[0] == command]


def embedded(**settings: Any) -> dict[str, ProcessSpec]:
    ports = count(20_000)
    sizes = {"live_brokers": 3, "offline_brokers": 2, "mirrors": 2, "frontends": 2}
    specs = plan(EmbeddedConfig(**sizes, **settings), Path("/data"), lambda _offset: next(ports))
    return {spec.name: spec for spec in specs}


def megabytes(limit: str) -> int:
    found = re.fullmatch(r"(\d+)([mg])", limit)
    assert found, f"{limit!r} is not written in m or g"
    return int(found[1]) * (1024 if found[2] == "g" else 1)


# --- each container ------------------------------------------------------------------------------


@each_variant
def test_service_is_hardened_and_limited(name: str, service: dict[str, Any]) -> None:
    assert {key: service[key] for key in EVERYWHERE} == EVERYWHERE
    assert not RIGHTS & set(service)
    assert megabytes(service["mem_limit"]) <= 2048
    assert 0 < service["cpus"] <= 1.0, "more than one would be refused on a machine with one"
    assert 0 < service["pids_limit"] <= 512
    assert service["logging"]["options"]["max-size"]
    assert all("size=" in mount for mount in service["tmpfs"])
    assert service["stop_grace_period"]
    assert service["restart"] in ("on-failure", "no")


@each_variant
def test_only_the_dashboard_is_published_and_only_with_chaos_has_the_engines_socket(
    name: str, service: dict[str, Any]
) -> None:
    ports = service.get("ports", [])
    assert ports == (["127.0.0.1:${DASHBOARD_PORT:-8088}:8088"] if name == "dashboard" else [])
    sockets = [volume for volume in service.get("volumes", []) if "sock" in str(volume)]
    groups = service.get("group_add", [])
    is_given = name == "dashboard" and service is not SERVICES["dashboard"]
    assert sockets == (["${ENGINE_SOCKET:-/var/run/docker.sock}:/engine.sock"] if is_given else [])
    assert len(groups) == is_given
    assert all(group.startswith("${ENGINE_SOCKET_GROUP:?") for group in groups)


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


def test_the_shell_has_memory_for_spark_and_the_settings_of_the_others() -> None:
    """The system ended the JVM, and `sql` said that it needs another Java."""
    shell, loader = EVERY["shell"], EVERY["loader"]["environment"]
    assert megabytes(shell["mem_limit"]) >= megabytes(EVERY["related-items"]["mem_limit"])
    for name in (
        "EVENT_FORMS",
        "EVENT_TIME_FIELD",
        "EVENT_SERVER_FIELD",
        "SCHEMA_REGISTRY_URL",
        "AUDIT_WINDOW_MS",
    ):
        assert shell["environment"][f"KAFKA2011_{name}"] == loader[f"KAFKA2011_{name}"]


@each_variant
def test_service_runs_an_image_that_is_built_here_under_its_own_name(
    name: str, service: dict[str, Any]
) -> None:
    # No registry has names that begin with localhost/: no stranger's image can be pulled for it.
    assert re.fullmatch(
        r"localhost/kafka2011/[a-z]+:\$\{KAFKA2011_VERSION:-dev\}", service["image"]
    )
    assert service["image"] in {SERVICES[builder]["image"] for builder in BUILDERS}
    environment = service.get("environment", {})
    assert service["hostname"] == name
    for variable in ("PROCESS_NAME", "FRONTEND_SERVER"):
        assert environment.get(f"KAFKA2011_{variable}", name) == name
    if "KAFKA2011_PROCESS_NAME" in environment:
        assert environment["KAFKA2011_METRICS_PORT"] == 8080


@each_variant
def test_no_key_that_either_compose_generation_refuses(name: str, service: dict[str, Any]) -> None:
    assert "deploy" not in service
    assert "start_interval" not in service["healthcheck"]
    # At the first `unhealthy` 1.29 gives up for good: only what must wait has conditions, and long.
    has_conditions = isinstance(service.get("depends_on", []), dict)
    assert has_conditions == (service.get("command") == ["frontend"])
    assert service["healthcheck"].get("start_period", "900s") == "900s"
    for volume in service.get("volumes", []):
        assert len(volume.partition(":")[0]) > 1, "2.26 takes one letter for a Windows drive"


# --- the files -----------------------------------------------------------------------------------


def test_a_broker_fits_its_memory() -> None:
    """The process, every buffer, the largest request above them, and sets that are being checked:
    unpacked piece by piece, then as one."""
    process_mb = 50
    other = BrokerConfig(broker_id=1, log_dir=Path("logs"), enable_zookeeper=False)
    for name in running("broker"):
        service = SERVICES[name]
        buffers = service["environment"]["KAFKA2011_BUFFERED_REQUEST_BYTES_MAX"]
        needed = buffers + other.request_bytes_max + 2 * other.decompressed_bytes_max
        assert process_mb + needed / 2**20 <= megabytes(service["mem_limit"])


def test_one_mirror_has_memory_for_every_partition() -> None:
    """Six of each topic: page views, searches, the audit's, and one more."""
    for name in running("mirror"):
        service = SERVICES[name]
        partition = service["environment"]["KAFKA2011_MIRROR_PARTITION_BYTES_MAX"]
        assert 4 * 6 * partition / 2**20 <= megabytes(service["mem_limit"]) / 3


def test_the_preflight_asks_for_the_memory_of_the_default_profile() -> None:
    total = sum(megabytes(service["mem_limit"]) for service in DEFAULT.values())
    assert re.findall(r"^MEMORY_MIB_MIN=(\d+)", PREFLIGHT, re.M) == [str(total)]
    assert total == 6.25 * 1024, "docs/containers.md names it"


def test_no_image_is_called_latest() -> None:
    for text in (TEXT, IMAGES, *(text_of(path) for path in DOCKERFILES)):
        assert "latest" not in text


def test_the_file_has_no_name_and_no_version() -> None:
    # docker-compose 1.29 refuses `name`; Compose v2 warns of `version`.
    keys = {key for key in COMPOSE if not key.startswith("x-")}
    assert keys == {"services", "networks", "volumes"}


def test_every_variable_is_in_the_env_file_with_its_default() -> None:
    env = text_of(".env")
    named = dict(re.findall(r"^#?([A-Z0-9_]+)=(.*)$", env, re.M))
    used = dict(VARIABLE.findall(TEXT))
    assert not re.findall(r"\$\{[A-Z0-9_]+\}", TEXT), "every variable has a default"
    assert {name: named.get(name) for name in used} == used
    assert set(named) - set(used) == {"COMPOSE_PROJECT_NAME"}
    # The one line that both generations of Compose must find.
    assert re.findall(r"^[^#\n].*", env, re.M) == ["COMPOSE_PROJECT_NAME=kafka2011"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_needs_no_buildkit(path: Path) -> None:
    text = text_of(path)
    for word in (r"RUN --", r"COPY --(chmod|link|parents)", r"<<", r"^# *syntax="):
        assert not re.search(word, text, re.M), word


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_is_of_one_base_and_its_image_names_its_user(path: Path) -> None:
    text = text_of(path)
    assert re.search(r"^ARG [A-Z]+_IMAGE=debian:trixie-slim\n+FROM \$\{[A-Z]+_IMAGE\}", text, re.M)
    assert path.name == "base.Dockerfile" or "\nUSER " in text.rpartition("\nFROM ")[2]


def test_each_image_is_built_before_another_service_needs_it() -> None:
    """docker-compose 1.29 builds or looks for the images one after the other: of services that
    depend on nothing but earlier ones, in the order of the file."""
    names = list(SERVICES)
    images = [SERVICES[name]["image"] for name in BUILDERS]
    assert len(set(images)) == len(images), "built once"
    for name in BUILDERS:
        service = SERVICES[name]
        same = [n for n in names if SERVICES[n]["image"] == service["image"]]
        assert same[0] == name
        before = names[: names.index(name)]
        assert set(service.get("depends_on", [])) <= set(before), name
        built = service["build"]
        assert (ROOT / built["context"] / built["dockerfile"]) in DOCKERFILES
        assert built["args"]["BASE_IMAGE"] == "${BASE_IMAGE:-debian:trixie-slim}"


# --- topology ------------------------------------------------------------------------------------


def test_the_default_profile_is_the_embedded_deployment_with_a_link_and_a_spark_cluster() -> None:
    more = {"wan-link", "spark-master", "spark-worker-1", "spark-worker-2"}
    assert set(DEFAULT) == set(embedded()) | more
    for name, service in DEFAULT.items():
        assert set(service.get("depends_on", [])) <= set(DEFAULT), name


def test_the_datacenters_are_apart() -> None:
    options = COMPOSE["networks"]
    assert {name for name in options if not options[name].get("internal")} == {"shared"}
    both = {"audit", "registry", "dashboard", "shell", "prometheus"}
    assert members_of("live") & members_of("offline") == both
    assert members_of("wan") == {"wan-link", "mirror-1", "mirror-2"}
    assert members_of("wan-west") == {"west-wan-link", "west-mirror-1"}
    for name in ("mirror-1", "mirror-2"):
        assert networks_of(name) == {"wan", "offline", "shared"}
    assert networks_of("wan-link") == {"live", "wan"}


def test_the_wan_link_answers_under_the_names_of_the_live_datacenter() -> None:
    brokers = [name for name in SERVICES if re.fullmatch(r"broker-\d", name)]
    aliases = SERVICES["wan-link"]["networks"]["wan"]["aliases"]
    assert set(aliases) == {"zookeeper-live", *brokers}
    for name in brokers:
        port = environment_of(name)["KAFKA2011_PORT"]
        # By the alias that only the live network has: the plain name would lead back to the link.
        route = f"0.0.0.0:{port}>live-{name}:{port}"
        assert route in environment_of("wan-link")["KAFKA2011_PROXY_ROUTES"]
        assert SERVICES[name]["networks"]["live"]["aliases"] == [f"live-{name}"]
        assert re.search(rf"^ +server-template {name}- 3 live-{name}:{port}$", HAPROXY, re.M)


def test_the_balancer_checks_as_the_embedded_one() -> None:
    assert f"tcp-check send-binary {CHECK_REQUEST.hex()}\n" in HAPROXY


def test_the_balancer_closes_no_idle_connection() -> None:
    assert re.search(r"timeout client 24d\n +timeout server 24d", HAPROXY)
    assert "option clitcpka" in HAPROXY


@pytest.mark.parametrize("datacenter", ["live", "offline"])
def test_ha_names_the_three_zookeepers_of_a_datacenter(datacenter: str) -> None:
    names = [f"zookeeper-{datacenter}{suffix}" for suffix in ("", "-2", "-3")]
    variable = f"ZK_{datacenter.upper()}"
    assert HA[variable] == ",".join(f"{name}:2181" for name in names)
    members = enumerate(names, 1)
    assert HA[f"{variable}_ENSEMBLE"] == ",".join(f"{n}={name}:2888:3888" for n, name in members)
    for number, name in enumerate(names, 1):
        assert environment_of(name)["KAFKA2011_ZK_SERVER_ID"] == number
        assert f"{variable}_ENSEMBLE" in environment_of(name)["KAFKA2011_ZK_ENSEMBLE"]
        assert networks_of(name) == {datacenter}
    if datacenter == "live":
        aliases = {a for name in names for a in SERVICES[name]["networks"]["live"]["aliases"]}
        assert {one.partition(":")[0] for one in HA["WAN_ZOOKEEPERS"].split("|")} == aliases


def test_every_variable_of_ha_is_used() -> None:
    assert HA["COMPOSE_PROFILES"] == "ha"
    assert set(HA) - {"COMPOSE_PROFILES"} <= set(dict(VARIABLE.findall(TEXT)))


def test_with_the_object_store_every_reader_and_writer_of_tables_reaches_it() -> None:
    """By the same variables; and nothing else has the credentials."""
    assert STORE["COMPOSE_PROFILES"] == "object-store"
    assert set(STORE) - {"COMPOSE_PROFILES"} <= set(dict(VARIABLE.findall(TEXT)))
    assert STORE["STORE_URL"] == "http://object-store:9000"
    assert "9000" in SERVICES["object-store"]["healthcheck"]["test"]
    named = COMPOSE["x-warehouse"]
    assert named["KAFKA2011_WAREHOUSE_DIR"] == "${WAREHOUSE_DIR:-/warehouse}"
    assert set(named) - {"KAFKA2011_WAREHOUSE_DIR"} == AWS
    mounted = {name for name, service in SERVICES.items() if "warehouse:" in str(service)}
    having = {name for name in SERVICES if AWS & set(environment_of(name))}
    assert having == mounted | {"object-store"}
    for name in mounted:
        assert named.items() <= environment_of(name).items()
        assert "offline" in networks_of(name)
    own = environment_of("object-store")
    assert own == {key: named[key] for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}


def test_the_second_live_datacenter_is_like_the_first_and_apart_from_it() -> None:
    """The same broker ids behind the same direct names, in networks of its own."""
    west = {name for name in SERVICES if name.startswith("west-")}
    assert {name for name in SERVICES if "two-live" in SERVICES[name].get("profiles", [])} == west
    for number in (1, 2, 3):
        first, second = f"broker-{number}", f"west-broker-{number}"
        assert SERVICES[second]["networks"]["west"] == SERVICES[first]["networks"]["live"]
        for key in ("KAFKA2011_BROKERID", "KAFKA2011_PORT"):
            assert environment_of(second)[key] == environment_of(first)[key]
    for name in west:
        assert not {"live", "wan"} & networks_of(name), name
        assert set(SERVICES[name].get("depends_on", [])) <= west | set(DEFAULT), name
    assert networks_of("west-mirror-1") == {"wan-west", "offline", "shared"}
    assert networks_of("west-wan-link") == {"west", "wan-west"}
    first, second = SERVICES["wan-link"]["networks"], SERVICES["west-wan-link"]["networks"]
    assert len(second["wan-west"]["aliases"]) == len(first["wan"]["aliases"])
    # Every server belongs to exactly one audit.
    assert environment_of("audit")["KAFKA2011_AUDIT_SERVERS_BLACKLIST"] == "west-.*"
    assert environment_of("west-audit")["KAFKA2011_AUDIT_SERVERS_WHITELIST"] == "west-.*"


def test_a_replica_is_like_the_broker_whose_copy_it_is() -> None:
    assert [f"broker-{number}-{name}" for number in (1, 2, 3) for name in "bc"] == REPLICAS
    own = {"PROCESS_NAME", "HOSTNAME", "REPLICA_NAME"}
    for name in REPLICAS:
        broker = name[:-2]
        replica, first = REPLICATED_SERVICES[name], REPLICATED_SERVICES[broker]
        found = dict(replica["environment"])
        assert found["KAFKA2011_HOSTNAME"] == replica["hostname"]
        assert found["KAFKA2011_REPLICA_NAME"] == name[-1]
        differing = {
            k for k in found | first["environment"] if found.get(k) != first["environment"].get(k)
        }
        assert differing == {f"KAFKA2011_{key}" for key in own}
        assert replica["networks"] == first["networks"], "the same direct name"
        assert replica["volumes"] == [f"{name}:/data"]
        # Each key of the file's own, as the first has it from docker-compose.yml.
        rest = set(replica) - {"hostname", "environment", "volumes", "networks", "command"}
        assert {key: replica[key] for key in rest} == {key: first[key] for key in rest}
        assert replica["command"] == REPLICATED[broker]["command"]


def test_each_member_of_a_set_makes_it_and_is_a_broker() -> None:
    names = {
        REPLICATED_SERVICES[name]["environment"]["KAFKA2011_REPLICA_NAME"] for name in REPLICAS
    }
    for number in (1, 2, 3):
        first = REPLICATED[f"broker-{number}"]
        assert first["environment"] == {"KAFKA2011_REPLICA_NAME": "a"}
        (script,) = first["command"]
        assert set(re.findall(r"--member (\S+)", script)) == {"a"} | names
        assert script.endswith("; exec kafka2011 broker")


def test_what_sends_to_replicas_is_stopped_before_them() -> None:
    """With two of three gone nothing is confirmed."""
    for name, service in EVERY.items():
        if "broker-1" in service.get("depends_on", []):
            assert set(REPLICAS) <= set(REPLICATED[name]["depends_on"]), name
    assert REPLICATED["wan-link"]["networks"] == {"wan": {"aliases": REPLICAS}}


def test_with_chaos_messages_can_be_lost_before_the_balancer() -> None:
    link = CHAOS_SERVICES["frontend-link"]["environment"]
    assert set(CHAOS) - set(SERVICES) == {"frontend-link"}
    assert link["KAFKA2011_METRICS_PORT"] == 8080
    route = link["KAFKA2011_PROXY_ROUTES"]
    assert route == "balancer=0.0.0.0:9092>balancer:9092", "one route: a balancer to the page"
    for name in ("frontend-1", "frontend-2"):
        through = {"KAFKA2011_BROKER_LIST": "0:frontend-link:9092"}
        assert CHAOS_SERVICES[name]["environment"] == environment_of(name) | through
    for text in (value for s in CHAOS.values() for value in str(s.get("environment")).split("'")):
        assert not re.search(r"\$\{(?!COMPOSE_PROJECT_NAME)[A-Z0-9_]+\}", text), text


def test_a_second_job_finds_room_on_the_spark_cluster() -> None:
    """Beside the load job, which never ends: else `make report` would wait for it for ever."""
    lines = text_of("deploy/docker/spark/spark-defaults.conf").splitlines()
    conf = dict(line.split(maxsplit=1) for line in lines if line[:1] not in "#")
    workers = [name for name in DEFAULT if name.startswith("spark-worker-")]
    executors = int(conf["spark.cores.max"]) // int(conf["spark.executor.cores"])
    for name in workers:
        words = SERVICES[name]["command"]
        cores, memory = (words[words.index(word) + 1] for word in ("--cores", "--memory"))
        each = -(-executors // len(workers))  # Spark spreads a job's executors over the workers
        assert int(cores) >= 2 * each * int(conf["spark.executor.cores"])
        assert megabytes(memory) >= 2 * each * megabytes(conf["spark.executor.memory"])
        assert megabytes(memory) < megabytes(SERVICES[name]["mem_limit"])


def test_scheduled_jobs_can_be_read_and_leave_their_logs_to_the_history_server() -> None:
    jobs = parse_schedule(text_of("deploy/docker/schedule"), SCHEDULABLE)
    assert {job.command[0] for job in jobs} == {"report", "reports"}
    for name in ("report", "schedule", "spark-history"):
        assert "spark-events:/data" in SERVICES[name]["volumes"], name
    for name in ("report", "schedule"):
        assert environment_of(name)["KAFKA2011_SPARK_EVENT_LOG_DIR"] == "/data"
    command = SERVICES["spark-history"]["command"]
    assert command[command.index("--dir") + 1] == "/data"
    # Both read the same table in the same way, so a report is the same from either.
    own = {"KAFKA2011_PROCESS_NAME", *COMPOSE["x-offline"], *COMPOSE["x-settings"]}
    scheduled = {k: v for k, v in environment_of("schedule").items() if k not in own}
    assert scheduled == environment_of("report")


@pytest.mark.parametrize("name", running("frontend"))
def test_a_frontend_starts_when_all_that_it_sends_through_serves(name: str) -> None:
    """Before that it would send some messages twice. It is stopped before them, too."""
    west = "west-" if name.startswith("west-") else ""
    zookeeper = "west-zookeeper" if west else "zookeeper-live"
    needed = {zookeeper, f"{west}balancer", "registry", *(f"{west}broker-{n}" for n in (1, 2, 3))}
    assert SERVICES[name]["depends_on"] == {one: {"condition": "service_healthy"} for one in needed}
    if name in CHAOS_SERVICES:
        through = CHAOS[name]["depends_on"]
        assert through == {"frontend-link": {"condition": "service_healthy"}}


@pytest.mark.parametrize("name", running("frontend"))
def test_one_frontend_alone_sends_the_access_log(name: str) -> None:
    """Two would send every line twice, and where it is not mounted there is nothing to send."""
    is_first = name == FRONTENDS[0] == running("frontend")[0]  # `make demo-docker INPUT=`
    source = environment_of(name)["KAFKA2011_SOURCE"]
    assert source == ("${FRONTEND_SOURCE:-synthetic}" if is_first else "synthetic")
    assert ("KAFKA2011_INPUT_PATH" in environment_of(name)) == is_first
    assert ("/input" in str(SERVICES[name]["volumes"])) == is_first


# What each needs to end well, and is stopped after it: commits are written, a load is finished.
LIVE = {"zookeeper-live", "broker-1", "broker-2", "broker-3"}
OFFLINE = {"zookeeper-offline", "broker-11", "broker-12"}
SPARK = {"spark-master", "spark-worker-1", "spark-worker-2"}
ENDS_BEFORE = {
    "online-1": LIVE,
    "site": LIVE | {"registry"},
    "wan-link": LIVE,
    "balancer": LIVE - {"zookeeper-live"},
    "mirror-1": OFFLINE | {"wan-link"},
    "loader": OFFLINE | SPARK | {"registry"},
    "schedule": SPARK,
    "spark-worker-1": {"spark-master"},
    "broker-1": {"zookeeper-live"},
    "broker-11": {"zookeeper-offline"},
    "broker-12": {"zookeeper-offline"},
}


@pytest.mark.parametrize("name", ENDS_BEFORE)
def test_a_service_is_stopped_before_what_it_needs_to_end_well(name: str) -> None:
    for twin in (name, re.sub("-1$", "-2", name)):
        assert set(SERVICES[twin]["depends_on"]) == ENDS_BEFORE[name]


def test_every_broker_has_its_own_port_and_published_name() -> None:
    brokers = {name: environment_of(name) for name in SERVICES if name.startswith("broker-")}
    assert len({environment["KAFKA2011_PORT"] for environment in brokers.values()}) == len(brokers)
    for name, environment in brokers.items():
        assert environment["KAFKA2011_HOSTNAME"] == name
        assert environment["KAFKA2011_BROKERID"] == int(name.removeprefix("broker-"))


def serving(names: Iterable[str]) -> set[str]:
    """Those with a metrics port."""
    return {
        name for name in names if "KAFKA2011_METRICS_PORT" in EVERY[name].get("environment", {})
    }


def test_prometheus_scrapes_every_process() -> None:
    jobs = yaml.safe_load(text_of("deploy/docker/prometheus.yml"))["scrape_configs"]
    scraped = [name for job in jobs for each in job["static_configs"] for name in each["targets"]]
    assert sorted(scraped) == sorted(f"{name}:8080" for name in serving(DEFAULT) | {"balancer"})


def test_prometheus_scrapes_what_is_added_to_the_deployment() -> None:
    """Of a replica set the member that leads answers for all of it, and may be any. By name:
    without the set there is none, and nothing that is down."""
    (job,) = yaml.safe_load(text_of("deploy/docker/prometheus.yml"))["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert (found["type"], found["port"]) == ("A", 8080)
    added = serving(set(EVERY) - set(DEFAULT))
    assert sorted(found["names"]) == sorted(n for n in added if not n.startswith("west-"))
    datacenters = [rule for rule in job["relabel_configs"] if rule["target_label"] == "datacenter"]
    for name in found["names"]:
        wanted = EVERY[name]["environment"]["KAFKA2011_DATACENTER"]
        given = [r["replacement"] for r in datacenters if re.fullmatch(r["regex"], name)]
        assert given == [wanted], name


def test_prometheus_gives_what_the_alerts_and_boards_ask_for() -> None:
    """Another job's name, or no label `process`, and ProcessDown would never fire."""
    config = yaml.safe_load(text_of("deploy/docker/prometheus.yml"))
    alerts = text_of("deploy/ops/alerts.yml")
    assert config["rule_files"] == ["alerts.yml"]
    assert "ops/alerts.yml" in text_of("deploy/docker/prometheus.Dockerfile")
    (job,) = config["scrape_configs"]
    assert {found[1] for found in re.finditer(r'job="([^"]*)"', alerts)} == {job["job_name"]}
    relabel, by_name = (r for r in job["relabel_configs"] if r["target_label"] == "process")
    assert relabel["source_labels"] == ["__address__"]
    assert by_name["source_labels"] == ["__meta_dns_name"]
    named = re.fullmatch(relabel["regex"], "west-broker-1:8080")
    assert named is not None
    assert named[1] == "west-broker-1"


# --- the same processes as the embedded deployment -----------------------------------------------


# On a cluster spark-submit starts the same job (spark-jobs/load.py).
SUBMITTED = {("load",): ["spark-submit", "load.py"]}


@pytest.mark.parametrize("name", sorted(set(embedded()) - {"balancer"}))  # HAProxy in containers
def test_a_container_starts_the_entry_point_of_the_embedded_process(name: str) -> None:
    words = [*SERVICES[name].get("entrypoint", []), *SERVICES[name]["command"]]
    interpreter, *command = embedded()[name].command[1:]
    assert (interpreter, command.pop(0)) == ("-m", "kafka2011")
    assert [Path(word).name for word in words] == SUBMITTED.get(tuple(command), command)


@pytest.mark.parametrize("name", sorted(embedded()))
def test_a_container_sets_the_variables_of_the_embedded_process(name: str) -> None:
    wanted = set(embedded()[name].environment)
    if name == "frontend-1":  # one set of variables serves both sources here
        wanted |= set(embedded(input_path="access.log")[name].environment)
    in_containers = "wan-link" if name == "balancer" else name  # where the proxy stands there
    wanted.discard("KAFKA2011_PROXY_CHECK_INTERVAL_MS")  # HAProxy has it in its own words
    found = set(environment_of(in_containers)) - {"HOME", *AWS}
    assert found ^ wanted <= {f"KAFKA2011_{variable}" for variable in CONTAINERS_ONLY}


# What is behind an entry point, where its settings are not named as its command.
SETTINGS = {"load.py": "warehouse", "report.py": "warehouse"}
SETTINGS |= {"registry": "schemaregistry", "online-consumer": "onlineconsumer"}
VALUES = {"default": {}, "ha": HA, "object store": STORE}
CONFIGS = {cls.__name__.removesuffix("Config").lower(): cls for cls in config_classes()}
OTHER_PROGRAMS = {
    "object-store",
    "balancer",
    "west-balancer",
    "prometheus",
    "shell",
    "chaos",
    "spark-master",
}
OTHER_PROGRAMS |= {"spark-worker-1", "spark-worker-2", "spark-history"}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("name", sorted(set(EVERY) - OTHER_PROGRAMS))
def test_every_process_accepts_its_variables(name: str, values: dict[str, str]) -> None:
    """As the process itself reads them: a bad value would only show when a profile is used."""
    service = EVERY[name]
    environment = {
        key: VARIABLE.sub(lambda found: values.get(found[1], found[2]), str(value)).replace(
            "${COMPOSE_PROJECT_NAME}", "x"
        )
        for key, value in service["environment"].items()
    }
    command = Path(service["command"][0].split()[-1]).name
    config = CONFIGS[SETTINGS.get(command, command)]
    load(config, environment=environment, known_elsewhere=known_names())


KINDS = ["audit", "broker", "frontend", "mirror", "online-consumer", "proxy", "zookeeper"]
# Its name and place, what a frontend sends, whom an audit counts.
OWN = {"PROCESS_NAME", "BROKERID", "HOSTNAME", "PORT", "DATACENTER", "ZK_ENSEMBLE", "ZK_SERVER_ID"}
OWN |= {"ZK_CONNECT", "LIVE_ZK_CONNECT", "SOURCE_ZK_CONNECT", "PROXY_ROUTES", "PROXY_CONTROL"}
OWN |= {"FRONTEND_SERVER", "SEED", "SOURCE", "INPUT_PATH", "INPUT_FORMAT", "RATE"}
OWN |= {"AUDIT_SERVERS_BLACKLIST", "AUDIT_SERVERS_WHITELIST"}


@pytest.mark.parametrize("kind", KINDS)
def test_services_of_one_kind_differ_only_by_name_and_place(kind: str) -> None:
    first, *others = map(environment_of, running(kind))
    assert others
    for other in others:
        differing = {key for key in first | other if first.get(key) != other.get(key)}
        assert differing <= {f"KAFKA2011_{key}" for key in OWN}
