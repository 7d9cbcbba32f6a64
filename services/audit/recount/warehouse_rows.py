"""Reads guid, time and server of every row of the warehouse's tables, for the recount.

Reads the files of a table's newest version, as a report does. Importing this module loads Arrow and
delta-rs; the running service does not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kafka2011.services.warehouse import delta_log
from kafka2011.services.warehouse.delta_table import WarehouseTable

ROWS_MAX = 65_536
APP_PREFIX = "load/"
GUID_BYTES = 16


class Rows(NamedTuple):
    """Some rows of a table, column by column."""

    guids: list[bytes]
    times_ms: list[int]
    servers: list[str]


class TopicTable(NamedTuple):
    """A table and the topic that is loaded into it."""

    topic: str
    path: Path


def topic_tables(warehouse_dir: Path) -> list[TopicTable]:
    """The tables directly below `warehouse_dir` that were loaded from a topic, by topic."""
    found = []
    for path in sorted(warehouse_dir.iterdir()) if warehouse_dir.is_dir() else []:
        if (path / "_delta_log").is_dir():
            topics = {
                name.removeprefix(APP_PREFIX).rpartition("/")[0]
                for name in delta_log.app_transactions(path)
                if name.startswith(APP_PREFIX)
            }
            found += [TopicTable(topic, path) for topic in topics]
    return sorted(found)


def rows_of(path: Path) -> Iterator[Rows]:
    """Every row of the table's newest version."""
    for batch in _batches(path, ["guid", "header_time", "server"]):
        times_us = batch.column("header_time").cast(pa.int64()).to_pylist()
        yield Rows(
            [_sixteen(guid) for guid in batch.column("guid").to_pylist()],
            [-1 if time_us is None else time_us // 1000 for time_us in times_us],
            [server or "" for server in batch.column("server").to_pylist()],
        )


def quarantined_of(path: Path) -> Iterator[list[bytes]]:
    """The payloads in a quarantine table: messages that were read but could not become rows."""
    for batch in _batches(path, ["payload"]):
        yield [payload or b"" for payload in batch.column("payload").to_pylist()]


def _batches(path: Path, columns: list[str]) -> Iterator[Any]:
    table = WarehouseTable.open(path)
    for file_path in table.file_paths() if table is not None else ():
        with pq.ParquetFile(file_path) as file:
            yield from file.iter_batches(batch_size=ROWS_MAX, columns=columns)


def _sixteen(guid: bytes | None) -> bytes:
    """A guid of the tally's length, whatever the column holds."""
    return (guid or b"").ljust(GUID_BYTES, b"\0")[:GUID_BYTES]
