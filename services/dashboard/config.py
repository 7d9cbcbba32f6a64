"""Settings of `kafka2011 dashboard`."""

import re
from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.config import one_of, path, setting, text, whole
from kafka2011.runtime.shared_settings import (
    AddressMapSettings,
    DatacenterSettings,
    ReportPlace,
    WarehousePlace,
)

PORT_DEFAULT = 8088
LIVE, OFFLINE = "live", "offline"


def more_datacenters(value: str) -> dict[str, str]:
    """Name -> ZooKeeper of `west=host:port,host:port;east=host:port`. Raises ValueError."""
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
class DashboardConfig(
    SchemaSettings, DatacenterSettings, WarehousePlace, ReportPlace, AddressMapSettings
):
    """The datacenters' ZooKeepers, in which everything else is found, and the web server."""

    more_zk_connect: dict[str, str] = setting(
        "live.more.zk.connect",
        {},
        more_datacenters,
        "further live datacenters, name=connect;name=connect; one that never answered is hidden",
    )
    bind: str = setting(
        "dashboard.bind", "127.0.0.1", text, "address to listen on; the dashboard has no login"
    )
    port: int = setting(
        "dashboard.port", PORT_DEFAULT, whole(0, 65535), "port of the dashboard; 0: any free port"
    )
    sample_ms: int = setting(
        "dashboard.sample.ms", 1000, whole(250, 60_000), "time between two samples, ms"
    )
    history_ms: int = setting(
        "dashboard.history.ms", 900_000, whole(60_000, 86_400_000), "time that the charts show, ms"
    )
    lag_ms: int = setting(
        "dashboard.lag.ms",
        10_000,
        whole(100),
        "delay above which a process is marked as lagging, ms",
    )
    chaos: str = setting(
        "dashboard.chaos",
        "off",
        one_of("off", "on"),
        "on: the dashboard may cut and slow links, and kill and pause the processes of "
        "dashboard.chaos.dir or dashboard.chaos.engine",
    )
    chaos_dir: Path | None = setting(
        "dashboard.chaos.dir",
        None,
        path,
        "directory of the embedded deployment whose processes may be broken",
    )
    chaos_engine: Path | None = setting(
        "dashboard.chaos.engine",
        None,
        path,
        "socket of the container engine whose containers may be broken; equals root access",
    )
    chaos_project: str = setting(
        "dashboard.chaos.project", "kafka2011", text, "Compose project of those containers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.live_zk_connect and not self.offline_zk_connect:
            raise ValueError("nothing to show: set live.zk.connect or offline.zk.connect")
        if self.chaos_dir is not None and self.chaos_engine is not None:
            raise ValueError("set dashboard.chaos.dir or dashboard.chaos.engine, not both")
