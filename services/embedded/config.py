"""Settings of the embedded deployment. Counts are small because two cores run all of it."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import FormSettings
from kafka2011.runtime.config import one_of, path, setting, text, whole
from kafka2011.runtime.shared_settings import AuditWindow, LoadInterval, shared
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath, storage_path
from kafka2011.services.frontend.log_format import FORMAT_DEFAULT, FORMAT_DOC, log_format

DASHBOARD_PORT = 8088
DEFAULT_DIRECTORY = "var"
LIVE_BROKER_ID_FIRST = 1
OFFLINE_BROKER_ID_FIRST = 11  # by which the audit knows the datacenter of a broker's logs
LIVE_BROKERS_MAX = OFFLINE_BROKER_ID_FIRST - LIVE_BROKER_ID_FIRST
PORTS_MAX = 420  # above the base


def store_prefix(text: str) -> ObjectPath | None:
    """The value of embedded.warehouse; None for an empty one. Raises ValueError."""
    if not text:
        return None
    found = storage_path(text)
    if not isinstance(found, ObjectPath) or not found.key:
        raise ValueError(
            "must be s3://bucket/prefix; tables in a directory are in embedded.dir (make: DIR=)"
        )
    return found


def live_brokers(text: str) -> int:
    """The value of embedded.live.brokers. Raises ValueError."""
    number = whole(1)(text)
    if number > LIVE_BROKERS_MAX:
        raise ValueError(
            f"must be at most {LIVE_BROKERS_MAX}: the ids of the offline brokers are those "
            f"from {OFFLINE_BROKER_ID_FIRST} on"
        )
    return number


@dataclass(frozen=True, kw_only=True)
class EmbeddedConfig(FormSettings):
    """The deployment that `kafka2011 embedded` runs."""

    root_dir: Path = setting(
        "embedded.dir", Path(DEFAULT_DIRECTORY), path, "directory of data, logs and state"
    )
    warehouse: ObjectPath | None = setting(
        "embedded.warehouse",
        None,
        store_prefix,
        "s3://bucket/prefix of the tables, for this deployment alone; unset: in embedded.dir",
    )
    live_brokers: int = setting(
        "embedded.live.brokers",
        2,
        live_brokers,
        f"brokers in the live datacenter, at most {LIVE_BROKERS_MAX}; with replicas at least one "
        "for each machine",
    )
    replicas: int = setting(
        "embedded.replicas",
        1,
        whole(1, 3),
        "replicas of each live broker, on as many machines: directories machine-1, machine-2 ...",
    )
    offline_brokers: int = setting(
        "embedded.offline.brokers", 2, whole(1, 20), "brokers in the offline datacenter"
    )
    partitions: int = setting(
        "embedded.partitions", 2, whole(1, 1000), "partitions of a topic on each broker"
    )
    frontends: int = setting("embedded.frontends", 1, whole(1, 20), "frontends (load generators)")
    mirrors: int = setting("embedded.mirrors", 1, whole(1, 20), "mirror makers")
    online_consumers: int = setting(
        "embedded.online.consumers", 2, whole(0, 20), "members of the online consumer group"
    )
    site: str = setting(
        "embedded.site",
        "on",
        one_of("off", "on"),
        "on: a process computes what the dashboard's page Site shows",
    )
    stream: str = setting(
        "embedded.stream",
        "off",
        one_of("off", "on"),
        "on: Spark counts items viewed together over the live brokers, for the page Site",
    )
    input_path: str = setting(
        "embedded.input", "", text, "access log to send; empty: synthetic member activity"
    )
    input_format: str = setting("embedded.input.format", FORMAT_DEFAULT, log_format, FORMAT_DOC)
    seed: int = setting("embedded.seed", 2011, whole(0), "seed of the synthetic activity")
    rate: int = setting(
        "embedded.rate",
        2000,
        whole(0, 1_000_000),
        "synthetic events a second, over all frontends; 0: no events, and it runs until stopped "
        "(for `up`)",
    )
    duration_ms: int = setting(
        "embedded.duration.ms", 20_000, whole(1_000), "length of the synthetic activity, ms"
    )
    window_ms: int = shared(AuditWindow, "audit.window.ms", default=10_000, parse=whole(1_000))
    load_interval_ms: int = shared(
        LoadInterval,
        "load.interval.ms",
        default=2_000,
        parse=whole(100),
        doc="time between two loads into the warehouse, ms",
    )
    dashboard_port: int = setting(
        "embedded.dashboard.port",
        DASHBOARD_PORT,
        whole(-1, 65535),
        "port of the dashboard; 8088 or, when that is taken, any free port; 0: any free port; "
        "-1: no dashboard",
    )
    port_base: int = setting(
        "embedded.port.base",
        22_000,
        whole(0, 65_000),
        f"the processes' ports are this and up to {PORTS_MAX} above it, the same in every run; one "
        "that is taken is replaced by any free port; 0: any free ports",
    )
    chaos: str = setting(
        "embedded.chaos",
        "off",
        one_of("off", "on"),
        "on: the dashboard may kill and pause processes and cut links",
    )
    start_timeout_ms: int = setting(
        "embedded.start.timeout.ms",
        120_000,
        whole(1_000),
        "longest time until a process serves, ms",
    )
    stall_timeout_ms: int = setting(
        "embedded.stall.timeout.ms",
        120_000,
        whole(1_000),
        "time without progress after which everything is stopped, ms",
    )

    def tables(self, root: Path) -> StoragePath:
        """Where the tables of the deployment in `root` are."""
        return self.warehouse or root / "warehouse"

    @property
    def live_broker_count(self) -> int:
        """How many broker ids the live datacenter has; each is one process, or a replica set."""
        return max(self.live_brokers, self.replicas)
