"""Reads guid, time and server of every row of the warehouse's tables, for the recount.

Reads the files of a table's newest version, as a report does. Importing this module loads Arrow and
delta-rs; the running service does not.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.header import GUID_BYTES
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.audit.payloads import Note
from kafka2011.services.warehouse import delta_log, storage
from kafka2011.services.warehouse.delta_table import WarehouseTable, loaded_topics, owner_of
from kafka2011.services.warehouse.errors import DamagedLog
from kafka2011.services.warehouse.load.schema_columns import says_origin
from kafka2011.services.warehouse.load_commits import (
    APP_PREFIX,
    DROPPED_APP,
    METADATA_KEY,
    MS_PER_HOUR,
    app_id,
)
from kafka2011.services.warehouse.table_paths import (
    quarantine_directories,
    rows_directories,
    table_directories,
)

ROWS_MAX = 65_536
UNREADABLE = (
    OSError,
    DeltaError,
    DamagedLog,
    json.JSONDecodeError,
)  # what reading files and tables' logs raises


class Rows(NamedTuple):
    """Some rows of a table, column by column.

    A server is None where the row is counted as one whose header cannot be read.
    """

    guids: list[bytes]
    times_ms: list[int]
    servers: list[str | None]


class TopicTable(NamedTuple):
    """A table and the topic that is loaded into it."""

    topic: str
    path: StoragePath


def topic_tables(warehouse_dir: StoragePath) -> list[TopicTable]:
    """The tables of rows and the topics that were loaded into them, by topic.

    Earlier versions loaded `a-b` and `a_b` into one table, which is listed for each of them.
    """
    return _loaded_below(rows_directories(warehouse_dir))


def quarantine_tables(warehouse_dir: StoragePath) -> list[TopicTable]:
    """The quarantine's tables and the topics that were loaded into them, by topic."""
    return _loaded_below(quarantine_directories(warehouse_dir))


def _loaded_below(parents: Sequence[StoragePath]) -> list[TopicTable]:
    return sorted(
        TopicTable(topic, path)
        for path in table_directories(parents)
        for topic in loaded_topics(path)
    )


def loaded_offsets(warehouse_dir: StoragePath) -> Callable[[str, BrokerPartition], int | None]:
    """A function for the offset up to which the loads have taken a topic's partition."""
    loaded: dict[str, int] = {}
    # A topic that has left a shared table goes on in its own, which therefore comes last.
    for topic, path in sorted(
        topic_tables(warehouse_dir), key=lambda table: owner_of(table.path) == table.topic
    ):
        for name, offset in delta_log.app_transactions(path).items():
            if name.rpartition("/")[0] == f"{APP_PREFIX}{topic}":
                loaded[name] = offset
    return lambda topic, partition: loaded.get(app_id(topic, partition))


def whole_from_ms(path: StoragePath) -> int:
    """From when on (ms since the epoch) a table has all hours: before, upkeep has dropped them; 0
    where it has dropped none, or did so with an older version."""
    return max(0, delta_log.app_transactions(path).get(DROPPED_APP, 0)) * MS_PER_HOUR


def shared_files(tables: Sequence[TopicTable]) -> dict[StoragePath, dict[str, str]]:
    """For each table of several topics: its files by their paths, and the topic of each.

    The topic is in the commit of the load that added the file; a file that compaction wrote, or
    whose commit was cleaned up, is left out.
    """
    counts = Counter(table.path for table in tables)
    found: dict[StoragePath, dict[str, str]] = {}
    for path in (path for path, count in counts.items() if count > 1):
        files = found[path] = {}
        for _, actions in delta_log.commits_after(path, -1):
            loads = [a["commitInfo"][METADATA_KEY] for a in actions if _is_load(a)]
            if loads:
                topic = json.loads(loads[0])["topic"]
                added = [action["add"]["path"] for action in actions if "add" in action]
                files.update({str(path / unquote(name)): topic for name in added})
    return found


def _is_load(action: delta_log.Action) -> bool:
    return METADATA_KEY in action.get("commitInfo", {})


def rows_of(
    path: StoragePath, files: Collection[str] | None = None, unread: Note | None = None
) -> Iterator[Rows]:
    """Every row of the table's newest version, or of those of its files that are in `files`.

    `unread` receives a line for each file that cannot be read, or not to its end. Raises OSError or
    ArrowException without it.
    """
    for batch in _batches(path, ["guid", "header_time", "server", "service"], files, unread):
        servers = pc.if_else(says_origin(batch), batch.column("server"), None)
        times_us = batch.column("header_time").cast(pa.int64()).to_pylist()
        yield Rows(
            [_sixteen(guid) for guid in batch.column("guid").to_pylist()],
            [-1 if time_us is None else time_us // 1000 for time_us in times_us],
            servers.to_pylist(),
        )


def quarantined_of(
    path: StoragePath, files: Collection[str] | None = None, unread: Note | None = None
) -> Iterator[list[bytes]]:
    """The payloads in a quarantine table: messages that were read but could not become rows. The
    rest as for `rows_of`."""
    for batch in _batches(path, ["payload"], files, unread):
        yield [payload or b"" for payload in batch.column("payload").to_pylist()]


def present_files(path: StoragePath) -> list[str]:
    """The files of the table's newest version."""
    table = WarehouseTable.open(path)
    return table.file_paths() if table is not None else []


def _batches(
    path: StoragePath, columns: list[str], files: Collection[str] | None, unread: Note | None
) -> Iterator[Any]:
    for file_path in present_files(path):
        if files is not None and file_path not in files:
            continue
        try:
            with storage.parquet_file(file_path) as file:
                yield from file.iter_batches(batch_size=ROWS_MAX, columns=columns)
        except (OSError, pa.ArrowException) as error:
            # Deleted since the list was made (a vacuum, retention), or damaged.
            if unread is None:
                raise
            name = file_path.removeprefix(f"{path}/")
            unread(f"file {name} of table {path.name} is not read: {first_line(error)}")


def _sixteen(guid: bytes | None) -> bytes:
    """A guid of the tally's length, whatever the column holds."""
    return (guid or b"").ljust(GUID_BYTES, b"\0")[:GUID_BYTES]
