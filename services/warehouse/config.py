"""The settings of the load job and of the report."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import SchemaSettings
from kafka2011.events.topics import AUDIT
from kafka2011.events.windows import WINDOW_MS_DEFAULT
from kafka2011.runtime.config import address_map, comma_list, path, setting, text, whole


@dataclass(frozen=True, kw_only=True)
class WarehouseConfig(SchemaSettings):
    """The load job (`spark-jobs/load.py`); its datacenter is the offline one."""

    zk_connect: str = setting(
        "zk.connect", "127.0.0.1:2181", text, "ZooKeeper of the offline datacenter"
    )
    zk_session_timeout_ms: int = setting(
        "zk.sessiontimeout.ms", 6000, whole(1), "ZooKeeper session timeout"
    )
    warehouse_dir: Path = setting(
        "warehouse.dir", Path("var/warehouse"), path, "one Delta table a topic stands in here"
    )
    topics: tuple[str, ...] = setting(
        "load.topics", (), comma_list, "topics to load; empty: all but those excluded"
    )
    topics_excluded: tuple[str, ...] = setting(
        "load.topics.exclude", (AUDIT,), comma_list, "topics that are never loaded"
    )
    interval_ms: int = setting(
        "load.interval.ms", 0, whole(0), "time between two loads; 0 loads once and ends"
    )
    window_ms: int = setting(
        "audit.window.ms", WINDOW_MS_DEFAULT, whole(1), "length of the windows that are counted"
    )
    fetch_size_bytes: int = setting(
        "fetch.size", 1024 * 1024, whole(1), "bytes of one fetch; at least the largest message"
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms", 30_000, whole(1), "how long one fetch may take"
    )
    partition_bytes_max: int = setting(
        "load.partition.bytes.max",
        256 * 1024 * 1024,
        whole(1),
        "bytes read of one partition before they are committed",
    )
    upkeep_interval_ms: int = setting(
        "warehouse.upkeep.interval.ms",
        600_000,
        whole(0),
        "time between two rounds of compaction and clean-up of a loop; 0: never",
    )
    compact_files_min: int = setting(
        "warehouse.compact.files.min", 8, whole(2), "an hour with this many files is compacted"
    )
    retention_hours: int = setting(
        "warehouse.retention.hours", 0, whole(0), "older event hours are dropped; 0 keeps all"
    )
    vacuum_hours: int = setting(
        "warehouse.vacuum.hours", 168, whole(1), "how long a file stays that no table names"
    )
    address_map: dict[tuple[str, int], tuple[str, int]] = setting(
        "address.map", {}, address_map, "published=dial,...: where to connect instead"
    )
    spark_master: str = setting(
        "spark.master", "local[2,3]", text, "Spark master, unless spark-submit names one"
    )
    spark_event_log_dir: Path | None = setting(
        "spark.event.log.dir", None, path, "event logs for `kafka2011 history`; unset: none"
    )
    report_dir: Path = setting(
        "report.dir", Path("var/reports"), path, "the report's tables and pictures go here"
    )
    report_table: str = setting(
        "report.table", "", text, "table to report on; empty: access_log, else page_view"
    )
