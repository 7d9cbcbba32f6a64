"""Decides which processes the embedded deployment consists of; pure, no effects.

`plan` turns the settings and a source of free ports into process specifications: the command, the
environment (the same variables that the containers get), and what must serve before. The ports of a
process are part of its specification, so a process that is started again comes back at the same
address, which is what its clients know.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.warehouse import commands

LOOPBACK = "127.0.0.1"
LIVE_BROKER_ID_FIRST = 1
OFFLINE_BROKER_ID_FIRST = 11


@dataclass(frozen=True)
class ProcessSpec:
    """One process to run.

    `ready`: "healthz" asks its metrics port, "zookeeper" sends `srvr` to `ports["client"]`.
    `is_finite`: it ends by itself with status 0 when its work is done.
    `stop_driver`: the command is a launcher; SIGTERM goes to the Python driver below it.
    `starts_early`: it takes long to start and waits for what it needs by itself.
    """

    name: str
    kind: str
    datacenter: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    ready: str = "healthz"
    is_finite: bool = False
    stop_driver: bool = False
    starts_early: bool = False
    start_timeout_ms: int = 60_000


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
    config: EmbeddedConfig
    root: Path
    free_port: Callable[[], int]
    specs: list[ProcessSpec] = field(default_factory=list)

    def add(
        self,
        name: str,
        kind: str,
        datacenter: str,
        settings: Mapping[str, object],
        *,
        command: tuple[str, ...] | None = None,
        ports: Mapping[str, int] | None = None,
        ready: str = "healthz",
        is_finite: bool = False,
        stop_driver: bool = False,
        starts_early: bool = False,
    ) -> ProcessSpec:
        metrics_port = self.free_port()
        common = {
            "process.name": name,
            "datacenter": datacenter,
            "metrics.port": metrics_port,
            "metrics.bind": LOOPBACK,
        }
        spec = ProcessSpec(
            name=name,
            kind=kind,
            datacenter=datacenter,
            command=command or command_of(kind),
            environment=environment_of({**common, **settings}),
            ports={"metrics": metrics_port, **(ports or {})},
            ready=ready,
            is_finite=is_finite,
            stop_driver=stop_driver,
            starts_early=starts_early,
            start_timeout_ms=self.config.start_timeout_ms,
        )
        self.specs.append(spec)
        return spec

    def data_dir(self, name: str) -> Path:
        return self.root / name

    def zookeeper(self, datacenter: str) -> str:
        name = f"zookeeper-{datacenter}"
        port = self.free_port()
        self.add(
            name,
            "zookeeper",
            datacenter,
            {"zk.client.port": port, "data.dir": self.data_dir(name)},
            ports={"client": port},
            ready="zookeeper",
        )
        return f"{LOOPBACK}:{port}"

    def brokers(self, datacenter: str, first_id: int, count: int, zk_connect: str) -> list[int]:
        ports = []
        for broker_id in range(first_id, first_id + count):
            name = f"broker-{broker_id}"
            port = self.free_port()
            ports.append(port)
            self.add(
                name,
                "broker",
                datacenter,
                {
                    "brokerid": broker_id,
                    "port": port,
                    "hostname": LOOPBACK,
                    "log.dir": self.data_dir(name) / "logs",
                    "quarantine.dir": self.data_dir(name) / "quarantine",
                    "num.partitions": self.config.partitions,
                    "zk.connect": zk_connect,
                },
                ports={"broker": port},
            )
        return ports

    def wan_link(self, live_zk: str, live_ports: list[int]) -> dict[str, object]:
        """The link between the datacenters, to slow and to cut; what mirrors need to use it."""
        zk_port = self.free_port()
        ports = {port: self.free_port() for port in live_ports}
        routes = [f"zookeeper={LOOPBACK}:{zk_port}>{live_zk}"] + [
            f"broker-{number}={LOOPBACK}:{here}>{LOOPBACK}:{port}"
            for number, (port, here) in enumerate(ports.items(), LIVE_BROKER_ID_FIRST)
        ]
        self.add(
            "wan-link",
            "proxy",
            "live",
            {"proxy.routes": ",".join(routes), "zk.connect": live_zk},
            ports={"zookeeper": zk_port},
        )
        return {
            "source.zk.connect": f"{LOOPBACK}:{zk_port}",
            "address.map": ",".join(
                f"{LOOPBACK}:{port}={LOOPBACK}:{here}" for port, here in ports.items()
            ),
        }


def plan(config: EmbeddedConfig, root: Path, free_port: Callable[[], int]) -> list[ProcessSpec]:
    """All processes, in an order in which each may be started once those before it serve."""
    planner = _Planner(config, root, free_port)
    live_zk = planner.zookeeper("live")
    offline_zk = planner.zookeeper("offline")
    registry_port = planner.free_port()
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
    forms = {"event.forms": config.event_forms}
    schemas = {**forms, "schema.registry.url": f"http://{LOOPBACK}:{registry_port}"}
    live_ports = planner.brokers("live", LIVE_BROKER_ID_FIRST, config.live_brokers, live_zk)
    planner.brokers("offline", OFFLINE_BROKER_ID_FIRST, config.offline_brokers, offline_zk)

    balancer_port = planner.free_port()
    targets = "|".join(f"{LOOPBACK}:{port}" for port in live_ports)
    planner.add(
        "balancer",
        "proxy",
        "live",
        {"proxy.routes": f"{LOOPBACK}:{balancer_port}>{targets}", "zk.connect": live_zk},
        ports={"balancer": balancer_port},
    )
    source: dict[str, object] = {"source.zk.connect": live_zk}
    if config.chaos == "on":
        source = planner.wan_link(live_zk, live_ports)
    for number in range(1, config.mirrors + 1):
        planner.add(
            f"mirror-{number}",
            "mirror",
            "live",
            {**source, **forms, "target.zk.connect": offline_zk, "groupid": "mirror"},
        )
    for number in range(1, config.online_consumers + 1):
        planner.add(
            f"online-{number}",
            "online-consumer",
            "live",
            {**forms, "zk.connect": live_zk, "groupid": "online"},
        )
    planner.add(
        "audit",
        "audit",
        "live",
        {
            **forms,
            "live.zk.connect": live_zk,
            "offline.zk.connect": offline_zk,
            "warehouse.dir": root / "warehouse",
            "data.dir": planner.data_dir("audit"),
            "audit.restarts.file": root / "run" / "restarts.json",
            "audit.window.ms": config.window_ms,
        },
        command=command_of("audit", "serve"),
    )
    planner.add(
        "loader",
        "loader",
        "offline",
        {
            **schemas,
            "zk.connect": offline_zk,
            "warehouse.dir": root / "warehouse",
            "audit.window.ms": config.window_ms,
            "load.interval.ms": config.load_interval_ms,
        },
        command=spark_submit("load"),
        stop_driver=True,
        starts_early=True,
    )
    if config.dashboard_port >= 0:
        page_port = config.dashboard_port or planner.free_port()
        planner.add(
            "dashboard",
            "dashboard",
            "live",
            {
                **schemas,
                "live.zk.connect": live_zk,
                "offline.zk.connect": offline_zk,
                "warehouse.dir": root / "warehouse",
                "report.dir": root / "reports",
                "dashboard.port": page_port,
                "dashboard.chaos": config.chaos,
                "dashboard.chaos.dir": root,
            },
            ports={"page": page_port},
            starts_early=True,
        )
    # An access log is one server's log, so one frontend sends it.
    for number in range(1, (1 if config.input_path else config.frontends) + 1):
        planner.add(
            f"frontend-{number}",
            "frontend",
            "live",
            {
                **source_settings(config, number),
                **schemas,
                "frontend.server": f"frontend-{number}",
                "broker.list": f"0:{LOOPBACK}:{balancer_port}",
                "live.zk.connect": live_zk,
                "data.dir": planner.data_dir(f"frontend-{number}"),
                "audit.window.ms": config.window_ms,
            },
            is_finite=True,
        )
    return planner.specs


def source_settings(config: EmbeddedConfig, number: int) -> dict[str, object]:
    """What frontend `number` (from 1) sends: the input, or its own share of the activity."""
    if config.input_path:
        return {"source": "access-log", "input.path": Path(config.input_path).resolve()}
    return {
        "source": "synthetic",
        "seed": config.seed + number - 1,
        "rate": max(1, config.rate // config.frontends),
        "duration.ms": config.duration_ms,
    }


def spark_submit(name: str) -> tuple[str, ...]:
    """spark-submit of a job of the warehouse."""
    return str(Path(sys.executable).parent / "spark-submit"), str(commands.script(name))


def report_command(root: Path, table: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The one-shot report job: its command and the variables beside the caller's own."""
    settings = {
        "warehouse.dir": root / "warehouse",
        "report.table": table,
        "report.dir": root / "reports",
    }
    return spark_submit("report"), environment_of(settings)
