"""The processes of the embedded deployment, as a pure function of its settings.

`plan` turns the settings and a source of free ports into process specifications: the command and
the environment (the same variables that the containers get), in the order of starting. The ports of
a process are part of its specification, so a restarted process has the address that its clients
use.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka2011.runtime.shared_settings import MIRROR_GROUP
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.embedded.config import (
    LIVE_BROKER_ID_FIRST,
    OFFLINE_BROKER_ID_FIRST,
    EmbeddedConfig,
)
from kafka2011.services.frontend.campaigns import CAMPAIGNS
from kafka2011.services.frontend.members import scrapers, spammers

LOOPBACK = "127.0.0.1"
REPLICA_NAMES = "abc"
# Topics derived from mirrored ones: neither mirrored nor read by the online consumers.
RESULT_TOPICS_PATTERN = "site-.*"
MEASURE_INTERVAL_MS = 5_000
CHECK_INTERVAL_MS = 1_000  # of the balancer

# Offsets from embedded.port.base, with the last digits of the ports that users of Kafka and
# ZooKeeper know.
PAGE_PORT = 80
REGISTRY_PORT = 81
BALANCER_PORT = 90  # broker n: 90 + n
REPLICA_PORT_FIRST = 121
ZOOKEEPER_PORTS = {"live": 181, "offline": 182}
WAN_LINK_PORT_FIRST = 200
METRICS_PORT_FIRST = 300


@dataclass(frozen=True)
class ProcessSpec:
    """One process to run.

    `ready`: "healthz" requests /healthz, "zookeeper" sends `srvr` to `ports["client"]`.
    `is_finite`: it ends with status 0 when its work is done.
    `is_slow`: it starts and stops slowly, needs nothing to be there when it starts, and nothing
    follows it in the stream; so it is started, and asked to stop, before all others.
    `setup`: a command that is run to its end before the deployment starts the process.
    """

    name: str
    kind: str
    datacenter: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    ready: str = "healthz"
    is_finite: bool = False
    is_slow: bool = False
    start_timeout_ms: int = 60_000
    setup: tuple[str, ...] = ()


def environment_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Property names and values -> KAFKA2011_ variables."""
    return {
        "KAFKA2011_" + name.replace(".", "_").replace("-", "_").upper(): str(value)
        for name, value in settings.items()
    }


def command_of(*words: str) -> tuple[str, ...]:
    """A subcommand of kafka2011 run by this interpreter."""
    return (sys.executable, "-m", "kafka2011", *words)


@dataclass
class _Planner:
    """Collects the specifications, and gives each process its metrics port."""

    config: EmbeddedConfig
    root: Path
    port_at: Callable[[int], int]
    specs: list[ProcessSpec] = field(default_factory=list)

    def add(
        self,
        name: str,
        kind: str,
        datacenter: str,
        settings: Mapping[str, object],
        *,
        command: tuple[str, ...] = (),
        ports: Mapping[str, int] | None = None,
        **other: Any,
    ) -> None:
        """Add a process; `other` are further fields of its ProcessSpec."""
        metrics_port = self.port_at(METRICS_PORT_FIRST + len(self.specs))
        common = {
            "process.name": name,
            "datacenter": datacenter,
            "metrics.port": metrics_port,
            "metrics.bind": LOOPBACK,
        }
        self.specs.append(
            ProcessSpec(
                name=name,
                kind=kind,
                datacenter=datacenter,
                command=command or command_of(kind),
                environment=environment_of({**common, **settings}),
                ports={"metrics": metrics_port, **(ports or {})},
                start_timeout_ms=self.config.start_timeout_ms,
                **other,
            )
        )

    def data_dir(self, name: str) -> Path:
        return self.root / name

    @property
    def warehouse_dir(self) -> StoragePath:
        return self.config.tables(self.root)


@dataclass(frozen=True)
class _Addresses:
    """What the processes of the deployment connect to."""

    live_zk: str
    offline_zk: str
    registry_port: int
    live_brokers: Mapping[str, int]  # process -> port
    balancer_port: int


def plan(config: EmbeddedConfig, root: Path, port_at: Callable[[int], int]) -> list[ProcessSpec]:
    """All processes, in an order in which each may be started once those before it serve.

    `port_at(offset)` is called once for each port, with an offset of its own.
    """
    planner = _Planner(config, root, port_at)
    addresses = _add_servers(planner)
    forms: dict[str, object] = dict(config.forms.settings())
    schemas = {
        **forms,
        "schema.registry.url": f"http://{LOOPBACK}:{addresses.registry_port}",
    }
    _add_mirrors(planner, addresses, forms)
    _add_online_consumers(planner, addresses, forms)
    if config.site == "on":
        _add_site(planner, addresses, schemas)
    _add_audit(planner, addresses, forms)
    _add_loader(planner, addresses, schemas)
    if config.dashboard_port >= 0:
        _add_dashboard(planner, addresses, schemas)
    _add_frontends(planner, addresses, schemas)
    return planner.specs


def _add_servers(planner: _Planner) -> _Addresses:
    """Both ZooKeepers, the schema registry, all brokers, and the balancer of the live ones."""
    config = planner.config
    live_zk = _add_zookeeper(planner, "live")
    offline_zk = _add_zookeeper(planner, "offline")
    registry_port = planner.port_at(REGISTRY_PORT)
    planner.add(
        "registry",
        "registry",
        "live",
        {
            "registry.port": registry_port,
            "data.dir": planner.data_dir("registry"),
            "zk.connect": live_zk,
        },
        ports={"registry": registry_port},
    )
    live_ports = _add_live_brokers(planner, live_zk)
    _add_brokers(planner, "offline", OFFLINE_BROKER_ID_FIRST, config.offline_brokers, offline_zk)
    balancer_port = planner.port_at(BALANCER_PORT)
    # All members of a replica set: those that do not lead refuse, and the balancer skips them.
    targets = "|".join(f"{LOOPBACK}:{port}" for port in live_ports.values())
    planner.add(
        "balancer",
        "proxy",
        "live",
        {
            "proxy.routes": f"{LOOPBACK}:{balancer_port}>{targets}",
            "proxy.control": "true" if config.chaos == "on" else "false",
            "proxy.check.interval.ms": CHECK_INTERVAL_MS,
            "zk.connect": live_zk,
        },
        ports={"balancer": balancer_port},
    )
    return _Addresses(live_zk, offline_zk, registry_port, live_ports, balancer_port)


def _add_zookeeper(planner: _Planner, datacenter: str) -> str:
    """Add a datacenter's ZooKeeper; returns its `zk.connect`."""
    name = f"zookeeper-{datacenter}"
    port = planner.port_at(ZOOKEEPER_PORTS[datacenter])
    planner.add(
        name,
        "zookeeper",
        datacenter,
        {"zk.client.port": port, "data.dir": planner.data_dir(name)},
        ports={"client": port},
        ready="zookeeper",
    )
    return f"{LOOPBACK}:{port}"


def _add_live_brokers(planner: _Planner, zk_connect: str) -> dict[str, int]:
    """Add the live brokers, or their replicas; returns the ports by process."""
    config = planner.config
    count = config.live_broker_count
    if config.replicas == 1:
        return _add_brokers(planner, "live", LIVE_BROKER_ID_FIRST, count, zk_connect)
    ports: dict[str, int] = {}
    for index in range(count):
        broker_id = LIVE_BROKER_ID_FIRST + index
        # Each machine is first in the order of its share of the sets, so that leaders are spread.
        machines = [(index + turn) % config.replicas for turn in range(config.replicas)]
        members = [REPLICA_NAMES[machine] for machine in machines]
        for member, machine in zip(members, machines, strict=True):
            name = f"broker-{broker_id}-{member}"
            data_dir = planner.root / machine_name(machine) / f"broker-{broker_id}"
            ports[name] = planner.port_at(REPLICA_PORT_FIRST + len(ports))
            planner.add(
                name,
                "broker",
                "live",
                {
                    **_broker_settings(planner, broker_id, ports[name], data_dir, zk_connect),
                    "replica.name": member,
                },
                ports={"broker": ports[name]},
                setup=_set_command(broker_id, members, zk_connect) if member == members[0] else (),
            )
    return ports


def machine_name(number: int) -> str:
    """The directory that stands for a machine: machine-1 has the replicas named a."""
    return f"machine-{number + 1}"


def replicas_under(root: Path) -> int:
    """The number of replicas of each live broker whose logs are under `root`; 0 where there are no
    logs."""
    name = f"broker-{LIVE_BROKER_ID_FIRST}"
    return len([*root.glob(f"machine-*/{name}")]) or int((root / name).is_dir())


def _set_command(broker_id: int, members: list[str], zk_connect: str) -> tuple[str, ...]:
    words = [word for member in members for word in ("--member", member)]
    return command_of(
        *("replicas", "create", str(broker_id), *words),
        *("--zookeeper", zk_connect, "--if-missing"),
    )


def _broker_settings(
    planner: _Planner, broker_id: int, port: int, data_dir: Path, zk_connect: str
) -> dict[str, object]:
    return {
        "brokerid": broker_id,
        "port": port,
        "hostname": LOOPBACK,
        "log.dir": data_dir / "logs",
        "quarantine.dir": data_dir / "quarantine",
        "num.partitions": planner.config.partitions,
        "zk.connect": zk_connect,
    }


def _add_brokers(
    planner: _Planner, datacenter: str, first_id: int, count: int, zk_connect: str
) -> dict[str, int]:
    """Add brokers without replicas; returns their ports by process."""
    ports = {}
    for broker_id in range(first_id, first_id + count):
        name = f"broker-{broker_id}"
        port = ports[name] = planner.port_at(BALANCER_PORT + broker_id)
        planner.add(
            name,
            "broker",
            datacenter,
            _broker_settings(planner, broker_id, port, planner.data_dir(name), zk_connect),
            ports={"broker": port},
        )
    return ports


def _add_mirrors(planner: _Planner, addresses: _Addresses, forms: Mapping[str, object]) -> None:
    source: dict[str, object] = {"source.zk.connect": addresses.live_zk}
    if planner.config.chaos == "on":
        source = _add_wan_link(planner, addresses)
    for number in range(1, planner.config.mirrors + 1):
        planner.add(
            f"mirror-{number}",
            "mirror",
            "live",
            {
                **source,
                **forms,
                "target.zk.connect": addresses.offline_zk,
                "groupid": MIRROR_GROUP,
                "topics.blacklist": RESULT_TOPICS_PATTERN,
            },
        )


def _add_wan_link(planner: _Planner, addresses: _Addresses) -> dict[str, object]:
    """A proxy between the datacenters, to slow and to cut. Returns the mirrors' source settings."""
    zk_port = planner.port_at(WAN_LINK_PORT_FIRST)
    brokers = addresses.live_brokers
    ports = {
        port: planner.port_at(WAN_LINK_PORT_FIRST + number)
        for number, port in enumerate(brokers.values(), 1)
    }
    routes = [f"zookeeper={LOOPBACK}:{zk_port}>{addresses.live_zk}"] + [
        f"{name}={LOOPBACK}:{ports[port]}>{LOOPBACK}:{port}" for name, port in brokers.items()
    ]
    planner.add(
        "wan-link",
        "proxy",
        "live",
        {
            "proxy.routes": ",".join(routes),
            "proxy.control": "true",
            "zk.connect": addresses.live_zk,
        },
        ports={"zookeeper": zk_port},
    )
    return {
        "source.zk.connect": f"{LOOPBACK}:{zk_port}",
        "address.map": ",".join(
            f"{LOOPBACK}:{port}={LOOPBACK}:{link_port}" for port, link_port in ports.items()
        ),
    }


def _add_online_consumers(
    planner: _Planner, addresses: _Addresses, forms: Mapping[str, object]
) -> None:
    for number in range(1, planner.config.online_consumers + 1):
        planner.add(
            f"online-{number}",
            "online-consumer",
            "live",
            {
                **forms,
                "zk.connect": addresses.live_zk,
                "groupid": "online",
                "audit.window.ms": planner.config.window_ms,
                "topics.blacklist": RESULT_TOPICS_PATTERN,
            },
        )


def _add_site(planner: _Planner, addresses: _Addresses, schemas: Mapping[str, object]) -> None:
    is_synthetic = not planner.config.input_path
    planted = ",".join(str(member) for member, _ in [*scrapers(), *spammers()])
    budgets = ",".join(f"{campaign.name}:{campaign.budget_micros}" for campaign in CAMPAIGNS)
    planner.add(
        "site",
        "site",
        "live",
        {
            **schemas,
            "zk.connect": addresses.live_zk,
            "data.dir": planner.data_dir("site"),
            "site.abuse.planted": planted if is_synthetic else "",
            "site.ads.budgets": budgets if is_synthetic else "",
            "site.measure.zk.connect": addresses.offline_zk,
            # With a given log, the counts are to be those of its lines alone.
            "site.measure.interval.ms": MEASURE_INTERVAL_MS if is_synthetic else 0,
            "audit.window.ms": planner.config.window_ms,
        },
    )


def _add_audit(planner: _Planner, addresses: _Addresses, forms: Mapping[str, object]) -> None:
    planner.add(
        "audit",
        "audit",
        "live",
        {
            **forms,
            "live.zk.connect": addresses.live_zk,
            "offline.zk.connect": addresses.offline_zk,
            "warehouse.dir": planner.warehouse_dir,
            "data.dir": planner.data_dir("audit"),
            "audit.restarts.file": planner.root / "run" / "restarts.json",
            "audit.window.ms": planner.config.window_ms,
        },
        command=command_of("audit", "serve"),
    )


def _add_loader(planner: _Planner, addresses: _Addresses, schemas: Mapping[str, object]) -> None:
    planner.add(
        "loader",
        "loader",
        "offline",
        {
            **schemas,
            "zk.connect": addresses.offline_zk,
            "warehouse.dir": planner.warehouse_dir,
            "audit.window.ms": planner.config.window_ms,
            "load.interval.ms": planner.config.load_interval_ms,
            **(
                {
                    "load.stream.zk.connect": addresses.live_zk,
                    "load.stream.dir": planner.data_dir("streams"),
                }
                if planner.config.stream == "on"
                else {}
            ),
        },
        command=command_of("load"),
        is_slow=True,
    )


def _add_dashboard(planner: _Planner, addresses: _Addresses, schemas: Mapping[str, object]) -> None:
    port = planner.config.dashboard_port or planner.port_at(PAGE_PORT)
    planner.add(
        "dashboard",
        "dashboard",
        "live",
        {
            **schemas,
            "live.zk.connect": addresses.live_zk,
            "offline.zk.connect": addresses.offline_zk,
            "warehouse.dir": planner.warehouse_dir,
            "report.dir": planner.root / "reports",
            "dashboard.port": port,
            "dashboard.chaos": planner.config.chaos,
            "dashboard.chaos.dir": planner.root,
        },
        ports={"page": port},
        is_slow=True,
    )


def _add_frontends(planner: _Planner, addresses: _Addresses, schemas: Mapping[str, object]) -> None:
    config = planner.config
    # An access log is one server's log, so one frontend sends it.
    for number in range(1, (1 if config.input_path else config.frontends) + 1):
        name = f"frontend-{number}"
        planner.add(
            name,
            "frontend",
            "live",
            {
                **source_settings(config, number),
                **schemas,
                "frontend.server": name,
                "broker.list": f"0:{LOOPBACK}:{addresses.balancer_port}",
                "live.zk.connect": addresses.live_zk,
                "data.dir": planner.data_dir(name),
                "audit.window.ms": config.window_ms,
            },
            is_finite=True,
        )


def source_settings(config: EmbeddedConfig, number: int) -> dict[str, object]:
    """The source of frontend `number` (from 1): the input, or its share of the activity."""
    if config.input_path:
        return {
            "source": "access-log",
            "input.path": Path(config.input_path).resolve(),
            "input.format": config.input_format,
        }
    if not config.rate:
        return {"source": "none"}
    return {
        "source": "synthetic",
        "frontend.keyed": "true",
        "seed": config.seed + number - 1,
        "rate": max(1, config.rate // config.frontends),
        "duration.ms": config.duration_ms,
    }


def report_command(
    root: Path, tables: StoragePath, table: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The report job: its command, and its variables besides the caller's environment."""
    settings = {
        "warehouse.dir": tables,
        "report.table": table,
        "report.dir": root / "reports",
    }
    return command_of("report"), environment_of(settings)
