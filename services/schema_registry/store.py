"""The registry's SQLite file in WAL mode: schemas, versions, levels, modes.

    schemas     id -> digest, text, references     a row is never deleted: an id means one schema
    versions    subject, version -> schema id      soft deletion marks, permanent deletion removes
    uses        schema id -> subject, version      what a schema's references name
    settings    kind, subject -> value             levels and modes, the subject '' is the whole
                                                   registry; highest version number ever given

Every write is one transaction, written through (synchronous=FULL) before it is answered. Callers
hold one lock around a decision and its writes (`registration.py`). Readers have connections of
their own: each sees one moment of the file and waits for no writer, which is what WAL is for.
"""

import contextlib
import queue
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafka2011.runtime.storage_paths import make_directory

_TABLES = """
CREATE TABLE IF NOT EXISTS schemas (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, text TEXT NOT NULL,
    refs TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS versions (
    subject TEXT NOT NULL, version INTEGER NOT NULL, schema_id INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (subject, version)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS versions_by_schema ON versions (schema_id);
CREATE TABLE IF NOT EXISTS uses (
    schema_id INTEGER NOT NULL, subject TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (schema_id, subject, version)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uses_by_version ON uses (subject, version);
CREATE TABLE IF NOT EXISTS settings (
    kind TEXT NOT NULL, subject TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (kind, subject)) WITHOUT ROWID;
PRAGMA user_version = 1;
"""
FORMAT = 1


class StoredSchema(NamedTuple):
    """A schema as it is stored. `references` is their JSON text, `[]` for none."""

    id: int
    text: str
    references: str


class StoredVersion(NamedTuple):
    subject: str
    version: int
    schema_id: int
    is_deleted: bool


class Queries:
    """Reads the file. Every method raises sqlite3.Error when the disk fails."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def schema(self, schema_id: int) -> StoredSchema | None:
        row = self._db.execute(
            "SELECT id, text, refs FROM schemas WHERE id = ?", (schema_id,)
        ).fetchone()
        return StoredSchema(*row) if row else None

    def id_by_digest(self, digest: str) -> int | None:
        row = self._db.execute("SELECT id FROM schemas WHERE digest = ?", (digest,)).fetchone()
        return row[0] if row else None

    def id_max(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(id), 0) FROM schemas").fetchone()[0])

    def versions(self, subject: str) -> list[StoredVersion]:
        """Every version of a subject, softly deleted ones too, oldest first."""
        return self._versions("subject = ?", (subject,))

    def versions_of_schema(self, schema_id: int) -> list[StoredVersion]:
        return self._versions("schema_id = ?", (schema_id,))

    def all_versions(self) -> list[StoredVersion]:
        return self._versions("1", ())

    def users_of(self, subject: str, version: int) -> list[StoredVersion]:
        """Versions, not softly deleted, whose schemas refer to that version."""
        return self._versions(
            "is_deleted = 0 AND schema_id IN "
            "(SELECT schema_id FROM uses WHERE subject = ? AND version = ?)",
            (subject, version),
        )

    def _versions(self, where: str, values: tuple[object, ...]) -> list[StoredVersion]:
        rows = self._db.execute(
            "SELECT subject, version, schema_id, is_deleted FROM versions "  # noqa: S608 - ours
            f"WHERE {where} ORDER BY subject, version",
            values,
        )
        return [StoredVersion(s, v, i, bool(d)) for s, v, i, d in rows]

    def setting(self, kind: str, subject: str) -> str | None:
        row = self._db.execute(
            "SELECT value FROM settings WHERE kind = ? AND subject = ?", (kind, subject)
        ).fetchone()
        return row[0] if row else None

    def counts(self) -> tuple[int, int, int]:
        """The numbers of schemas, subjects, versions (not deleted); also the readiness check."""
        schemas = self._db.execute("SELECT count(*) FROM schemas").fetchone()[0]
        subjects, versions = self._db.execute(
            "SELECT count(DISTINCT subject), count(*) FROM versions WHERE is_deleted = 0"
        ).fetchone()
        return schemas, subjects, versions


class RegistryStore(Queries):
    """The file, for one writer; `reading` is for all others.

    Every method raises sqlite3.Error when the disk fails; no write is partial.
    """

    def __init__(self, path: Path) -> None:
        make_directory(path.parent)
        self._path = path
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        super().__init__(sqlite3.connect(path, check_same_thread=False, isolation_level=None))
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, FORMAT):
                raise sqlite3.DatabaseError(f"{path} was written by a newer registry ({found})")
            self._db.executescript(_TABLES)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file; no `reading` may be in progress."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        self._db.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Queries]:
        """The file as it is at this moment, whatever is written meanwhile; from any thread."""
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            connection.execute("PRAGMA query_only = ON")
        try:
            connection.execute("BEGIN")
            try:
                yield Queries(connection)
            finally:
                connection.execute("ROLLBACK")  # there was nothing to commit
        except sqlite3.Error:
            connection.close()
            raise
        except BaseException:
            self._readers.put(connection)
            raise
        self._readers.put(connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside happen, or none."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add_schema(
        self,
        digest: str,
        text: str,
        references: str,
        uses: list[tuple[str, int]],
        schema_id: int | None = None,
    ) -> int:
        """Store a schema under the next id, or under `schema_id`, and return the id."""
        made = self._db.execute(
            "INSERT INTO schemas (id, digest, text, refs) VALUES (?, ?, ?, ?)",
            (schema_id, digest, text, references),
        ).lastrowid
        assert made is not None
        self._db.executemany(
            "INSERT OR IGNORE INTO uses VALUES (?, ?, ?)",
            [(made, subject, version) for subject, version in uses],
        )
        return made

    def add_version(self, subject: str, version: int, schema_id: int) -> None:
        self._db.execute(
            "INSERT INTO versions VALUES (?, ?, ?, 0) ON CONFLICT (subject, version) "
            "DO UPDATE SET schema_id = excluded.schema_id, is_deleted = 0",
            (subject, version, schema_id),
        )

    def mark_deleted(self, subject: str, versions: list[int]) -> None:
        self._db.executemany(
            "UPDATE versions SET is_deleted = 1 WHERE subject = ? AND version = ?",
            [(subject, version) for version in versions],
        )

    def remove(self, subject: str, versions: list[int]) -> None:
        self._db.executemany(
            "DELETE FROM versions WHERE subject = ? AND version = ?",
            [(subject, version) for version in versions],
        )

    def set(self, kind: str, subject: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (kind, subject, value))

    def unset(self, kind: str, subject: str) -> None:
        self._db.execute("DELETE FROM settings WHERE kind = ? AND subject = ?", (kind, subject))
