"""Output of the Spark jobs: the warehouse's newest commits and the reports' pictures.

Commits are read from the tables' own log, as the audit does, and never through Spark. A file that
cannot be read is skipped: it may be half written.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka2011.runtime.storage_paths import ObjectPath, StoragePath

COMMITS_SHOWN = 40  # of all tables together, newest first
COMMIT_BYTES_MAX = 4 * 1024 * 1024
REPORT_BYTES_MAX = 2 * 1024 * 1024
REPORTS_SHOWN = 40
METADATA = "kafka2011"
STORE_INTERVAL_S = 10
_COMMIT = re.compile(r"\d{20}\.json")

Rows = dict[str, dict[str, Any]]
Stamp = tuple[float, int]  # a file's time and size


class JobReader:
    """Reads commits and reports; both are cached while their files do not change."""

    def __init__(
        self,
        warehouse_dir: StoragePath | None,
        report_dir: Path | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warehouse_dir = warehouse_dir
        self._report_dir = report_dir
        self._monotonic = monotonic
        self._asked_at: float | None = None
        # By key, as of the file's time and size.
        self._read: dict[str, tuple[Stamp, dict[str, Any] | None]] = {}
        self._stored: dict[str, dict[int, dict[str, Any] | None]] = {}
        self._reports: Rows = {}

    def commits(self) -> Rows:
        """`<table>/<version>` -> the commit's metadata."""
        if isinstance(self._warehouse_dir, ObjectPath):
            return self._commits_in_store(self._warehouse_dir)
        if not isinstance(self._warehouse_dir, Path) or not self._warehouse_dir.is_dir():
            return {}
        newest: list[tuple[Stamp, Path]] = []
        for log in self._warehouse_dir.glob("*/_delta_log"):
            files = sorted(file for file in log.glob("*.json") if _COMMIT.fullmatch(file.name))
            for file in files[-COMMITS_SHOWN:]:
                with contextlib.suppress(OSError):
                    found = file.stat()
                    newest.append(((found.st_mtime, found.st_size), file))
        newest.sort(reverse=True)
        known: dict[str, tuple[Stamp, dict[str, Any] | None]] = {}
        for stamp, file in newest[:COMMITS_SHOWN]:
            key = f"{file.parent.parent.name}/{int(file.stem)}"
            before = self._read.get(key)
            if before is not None and before[0] == stamp:
                known[key] = before
                continue
            with contextlib.suppress(OSError):
                known[key] = stamp, read_commit(file)
        self._read = known
        return {key: row for key, (_, row) in known.items() if row is not None}

    def _commits_in_store(self, warehouse: ObjectPath) -> Rows:
        """The commits in an object store, asked every STORE_INTERVAL_S: each look is a request."""
        now = self._monotonic()
        if self._asked_at is None or now - self._asked_at >= STORE_INTERVAL_S:
            self._asked_at = now
            with contextlib.suppress(OSError, ImportError):
                for table in warehouse.iterdir():
                    self._follow(table)
        rows = {
            f"{name}/{version}": row
            for name, versions in self._stored.items()
            for version, row in versions.items()
            if row is not None
        }
        newest = sorted(rows, key=lambda key: rows[key]["at_ms"], reverse=True)
        return {key: rows[key] for key in newest[:COMMITS_SHOWN]}

    def _follow(self, table: ObjectPath) -> None:
        """Read the table's new commits. Raises OSError."""
        log = table / "_delta_log"
        known = self._stored.get(table.name)
        if not known:  # never read, or a look that failed
            if not log.is_dir():
                return
            names = sorted(path.name for path in log.iterdir())
            versions = [int(name[:20]) for name in names if _COMMIT.fullmatch(name)]
            newest = versions[-COMMITS_SHOWN:]
            known = {version: _commit_in_store(log, version) for version in newest}
            self._stored[table.name] = known
        while known:
            version = max(known) + 1
            try:
                known[version] = _commit_in_store(log, version)
            except FileNotFoundError:
                break
        for version in sorted(known)[:-COMMITS_SHOWN]:
            del known[version]

    def reports(self) -> Rows:
        """File name -> the report's metadata; only reports with a picture."""
        if self._report_dir is None or not self._report_dir.is_dir():
            return {}
        rows: Rows = {}
        for file in sorted(self._report_dir.glob("*.svg"))[:REPORTS_SHOWN]:
            known = self._reports.get(file.stem)
            try:
                made_ms = int(file.stat().st_mtime * 1000)
                if known is None or known["made_ms"] != made_ms:
                    known = read_report(file, made_ms)
            except (OSError, ValueError, RecursionError):
                continue
            rows[file.stem] = known
        self._reports = rows
        return rows

    def picture(self, name: str) -> bytes | None:
        """The report's SVG; None unless `reports` lists it."""
        if self._report_dir is None or not (name in self._reports or name in self.reports()):
            return None
        try:
            data = (self._report_dir / f"{name}.svg").read_bytes()
        except OSError:
            return None
        return data if len(data) <= REPORT_BYTES_MAX else None


def read_report(picture: Path, made_ms: int) -> dict[str, Any]:
    """The metadata beside a report's picture: its tables with their versions, the number of rows it
    was made from or has, totals, and its duration if given.

    Raises OSError and ValueError when the file cannot be read.
    """
    file = picture.with_suffix(".json")
    if file.stat().st_size > REPORT_BYTES_MAX:
        raise ValueError("too large")
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("not an object")
    tables = found.get("tables")
    if not isinstance(tables, dict):
        tables = {str(found.get("table", picture.stem)): found.get("version")}
    rows = found.get("rows")
    totals = found.get("totals")
    return {
        "name": picture.stem,
        "made_ms": made_ms,
        "tables": {str(name): version for name, version in tables.items()},
        "rows": rows if isinstance(rows, int) else None,
        "answers": len(rows) if isinstance(rows, list) else None,
        "took_ms": found["took_ms"] if isinstance(found.get("took_ms"), int | float) else None,
        "totals": totals if isinstance(totals, dict) else {},
    }


def read_commit(file: Path) -> dict[str, Any] | None:
    """One commit of a Delta log; None when it is not one of the loads'. Raises OSError."""
    if file.stat().st_size > COMMIT_BYTES_MAX:
        return None
    text = file.read_text(encoding="utf-8", errors="replace")
    return commit_row(file.parent.parent.name, int(file.stem), text)


def _commit_in_store(log: ObjectPath, version: int) -> dict[str, Any] | None:
    """As `read_commit`, in a store. Raises FileNotFoundError for no such version, OSError."""
    try:
        text = (log / f"{version:020d}.json").read_text()
    except UnicodeDecodeError:
        return None
    return commit_row(log.parent.name, version, text)


def commit_row(table: str, version: int, text: str) -> dict[str, Any] | None:
    """What is shown of a commit; None when it is not one of the loads'."""
    try:
        lines = text.split("\n")  # not splitlines(): JSON has other line ends in its texts
        actions = [json.loads(line) for line in lines if line.strip()]
        info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
        found = json.loads(info[METADATA])
        added = [action["add"] for action in actions if "add" in action]
        return {
            "table": table,
            "version": version,
            "at_ms": int(info["timestamp"]),
            "topic": str(found["topic"]),
            "rows": int(found["rows"]),
            "files": len(added),
            "bytes": sum(int(add["size"]) for add in added),
            "partitions": len(found.get("offsets", {})),
            "source_bytes": sum(
                int(end) - int(start) for start, end in found.get("offsets", {}).values()
            ),
            "quarantined": sum(int(found[-1]) for found in found.get("quarantined", [])),
        }
    except (
        *(ValueError, KeyError, TypeError, StopIteration, IndexError),
        *(AttributeError, OverflowError, RecursionError),
    ):
        return None
