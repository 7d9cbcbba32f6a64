"""The settings of `kafka2011 zookeeper`."""

import re
from dataclasses import dataclass
from pathlib import Path

from kafka2011.runtime.config import comma_list, path, setting, text, whole
from kafka2011.runtime.process_config import ProcessConfig


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
class ZooKeeperConfig(ProcessConfig):
    """One ZooKeeper server."""

    client_port: int = setting(
        "zk.client.port", 2181, whole(0, 65535), "port for clients; 0 takes a free one"
    )
    bind_address: str = setting(
        "zk.bind.address", "127.0.0.1", text, "address the client port is bound to"
    )
    data_dir: Path = setting(
        "data.dir", Path("var/zookeeper"), path, "snapshots, transaction logs and zoo.cfg"
    )
    # ZooKeeper alone needs about 40 MB for the few thousand znodes of this deployment.
    heap_mb: int = setting("zk.heap.mb", 96, whole(32, 65536), "size of the Java heap, MiB")
    # ZooKeeper rounds session expiry up to ticks, so a short tick makes expiry punctual; the
    # server's own default of 3000 would let no session be shorter than 6 s.
    tick_ms: int = setting("zk.tick.ms", 500, whole(50, 10_000), "ZooKeeper's unit of time, ms")
    session_timeout_min_ms: int = setting(
        "zk.session.timeout.min.ms", 1000, whole(100, 600_000), "shortest session granted, ms"
    )
    session_timeout_max_ms: int = setting(
        "zk.session.timeout.max.ms", 60_000, whole(1000, 3_600_000), "longest session granted, ms"
    )
    connections_max: int = setting(
        "zk.connections.max", 200, whole(0, 100_000), "connections per client address; 0: any"
    )
    start_timeout_ms: int = setting(
        "zk.start.timeout.ms", 60_000, whole(100, 600_000), "give up when not serving by then, ms"
    )
    stop_timeout_ms: int = setting(
        "zk.stop.timeout.ms",
        10_000,
        whole(100, 600_000),
        "SIGKILL a stop longer than this, ms",
    )
    jars_dir: str = setting(
        "zk.jars.dir", "", text, "directory with ZooKeeper's jars; empty: those of PySpark"
    )
    ensemble: dict[int, str] = setting(
        "zk.ensemble",
        {},
        parse_ensemble,
        "id=host:peerport:electionport,... of all servers; empty: this one alone",
    )
    server_id: int = setting("zk.server.id", 0, whole(0, 255), "this server's id in zk.ensemble")
    log_level: str = setting("zk.log.level", "WARN", text, "level of ZooKeeper's own log lines")

    def __post_init__(self) -> None:
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ValueError(
                "zk.session.timeout.min.ms must not be above zk.session.timeout.max.ms"
            )
        if self.ensemble and self.server_id not in self.ensemble:
            raise ValueError(f"zk.server.id={self.server_id} is not one of zk.ensemble")
