"""The settings of the load job and of the reports."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import SchemaSettings
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.config import comma_list, path, setting, text, whole
from kafka2011.runtime.shared_settings import (
    AuditWindow,
    DialSettings,
    FetchSize,
    LoadInterval,
    ReportPlace,
    SparkSettings,
    WarehousePlace,
    ZooKeeperConnect,
    ZooKeeperSessionSettings,
    shared,
)
from kafka2011.runtime.storage_paths import StoragePath

HOURS_MAX = 1_000_000  # more than a hundred years, and years still have four digits


@dataclass(frozen=True, kw_only=True)
class WarehouseConfig(
    SchemaSettings,
    AuditWindow,
    LoadInterval,
    DialSettings,
    ZooKeeperConnect,
    ZooKeeperSessionSettings,
    SparkSettings,
):
    """The load job (`spark-jobs/load.py`); its datacenter is the offline one."""

    zk_connect: str = shared(
        ZooKeeperConnect,
        "zk.connect",
        default="127.0.0.1:2181",
        doc="ZooKeeper of the offline datacenter, host:port,host:port/chroot",
    )
    warehouse_dir: StoragePath = shared(
        WarehousePlace,
        "warehouse.dir",
        default=Path("var/warehouse"),
        doc="directory of the Delta tables, one for each topic; or s3://bucket/prefix",
    )
    topics: tuple[str, ...] = setting(
        "load.topics",
        (),
        comma_list,
        "topics to load, comma-separated; empty: all but those excluded",
    )
    topics_excluded: tuple[str, ...] = setting(
        "load.topics.exclude", (AUDIT,), comma_list, "topics that are never loaded, comma-separated"
    )
    fetch_size_bytes: int = shared(
        FetchSize, "fetch.size", doc="bytes of one fetch; at least the largest message"
    )
    partition_bytes_max: int = setting(
        "load.partition.bytes.max",
        256 * 1024 * 1024,
        whole(1),
        "most bytes of one partition in one commit",
    )
    upkeep_interval_ms: int = setting(
        "warehouse.upkeep.interval.ms",
        600_000,
        whole(0),
        "with load.interval.ms: time between two rounds of compaction and clean-up, ms; 0: never",
    )
    compact_files_min: int = setting(
        "warehouse.compact.files.min", 8, whole(2), "files of an hour at which they are compacted"
    )
    retention_hours: int = setting(
        "warehouse.retention.hours",
        0,
        whole(0, HOURS_MAX),
        "event hours older than this are dropped, hours; 0: all are kept",
    )
    vacuum_hours: int = setting(
        "warehouse.vacuum.hours",
        168,
        whole(1, HOURS_MAX),
        "age at which a file that no table refers to is deleted, hours",
    )
    stream_zk_connect: str = setting(
        "load.stream.zk.connect",
        "",
        text,
        "with load.interval.ms: ZooKeeper of the live datacenter, over whose brokers the stream "
        "job related-items runs in the same Spark session; empty: it does not run",
    )
    stream_dir: Path = setting(
        "load.stream.dir", Path("var/streams"), path, "directory of that job's checkpoint"
    )
    report_dir: Path | None = shared(
        ReportPlace,
        "report.dir",
        doc="directory of the reports' tables and charts; unset: `reports` beside warehouse.dir, "
        "var/reports if that is in an object store",
    )
    report_table: str = setting(
        "report.table",
        "",
        text,
        "table to report on; empty: access_log if it exists, else page_view",
    )

    @property
    def reports_dir(self) -> Path:
        """Where reports are written."""
        if self.report_dir is not None:
            return self.report_dir
        tables = self.warehouse_dir
        return tables.parent / "reports" if isinstance(tables, Path) else Path("var/reports")
