"""Settings of `kafka2011 dashboard`."""

from dataclasses import dataclass
from pathlib import Path

from runtime.config import address_map, one_of, path, setting, text, whole
from runtime.process_config import ProcessConfig

PORT_DEFAULT = 8088


@dataclass(frozen=True, kw_only=True)
class DashboardConfig(ProcessConfig):
    """Where the two datacenters are; everything else is found in their ZooKeepers."""

    live_zk_connect: str = setting(
        "live.zk.connect", "", text, "ZooKeeper of the live datacenter; empty: not shown"
    )
    offline_zk_connect: str = setting(
        "offline.zk.connect", "", text, "ZooKeeper of the offline datacenter; empty: not shown"
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
        "on: the page may kill, pause and cut (needs dashboard.chaos.dir)",
    )
    chaos_dir: Path | None = setting(
        "dashboard.chaos.dir", None, path, "the embedded deployment that may be broken"
    )
    address_map: dict[tuple[str, int], tuple[str, int]] = setting(
        "address.map", {}, address_map, "published address=address to dial, by comma"
    )

    def __post_init__(self) -> None:
        if not self.live_zk_connect and not self.offline_zk_connect:
            raise ValueError("nothing to show: set live.zk.connect or offline.zk.connect")
        if self.chaos == "on" and self.chaos_dir is None:
            raise ValueError("dashboard.chaos=on needs dashboard.chaos.dir")
