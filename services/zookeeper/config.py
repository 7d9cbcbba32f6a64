"""The settings of `kafka2011 zookeeper`.

0.7's config/zookeeper.properties works as it is: dataDir, clientPort and maxClientCnxns are taken
by the names that they have there. `Unlike 0.7:` the server listens on zk.bind.address, by default
on this machine alone.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kafka2011.runtime.config import comma_list, path, setting, text, whole
from kafka2011.runtime.shared_settings import DataDir, shared


def parse_ensemble(value: str) -> dict[int, str]:
    """`1=host:peerport:electionport,2=...`: every server of the ensemble, this one too."""
    found: dict[int, str] = {}
    for part in comma_list(value):
        number, equals, place = part.partition("=")
        if not equals or not re.fullmatch(r"[^:\s]+:[0-9]{1,5}:[0-9]{1,5}", place):
            raise ValueError(f"{part!r} must be id=host:peerport:electionport")
        found[whole(1, 255)(number)] = place
    return found


@dataclass(frozen=True, kw_only=True)
class ZooKeeperConfig(DataDir):
    """One ZooKeeper server."""

    client_port: int = setting(
        "zk.client.port",
        2181,
        whole(0, 65535),
        "port for clients; 0: any free port",
        in_files="clientPort",
    )
    bind_address: str = setting("zk.bind.address", "127.0.0.1", text, "address to listen on")
    data_dir: Path = shared(
        DataDir,
        "data.dir",
        default=Path("var/zookeeper"),
        doc="directory of snapshots, transaction logs and zoo.cfg",
    )
    snapshot_dir: Path | None = setting(
        "zk.snapshot.dir",
        None,
        path,
        "directory of snapshots and transaction logs, and of zoo.cfg in conf (dataDir in a "
        "zookeeper.properties); unset: data, in data.dir",
        in_files="dataDir",
    )
    # ZooKeeper alone needs about 40 MB for the few thousand znodes of this deployment.
    heap_mb: int = setting("zk.heap.mb", 96, whole(32, 65536), "size of the Java heap, MiB")
    # ZooKeeper rounds session expiry up to ticks, so a short tick makes expiry punctual; the
    # server's own default of 3000 would let no session be shorter than 6 s.
    tick_ms: int = setting(
        "zk.tick.ms",
        500,
        whole(50, 10_000),
        "ZooKeeper's unit of time, ms",
        in_files="tickTime",
    )
    session_timeout_min_ms: int = setting(
        "zk.session.timeout.min.ms", 1000, whole(100, 600_000), "shortest session granted, ms"
    )
    session_timeout_max_ms: int = setting(
        "zk.session.timeout.max.ms", 60_000, whole(1000, 3_600_000), "longest session granted, ms"
    )
    connections_max: int = setting(
        "zk.connections.max",
        200,
        whole(0, 100_000),
        "most connections from one address; 0: no limit",
        in_files="maxClientCnxns",
    )
    start_timeout_ms: int = setting(
        "zk.start.timeout.ms",
        60_000,
        whole(100, 600_000),
        "longest time until the server serves, ms",
    )
    stop_timeout_ms: int = setting(
        "zk.stop.timeout.ms",
        10_000,
        whole(100, 600_000),
        "longest time of a clean stop, ms; then SIGKILL",
    )
    jars_dir: str = setting(
        "zk.jars.dir", "", text, "directory of ZooKeeper's jars; empty: those of PySpark"
    )
    ensemble: dict[int, str] = setting(
        "zk.ensemble",
        {},
        parse_ensemble,
        "all servers of the ensemble, id=host:peerport:electionport,...; empty: this one only",
    )
    server_id: int = setting("zk.server.id", 0, whole(0, 255), "id of this server in zk.ensemble")
    log_level: str = setting("zk.log.level", "WARN", text, "level of ZooKeeper's own log")

    @property
    def snapshots(self) -> Path:
        """ZooKeeper's own dataDir, absolute."""
        return (self.snapshot_dir or self.data_dir / "data").absolute()

    @property
    def conf_dir(self) -> Path:
        """Where zoo.cfg is written, absolute."""
        return (self.snapshot_dir or self.data_dir).absolute() / "conf"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ValueError(
                "zk.session.timeout.min.ms must not be above zk.session.timeout.max.ms"
            )
        if self.ensemble and self.server_id not in self.ensemble:
            raise ValueError(f"zk.server.id={self.server_id} is not one of zk.ensemble")
