"""Settings of `kafka2011 dashboard`."""

import re
from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.config import address_map, one_of, path, setting, text, whole

PORT_DEFAULT = 8088
LIVE, OFFLINE = "live", "offline"


def more_datacenters(value: str) -> dict[str, str]:
    """`west=host:port,host:port;east=host:port`. Raises ValueError."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(";"))):
        name, _, connect = (word.strip() for word in part.partition("="))
        if not re.fullmatch(r"[a-z0-9-]+", name) or not connect:
            raise ValueError(f"{part!r} must be name=host:port,..., the name of a-z, 0-9 and -")
        if name in (LIVE, OFFLINE, *found):
            raise ValueError(f"{name!r} is taken")
        found[name] = connect
    return found


@dataclass(frozen=True, kw_only=True)
class DashboardConfig(SchemaSettings):
    """Where the two datacenters are; everything else is found in their ZooKeepers."""

    live_zk_connect: str = setting(
        "live.zk.connect", "", text, "ZooKeeper of the live datacenter; empty: not shown"
    )
    offline_zk_connect: str = setting(
        "offline.zk.connect", "", text, "ZooKeeper of the offline datacenter; empty: not shown"
    )
    more_zk_connect: dict[str, str] = setting(
        "live.more.zk.connect",
        {},
        more_datacenters,
        "further live datacenters, name=connect;name=connect; one that never answered is not shown",
    )
    bind: str = setting(
        "dashboard.bind", "127.0.0.1", text, "address of the page; the page has no login"
    )
    port: int = setting(
        "dashboard.port", PORT_DEFAULT, whole(0, 65535), "port of the page; 0 takes a free one"
    )
    hosts: str = setting(
        "dashboard.hosts",
        "",
        text,
        "names beside localhost and bind under which the page may be asked for, by comma",
    )
    sample_ms: int = setting(
        "dashboard.sample.ms", 1000, whole(250, 60_000), "pause between two looks, ms"
    )
    history_ms: int = setting(
        "dashboard.history.ms", 900_000, whole(60_000, 86_400_000), "how far back the lines go, ms"
    )
    lag_ms: int = setting(
        "dashboard.lag.ms", 10_000, whole(100), "a process further behind is lagging, ms"
    )
    warehouse_dir: Path | None = setting(
        "warehouse.dir", None, path, "directory of the Delta tables; unset: no commits shown"
    )
    report_dir: Path | None = setting(
        "report.dir", None, path, "directory of the reports; unset: no pictures shown"
    )
    chaos: str = setting(
        "dashboard.chaos",
        "off",
        one_of("off", "on"),
        "on: the page may cut and slow the links, and kill and pause what the next three name",
    )
    chaos_dir: Path | None = setting(
        "dashboard.chaos.dir", None, path, "the embedded deployment that may be broken"
    )
    chaos_engine: Path | None = setting(
        "dashboard.chaos.engine",
        None,
        path,
        "socket of the container engine whose containers may be broken; its holder is root",
    )
    chaos_project: str = setting(
        "dashboard.chaos.project", "kafka2011", text, "Compose project of those containers"
    )
    address_map: dict[tuple[str, int], tuple[str, int]] = setting(
        "address.map", {}, address_map, "published address=address to dial, by comma"
    )

    def __post_init__(self) -> None:
        if not self.live_zk_connect and not self.offline_zk_connect:
            raise ValueError("nothing to show: set live.zk.connect or offline.zk.connect")
        if self.chaos_dir is not None and self.chaos_engine is not None:
            raise ValueError("set dashboard.chaos.dir or dashboard.chaos.engine, not both")
