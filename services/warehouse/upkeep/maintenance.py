"""Maintains tables: joins small files, drops old hours, removes files that no version names.

Each load adds a file an hour and task, so a loop leaves thousands of small ones; compaction joins
those of one hour. Remaining rows, offsets and counts do not change: app transactions survive, and
the commits that the audit follows stay in the log (30 days). It may run beside loads and readers:
a reader's files stay on disk for the retention of `vacuum`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN
from kafka2011.services.warehouse.load.parquet_files import (
    COMPRESSION_LEVEL,
    has_statistics,
    hour_name,
)
from kafka2011.services.warehouse.load_commits import DROPPED_APP, MS_PER_HOUR
from kafka2011.services.warehouse.table_paths import all_tables

log = get_logger(__name__)

TARGET_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """What upkeep does. `files_min`: an hour with at least this many files is compacted.
    `retention_hours`: 0 keeps every row. `vacuum_hours`: how long a file is kept that the newest
    version does not name."""

    files_min: int = 8
    retention_hours: int = 0
    vacuum_hours: int = 168


@dataclass(frozen=True, slots=True)
class UpkeepOutcome:
    files_joined: int = 0
    files_written: int = 0
    hours_dropped: int = 0
    files_removed: int = 0


def oldest_hour(policy: UpkeepPolicy, at_ms: int) -> str | None:
    """The oldest hour to keep; None keeps all."""
    if policy.retention_hours == 0:
        return None
    return hour_name(at_ms // MS_PER_HOUR - policy.retention_hours)


def maintain_table(path: StoragePath, policy: UpkeepPolicy, clock: Clock = now_ms) -> UpkeepOutcome:
    """Drop old hours of one table, compact it and vacuum it. Does nothing where there is none.

    A conflicting commit of another process ends this round early; the next one continues. What
    cannot be dropped stays, and so does an hour that cannot be compacted: delta-rs cannot read a
    map whose records have gained a field since, for one.
    """
    try:
        table = storage.open_table(path)
    except TableNotFoundError:
        return UpkeepOutcome()
    joined = written = dropped = 0
    failed: dict[str, str] = {}
    try:
        try:
            dropped = _drop_old(table, policy, clock())
        except CommitFailedError:
            raise
        except (DeltaError, OSError) as error:
            log.warning("not_dropped", table=path.name, reason=first_line(error))
        for hour in _crowded_hours(table, policy.files_min):
            try:
                done = _compact(table, hour)
            except CommitFailedError:
                raise
            except (DeltaError, OSError) as error:
                failed[hour] = first_line(error)
                continue
            joined += int(done["numFilesRemoved"])
            written += int(done["numFilesAdded"])
    except CommitFailedError as error:
        log.info("upkeep_postponed", table=path.name, reason=str(error))
    if failed:
        first, reason = next(iter(failed.items()))
        log.warning("not_compacted", table=path.name, hours=len(failed), first=first, reason=reason)
    table.update_incremental()
    removed: list[str] = []
    inside = storage.inner_table(path)
    if inside is None:
        removed = table.vacuum(
            retention_hours=policy.vacuum_hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
    else:  # vacuum would remove that table's files, which this log does not name
        log.warning("not_vacuumed", table=path.name, holds_table=str(inside))
    outcome = UpkeepOutcome(joined, written, dropped, len(removed))
    if outcome != UpkeepOutcome():
        log.info(
            "upkeep",
            table=path.name,
            files_joined=joined,
            files_written=written,
            hours_dropped=dropped,
            files_removed=len(removed),
        )
    return outcome


def maintain_warehouse(
    warehouse_dir: StoragePath, policy: UpkeepPolicy, clock: Clock = now_ms
) -> None:
    """Maintain every table, including those of the quarantine.

    A table that cannot be maintained is logged and does not keep the others from it.
    """
    for path in all_tables(warehouse_dir):
        try:
            maintain_table(path, policy, clock)
        except (DeltaError, OSError) as error:
            log.warning("upkeep_failed", table=path.name, error=first_line(error))


def _hours(table: DeltaTable) -> Counter[str]:
    """The number of files by hour."""
    actions = table.get_add_actions(flatten=True)
    return Counter(str(hour) for hour in actions.column(f"partition.{HOUR_COLUMN}").to_pylist())


def _crowded_hours(table: DeltaTable, files_min: int) -> list[str]:
    return sorted(hour for hour, files in _hours(table).items() if files >= files_min)


def _compact(table: DeltaTable, hour: str) -> dict[str, Any]:
    """Join the hour's files; returns delta-rs's metrics."""
    columns = pa.schema(table.schema().to_arrow())
    with_statistics = ColumnProperties(statistics_enabled="CHUNK")
    done: dict[str, Any] = table.optimize.compact(
        partition_filters=[(HOUR_COLUMN, "=", hour)],
        target_size=TARGET_BYTES,
        max_concurrent_tasks=1,
        writer_properties=WriterProperties(
            compression="ZSTD",
            compression_level=COMPRESSION_LEVEL,
            default_column_properties=ColumnProperties(statistics_enabled="NONE"),
            column_properties={
                each.name: with_statistics for each in columns if has_statistics(each.type)
            },
        ),
    )
    return done


def _drop_old(table: DeltaTable, policy: UpkeepPolicy, at_ms: int) -> int:
    """Delete whole hours, which rewrites no file; returns their number. The commit says up to when,
    so that a recount does not miss their rows."""
    oldest = oldest_hour(policy, at_ms)
    if oldest is None:
        return 0
    old = [hour for hour in _hours(table) if hour < oldest]
    if old:
        first_kept = at_ms // MS_PER_HOUR - policy.retention_hours
        with storage.no_panic():
            table.delete(
                f"{HOUR_COLUMN} < '{oldest}'",
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(DROPPED_APP, first_kept)]
                ),
            )
    return len(old)
