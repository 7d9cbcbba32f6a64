"""Where a message is in the warehouse: the commit that took it, and its row or quarantined payload.

A row has the partition of its message and the next offset of its entry, so that a place of the
offline logs leads to it, in the table's newest version. Importing this module loads Arrow and
delta-rs.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka2011.coordination.paths import BrokerPartition
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.trace.search import EntryLocation
from kafka2011.services.warehouse import delta_log, storage
from kafka2011.services.warehouse.delta_table import WarehouseTable, owner_of
from kafka2011.services.warehouse.errors import DamagedLog
from kafka2011.services.warehouse.load_commits import METADATA_KEY
from kafka2011.services.warehouse.table_paths import (
    find_table,
    quarantine_directories,
    rows_directories,
    table_directories,
)

# What is raised where a table, its log or a file of it cannot be read.
UNREADABLE = (DeltaError, DamagedLog, OSError, pa.ArrowException)
COMMITS_MAX = 5_000  # looked at, from the newest on
BATCH_ROWS = 65_536
SOURCE_COLUMNS = ("source_broker", "source_partition", "source_offset")


@dataclass(frozen=True, slots=True)
class Commit:
    """The load that took a place: `files` are those it added; `is_gap`: retention had deleted the
    place before it was loaded; `has_quarantined`: some of its messages could not become rows."""

    version: int
    timestamp_ms: int
    files: tuple[str, ...]
    is_gap: bool = False
    has_quarantined: bool = False


class Row(NamedTuple):
    """Row `row` (from 0) of a Parquet file of `table`; `reason`: why it is in quarantine, else
    empty."""

    table: str
    file: str
    row: int
    source: BrokerPartition
    next_offset: int
    guid: bytes
    reason: str = ""


class OutOfTime(Exception):
    """The deadline has passed: nothing can be said."""


class Tables:
    """The tables of one topic in their newest versions; a missing one is like an empty one.

    Methods raise UNREADABLE, and OutOfTime after `deadline` (monotonic, s): a commit or a file is a
    request in an object store, and there may be thousands.
    """

    def __init__(self, warehouse_dir: StoragePath, topic: str, deadline: float) -> None:
        self._topic = topic
        self._deadline = deadline
        self._rows_path = find_table(rows_directories(warehouse_dir), topic)
        self._quarantine_path = find_table(quarantine_directories(warehouse_dir), topic)
        self._rows = WarehouseTable.open(self._rows_path) if self._rows_path else None
        aside = self._quarantine_path
        self._quarantine = WarehouseTable.open(aside) if aside else None

    def loaded_up_to(self, source: BrokerPartition) -> int | None:
        """Next offset of the loads; None: they have taken nothing of the partition."""
        return self._rows.next_offset(self._topic, source) if self._rows is not None else None

    def commit_of(self, place: EntryLocation) -> Commit | None:
        """The load that took the place; None when it is not among those still in the log."""
        if self._rows_path is None:
            return None
        for version in reversed(delta_log.versions(self._rows_path)[-COMMITS_MAX:]):
            self._check_time()
            found = _commit(version, delta_log.actions(self._rows_path, version), place)
            if found is not None:
                return found
        return None

    def rows(self, place: EntryLocation, guid: bytes | None) -> list[Row]:
        """The rows of an entry; with a `guid`, only its own."""
        return self._at(self._rows, place, lambda row: guid is None or row.guid == guid)

    def quarantined(self, place: EntryLocation, payload: bytes | None) -> list[Row]:
        """The messages of an entry that could not become rows; with a payload, only equal ones."""
        if self._quarantine is None:
            return []
        found = self._at(self._quarantine, place, lambda _: True)
        if payload is None:
            return found
        path = self._quarantine.path
        return [row for row in found if _cell(path / row.file, row.row, "payload") == payload]

    def has_files(self, files: Sequence[str]) -> bool:
        """Whether the table's newest version has all of these files."""
        if self._rows is None:
            return False
        there = set(self._rows.file_paths())
        return all(str(self._rows.path / file) in there for file in files)

    def _at(
        self, table: WarehouseTable | None, place: EntryLocation, fits: Callable[[Row], bool]
    ) -> list[Row]:
        if table is None:
            return []
        found: list[Row] = []
        for file in table.files_with_offset(place.next_offset):
            self._check_time()
            rows = _rows_where(table.path, file, "source_offset", place.next_offset)
            found += [row for row in rows if row.source == place.source and fits(row)]
        return found

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime


def find_guid(
    warehouse_dir: StoragePath, guid: bytes, topics: Sequence[str], deadline: float
) -> tuple[str, list[Row], list[str]]:
    """(topic, rows, gaps) of a guid, in the tables of `topics` or of all; the first two are empty
    when it was not found. `gaps`: what was not read by `deadline` (monotonic, s), or cannot be."""
    gaps: list[str] = []
    try:
        tables = [*table_directories(rows_directories(warehouse_dir))]
    except OSError as error:
        return "", [], [f"the warehouse cannot be read: {first_line(error)}"]
    for path in tables:
        try:
            topic = owner_of(path)
            if topic is None or (topics and topic not in topics):
                continue
            rows, gap = _rows_with_guid(path, guid, deadline)
        except UNREADABLE as error:
            rows, gap = [], f"table {path.name} cannot be read: {first_line(error)}"
        if rows:
            return topic or "", rows, []
        if gap:
            gaps.append(gap)
    return "", [], gaps


def _rows_with_guid(path: StoragePath, guid: bytes, deadline: float) -> tuple[list[Row], str]:
    """The rows of a guid, and why there may be others. Raises UNREADABLE."""
    table = WarehouseTable.open(path)
    for file in table.file_paths() if table is not None else []:
        if time.monotonic() > deadline:
            return [], f"table {path.name} was not read to its end, for lack of time"
        rows = _rows_where(path, file.removeprefix(f"{path.resolve()}/"), "guid", guid)
        if rows:
            return rows, ""
    return [], ""


def _commit(version: int, actions: list[delta_log.Action], place: EntryLocation) -> Commit | None:
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    if METADATA_KEY not in info:
        return None
    load = json.loads(info[METADATA_KEY])
    files = tuple(action["add"]["path"] for action in actions if "add" in action)
    for name in ("offsets", "gaps"):
        start, end = load[name].get(place.source.text, (0, 0))
        if start < place.next_offset <= end:
            has_quarantined = bool(load["quarantined"])
            return Commit(version, int(info["timestamp"]), files, name == "gaps", has_quarantined)
    return None


def _rows_where(table: StoragePath, file: str, column: str, value: int | bytes) -> list[Row]:
    """The rows of a file that have this value in a column; none if the file lacks the column."""
    found: list[Row] = []
    with storage.parquet_file(table / file) as opened:
        names = set(opened.schema_arrow.names)
        if column not in names:
            return []
        columns = [name for name in (*SOURCE_COLUMNS, "guid", "reason") if name in names]
        start = 0
        for batch in opened.iter_batches(BATCH_ROWS, columns=columns):
            # Compared in Python: a scalar of Arrow loads pandas, which takes longer than the rest.
            values = batch.column(column).to_pylist()
            for index in [at for at, found_value in enumerate(values) if found_value == value]:
                cells: dict[str, Any] = {
                    name: batch.column(name)[index].as_py() for name in columns
                }
                source = BrokerPartition(cells["source_broker"], cells["source_partition"])
                guid, reason = cells.get("guid") or b"", cells.get("reason") or ""
                place = source, cells["source_offset"]
                found.append(Row(table.name, file, start + index, *place, guid, reason))
            start += batch.num_rows
    return found


def _cell(file: StoragePath, row: int, column: str) -> Any:
    return storage.read_columns(file, [column]).column(column)[row].as_py()
