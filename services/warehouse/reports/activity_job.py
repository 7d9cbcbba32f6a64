"""The job of the reports on member activity: tables to views, SQL to rows, rows to files.

A report is `<name>.json` (the rows), `.txt` (a table) and `.svg` (a picture) in `report.dir`.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console

from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.atomic_files import replace_text
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseError, WarehouseTable
from kafka2011.services.warehouse.reports.activity import (
    BY_NAME,
    PARAMETERS,
    REPORTS,
    ActivityReport,
)
from kafka2011.services.warehouse.reports.charts import rows_svg, rows_table, rows_text
from kafka2011.services.warehouse.session import SparkNotStarted, start_quietly, stop_session
from kafka2011.services.warehouse.table_views import has_repeats, read_table

log = get_logger(__name__)

CONSOLE_WIDTH_MIN = 120


@dataclass(frozen=True, slots=True)
class ReportRows:
    """The rows of a report. `versions` are those of the tables that it was made from, `took_ms` is
    how long Spark computed."""

    report: ActivityReport
    versions: dict[str, int]
    took_ms: int
    columns: list[str]
    rows: list[dict[str, Any]]

    def as_json(self) -> str:
        document = {
            "report": self.report.name,
            "tables": self.versions,
            "took_ms": self.took_ms,
            "rows": self.rows,
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def missing_input(report: ActivityReport, warehouse_dir: StoragePath) -> str:
    """The reason why the report cannot be made from this warehouse; empty when it can."""
    for name, columns in report.tables.items():
        try:
            table = WarehouseTable.open_to_read(warehouse_dir / name)
        except WarehouseError as error:
            return str(error)
        if table is None:
            return f"there is no table {name}"
        gone = sorted(set(columns) - set(table.schema().names))
        if gone:
            return f"table {name} has no column {', '.join(gone)}"
    return ""


class ActivityRun:
    """Makes reports in one Spark session. Each table is opened once, so that all reports are of the
    same version. `close` drops the views."""

    def __init__(self, session: Any, warehouse_dir: StoragePath) -> None:
        self._session = session
        self._warehouse_dir = warehouse_dir.resolve()
        self._versions: dict[str, int] = {}

    def make(self, report: ActivityReport) -> ReportRows:
        """Compute a report. Raises WarehouseError when a table or a column of it is missing."""
        began = time.monotonic()
        reason = missing_input(report, self._warehouse_dir)
        if reason:
            raise WarehouseError(reason)
        for name in report.tables:
            if name not in self._versions:
                self._open(name)
        frame = self._session.sql(report.sql, args=PARAMETERS)
        rows = [
            {name: _plain(value) for name, value in row.asDict().items()} for row in frame.collect()
        ]
        versions = {name: self._versions[name] for name in report.tables}
        took_ms = round((time.monotonic() - began) * 1000)
        return ReportRows(report, versions, took_ms, frame.columns, rows)

    def close(self) -> None:
        for name in self._versions:
            self._session.catalog.dropTempView(name)
        self._versions.clear()

    def _open(self, name: str) -> None:
        table = WarehouseTable.open_to_read(self._warehouse_dir / name)
        assert table is not None  # checked by `missing_input`
        needed = {column for one in REPORTS for column in one.tables.get(name, ())}
        once(read_table(self._session, table, needed)).createOrReplaceTempView(name)
        self._versions[name] = table.version


def once(rows: Any) -> Any:
    """The rows with each event once, however often it was delivered."""
    return rows.dropDuplicates(["guid"]) if has_repeats(rows) else rows


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def write_files(found: ReportRows, directory: Path) -> None:
    """Write `<name>.json`, `.txt` and `.svg` into `directory`, each replaced whole."""
    report = found.report
    picture = report.picture
    svg = rows_svg(report.title, picture.label, picture.value, picture.unit, found.rows)
    text = rows_text(report.title, found.columns, found.rows)
    for ending, content in (("json", found.as_json()), ("txt", text), ("svg", svg)):
        replace_text(directory / f"{report.name}.{ending}", content)


@contextmanager
def _running(session: Any, warehouse_dir: StoragePath) -> Iterator[ActivityRun]:
    run = ActivityRun(session, warehouse_dir)
    try:
        yield run
    finally:
        run.close()


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A function that shows a line of progress on a terminal, removed at the end."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status("") as status:
        yield status.update


def _complain(text: str) -> None:
    sys.stderr.write(f"kafka2011 reports: {text}\n")


def run_reports(config: WarehouseConfig, names: Sequence[str] = ()) -> int:
    """Make the named reports, or all that the warehouse has tables for; returns the exit status.

    1 when a named report cannot be made, or none at all; 2 for an unknown name; else 0.
    """
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        _complain(f"no report {unknown[0]!r} (there are: {', '.join(BY_NAME)})")
        return 2
    if not config.warehouse_dir.is_dir():
        _complain(f"there is no warehouse at {config.warehouse_dir}; `make demo` leaves one")
        return 1
    wanted = [BY_NAME[name] for name in names] or list(REPORTS)
    reasons = {report.name: missing_input(report, config.warehouse_dir) for report in wanted}
    possible = [report for report in wanted if not reasons[report.name]]
    left_out = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
    if left_out:
        _complain(f"not made from {config.warehouse_dir}: {', '.join(left_out)}")
    if not possible:
        _complain(
            f"nothing to report on in {config.warehouse_dir}; run `make demo` first: without "
            "INPUT it leaves member activity there"
        )
        return 1
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, CONSOLE_WIDTH_MIN)
    with _progress() as said:
        said("starting Spark")
        try:
            session = start_quietly("reports", config.spark_master, config.spark_event_log_dir)
        except SparkNotStarted as error:
            _complain(str(error))
            return 1
    try:
        with _running(session, config.warehouse_dir) as run:
            for number, report in enumerate(possible, 1):
                with _progress() as said:
                    said(f"report {number} of {len(possible)}: {report.title}")
                    found = run.make(report)
                write_files(found, config.reports_dir)
                console.print(rows_table(report.title, found.columns, found.rows), markup=False)
    finally:
        stop_session(session)
    console.print(
        f"{len(possible)} reports, each as .json, .txt and .svg, are in {config.reports_dir}",
        markup=False,
    )
    return 1 if names and len(possible) < len(wanted) else 0
