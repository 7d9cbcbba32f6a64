"""The audit's books in SQLite: counts together with the offsets up to which they were read.

One transaction holds every number that changed since the last one, as it is now, so that writing
the same change twice does no harm. After a crash reading continues at the stored offsets and counts
again what the lost transaction had counted. Used by one thread at a time.
"""

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka2011.runtime.storage_paths import lock_file
from kafka2011.services.audit.books.heartbeats import RESTARTS_MAX

# 1: `folded` without `redelivered`; 2: `sequences` without times; 3: without known_ms;
# 4: `folded` without `not_audited`, `cells` without counted_ms, `heartbeats` without spans (JSON);
# 5: `sequences` without oldest_ms and newest_ms.
FORMAT = 6

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (
    tier TEXT, topic TEXT, broker_id INTEGER, partition INTEGER, next_offset INTEGER NOT NULL,
    PRIMARY KEY (tier, topic, broker_id, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tails (
    tier TEXT, topic TEXT, broker_id INTEGER, partition INTEGER, next_offset INTEGER NOT NULL,
    size INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (tier, topic, broker_id, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS table_versions (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS table_marks (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, digest TEXT NOT NULL, topics TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cells (
    topic TEXT, window_start_ms INTEGER, server TEXT, tier TEXT,
    produced INTEGER NOT NULL, counted INTEGER NOT NULL, counted_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, window_start_ms, server, tier)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sequences (
    server TEXT, instance TEXT, first INTEGER, last INTEGER NOT NULL, last_seen_ms INTEGER NOT NULL,
    first_ms INTEGER NOT NULL DEFAULT 0, last_ms INTEGER NOT NULL DEFAULT 0,
    known_ms INTEGER NOT NULL DEFAULT 0,
    oldest_ms INTEGER NOT NULL DEFAULT 0, newest_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (server, instance, first)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS finals (
    server TEXT, instance TEXT, last_sequence INTEGER NOT NULL, time_ms INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL, known_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (server, instance)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folded (
    tier TEXT, topic TEXT, cells INTEGER, produced INTEGER, expected INTEGER, counted INTEGER,
    missing INTEGER, extra INTEGER, redelivered INTEGER NOT NULL DEFAULT 0,
    not_audited INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tier, topic)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heartbeats (
    tier TEXT, server TEXT, time_ms INTEGER NOT NULL, interval_ms INTEGER NOT NULL,
    is_last INTEGER NOT NULL, instance TEXT NOT NULL DEFAULT '', spans TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (tier, server)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS restarts (
    tier TEXT, server TEXT, time_ms INTEGER, PRIMARY KEY (tier, server, time_ms)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS delays (tier TEXT PRIMARY KEY, histogram BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS retained (
    tier TEXT, topic TEXT, from_ms INTEGER NOT NULL, PRIMARY KEY (tier, topic)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cuts (
    tier TEXT, topic TEXT, broker_id INTEGER, partition INTEGER,
    from_ms INTEGER NOT NULL, is_waiting INTEGER NOT NULL,
    PRIMARY KEY (tier, topic, broker_id, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unread (
    number INTEGER PRIMARY KEY, time_ms INTEGER, tier TEXT, topic TEXT, place TEXT,
    first INTEGER, last INTEGER, reason TEXT);
"""

# The columns that the next format added, by format.
_ADDED_COLUMNS = {
    "1": [("folded", "redelivered INTEGER NOT NULL DEFAULT 0")],
    "2": [
        ("sequences", "first_ms INTEGER NOT NULL DEFAULT 0"),
        ("sequences", "last_ms INTEGER NOT NULL DEFAULT 0"),
        ("heartbeats", "instance TEXT NOT NULL DEFAULT ''"),
    ],
    "3": [
        ("sequences", "known_ms INTEGER NOT NULL DEFAULT 0"),
        ("finals", "known_ms INTEGER NOT NULL DEFAULT 0"),
    ],
    "4": [
        ("folded", "not_audited INTEGER NOT NULL DEFAULT 0"),
        ("cells", "counted_ms INTEGER NOT NULL DEFAULT 0"),
        ("heartbeats", "spans TEXT NOT NULL DEFAULT '[]'"),
    ],
    "5": [
        ("sequences", "oldest_ms INTEGER NOT NULL DEFAULT 0"),
        ("sequences", "newest_ms INTEGER NOT NULL DEFAULT 0"),
    ],
}


class StoreMismatch(Exception):
    """The books were written with other settings. One line for the user: use another data.dir."""


class BooksInUse(Exception):
    """Another process writes these books. One line for the user."""


@dataclass
class Changes:
    """Rows to write, each the present value; `gone_*` are keys whose rows are deleted."""

    positions: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    tails: list[tuple[str, str, int, int, int, int, bytes]] = field(default_factory=list)
    table_versions: list[tuple[str, int]] = field(default_factory=list)
    table_marks: list[tuple[str, int, str, str]] = field(default_factory=list)
    cells: list[tuple[str, int, str, str, int, int, int]] = field(default_factory=list)
    gone_cells: list[tuple[str, int, str]] = field(default_factory=list)
    sequences: list[tuple[str, str, int, int, int, int, int, int, int, int]] = field(
        default_factory=list
    )
    finals: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    rewritten_instances: list[tuple[str, str]] = field(default_factory=list)
    folded: list[tuple[str, str, int, int, int, int, int, int, int, int]] = field(
        default_factory=list
    )
    heartbeats: list[tuple[str, str, int, int, bool, str, str]] = field(default_factory=list)
    gone_heartbeats: list[tuple[str, str]] = field(default_factory=list)
    restarts: list[tuple[str, str, int]] = field(default_factory=list)
    delays: list[tuple[str, bytes]] = field(default_factory=list)
    cuts: list[tuple[str, str, int, int, int, bool]] = field(default_factory=list)
    unread: list[tuple[int, int, str, str, str, int, int, str]] = field(default_factory=list)
    gone_unread: list[tuple[int]] = field(default_factory=list)
    meta: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__dataclass_fields__)


class AuditStore:
    """The database `path`, created when it does not exist, and locked until `close`.

    Raises StoreMismatch when it was written with another window width, other tiers or servers,
    BooksInUse when another process has it.
    """

    def __init__(
        self,
        path: Path,
        *,
        window_ms: int,
        tiers: Sequence[str],
        servers: tuple[str, str] = ("", ""),
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            self._lock = _locked(path.with_suffix(".lock"))
            undo.callback(os.close, self._lock)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            undo.callback(self._database.close)
            self._database.execute("PRAGMA journal_mode=WAL")
            # A transaction lost to a power failure is counted again from its own offsets.
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(_TABLES)
            self._check(path, window_ms, tiers, servers)
            undo.pop_all()

    def _check(
        self, path: Path, window_ms: int, tiers: Sequence[str], servers: tuple[str, str]
    ) -> None:
        wanted = {
            "format": str(FORMAT),
            "audit.window.ms": str(window_ms),
            "tiers": ",".join(tiers),
            "audit.servers.whitelist": servers[0],
            "audit.servers.blacklist": servers[1],
        }
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            stored = dict(self._database.execute("SELECT name, value FROM meta"))
            if stored.get("format") in _ADDED_COLUMNS:
                for format_before in range(int(stored["format"]), FORMAT):
                    for table, column in _ADDED_COLUMNS[str(format_before)]:
                        self._database.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
                stored["format"] = str(FORMAT)
                self._database.execute(
                    "UPDATE meta SET value=? WHERE name='format'", (str(FORMAT),)
                )
            for name, value in wanted.items():
                if stored.setdefault(name, value) != value:
                    raise StoreMismatch(
                        f"{path} was kept with {name}={stored[name]}, not {value}: "
                        "give another data.dir, or remove it to count everything again"
                    )
            self._database.executemany(
                "INSERT OR IGNORE INTO meta VALUES (?, ?)", list(wanted.items())
            )

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Every row of one table, columns in the order of `_TABLES`."""
        assert table.isidentifier()
        return self._database.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608

    def write(self, changes: Changes) -> None:
        """Write all changes or none. Raises sqlite3.Error (disk full): keep them and try again."""
        execute = self._database.executemany
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            execute("INSERT OR REPLACE INTO positions VALUES (?,?,?,?,?)", changes.positions)
            execute("INSERT OR REPLACE INTO tails VALUES (?,?,?,?,?,?,?)", changes.tails)
            execute("INSERT OR REPLACE INTO table_versions VALUES (?,?)", changes.table_versions)
            execute("INSERT OR REPLACE INTO table_marks VALUES (?,?,?,?)", changes.table_marks)
            execute(
                "DELETE FROM cells WHERE topic=? AND window_start_ms=? AND server=?",
                changes.gone_cells,
            )
            execute("INSERT OR REPLACE INTO cells VALUES (?,?,?,?,?,?,?)", changes.cells)
            execute(
                "DELETE FROM sequences WHERE server=? AND instance=?", changes.rewritten_instances
            )
            execute("DELETE FROM finals WHERE server=? AND instance=?", changes.rewritten_instances)
            execute(
                "INSERT OR REPLACE INTO sequences VALUES (?,?,?,?,?,?,?,?,?,?)", changes.sequences
            )
            execute("INSERT OR REPLACE INTO finals VALUES (?,?,?,?,?,?)", changes.finals)
            execute("INSERT OR REPLACE INTO folded VALUES (?,?,?,?,?,?,?,?,?,?)", changes.folded)
            execute("DELETE FROM heartbeats WHERE tier=? AND server=?", changes.gone_heartbeats)
            execute("INSERT OR REPLACE INTO heartbeats VALUES (?,?,?,?,?,?,?)", changes.heartbeats)
            execute("INSERT OR REPLACE INTO restarts VALUES (?,?,?)", changes.restarts)
            # As many as the heartbeats keep.
            newest = "SELECT time_ms FROM restarts ORDER BY time_ms DESC LIMIT 1 OFFSET ?"
            self._database.execute(
                f"DELETE FROM restarts WHERE time_ms < ({newest})",  # noqa: S608
                (RESTARTS_MAX - 1,),
            )
            execute("INSERT OR REPLACE INTO delays VALUES (?,?)", changes.delays)
            execute("INSERT OR REPLACE INTO cuts VALUES (?,?,?,?,?,?)", changes.cuts)
            execute("INSERT OR REPLACE INTO unread VALUES (?,?,?,?,?,?,?,?)", changes.unread)
            execute("DELETE FROM unread WHERE number=?", changes.gone_unread)
            execute("INSERT OR REPLACE INTO meta VALUES (?,?)", changes.meta)

    def close(self) -> None:
        """Close the books and let another process have them. Idempotent."""
        self._database.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(path: Path) -> int:
    """A descriptor that holds the lock until it is closed. Raises BooksInUse, OSError."""
    try:
        return lock_file(path)
    except BlockingIOError:
        raise BooksInUse(
            f"another audit keeps its books in {path.parent}: stop it, or give another data.dir"
        ) from None
