"""The job of the traffic report: tables on standard output, files in `report.dir`."""

import sys
from pathlib import Path

from rich.console import Console

from kafka2011.runtime.program import from_here
from kafka2011.services.warehouse.atomic_files import replace_text
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.reports.traffic import Report, choose_table, make_report
from kafka2011.services.warehouse.reports.traffic_text import as_svg, as_text, tables
from kafka2011.services.warehouse.session import SparkNotStarted, start_quietly, stop_session


def run_report(config: WarehouseConfig, json_to: str | None = None) -> int:
    """Make the report; returns the exit status: 1 when there is no table to report on.

    `json_to` is a file for the JSON; `-` is standard output, which then gets no tables.
    """
    try:
        table = choose_table(config.warehouse_dir, config.report_table)
    except WarehouseError as error:
        return _failed(error)
    try:
        session = start_quietly("report", config.spark_master, config.spark_event_log_dir)
    except SparkNotStarted as error:
        return _failed(error)
    try:
        report = make_report(session, config.warehouse_dir, table)
    except WarehouseError as error:
        return _failed(error)
    finally:
        stop_session(session)
    write_files(report, config.reports_dir)
    if json_to == "-":
        sys.stdout.write(report.as_json())
        return 0
    if json_to is not None:
        Path(json_to).write_text(report.as_json(), encoding="utf-8")
    console = Console(highlight=False)
    place = from_here(config.reports_dir / report.table)
    for part in tables(report, whole_in=f"{place}.txt"):
        console.print(part, markup=False)
    console.print(f"Written to {place}.json, .txt and .svg", markup=False, soft_wrap=True)
    return 0


def _failed(error: Exception) -> int:
    sys.stderr.write(f"kafka2011 report: {error}\n")
    return 1


def write_files(report: Report, directory: Path) -> None:
    """Write `<table>.json`, `.txt` and `.svg` into `directory`, each replaced whole."""
    for ending, text in (
        ("json", report.as_json()),
        ("txt", as_text(report)),
        ("svg", as_svg(report)),
    ):
        replace_text(directory / f"{report.table}.{ending}", text)
