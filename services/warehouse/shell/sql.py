"""Runs one SQL statement over the warehouse's tables and, with a ZooKeeper given, over raw topics.

    access_log              the warehouse table of that name, as of its newest version
    quarantine_access_log   messages of the topic that could not become rows
    raw_access_log          the topic itself, from the brokers, in the data source's columns

Only tables that the statement names become views: each needs its table's log read.
"""

import csv
import datetime
import decimal
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.runtime.tables import new_table
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.safe_text import visible
from kafka2011.services.warehouse.table_paths import tables_in
from kafka2011.services.warehouse.table_views import create_view

RAW = "raw_"
CELL_SHOWN_MAX = 200
_WORD = re.compile(r"\w+")
_COUNT_ALL = re.compile(r"\bcount\s*\(\s*\*\s*\)")
_WHOLE_ROWS = {
    "table",
    "natural",
    "union",
    "except",
    "minus",
    "intersect",
    "describe",
    "desc",
    "show",
}
_LISTING = re.compile(r"\s*(show|describe|desc)\b", re.IGNORECASE)


def source_options(config: WarehouseConfig, zk_connect: str) -> dict[str, str]:
    """The data source's options for the brokers of `zk_connect`, from the settings."""
    options = {"zk.connect": zk_connect, "event.forms": str(config.event_forms)}
    if config.schema_registry_url:
        options["schema.registry.url"] = config.schema_registry_url
    return options


class SqlError(WarehouseError):
    """The statement cannot be run; the text is one line for the user."""


def run_sql(
    session: Any, statement: str, warehouse_dir: Path, raw_options: dict[str, str] | None = None
) -> Any:
    """The statement's result as a DataFrame, not computed yet.

    `raw_options` are the data source's (`zk.connect` at least). Raises SqlError.
    """
    words = set(_WORD.findall(statement.lower()))
    tables = tables_in(warehouse_dir.resolve())
    is_listing = _LISTING.match(statement) is not None
    for name, path in tables.items():
        if is_listing or name.lower() in words:
            create_view(session, name, path)
    columns = columns_named(statement)
    for word in sorted(words):
        if word.startswith(RAW) and raw_options:
            _raw_view(session, word, {**raw_options, "columns": ",".join(columns)})
    from pyspark.errors import PySparkException

    try:
        return session.sql(statement)
    except PySparkException as error:
        known = ", ".join(tables) or f"no table in {warehouse_dir}"
        raise SqlError(f"{_first_line(error)} (there are: {known})") from error


def columns_named(statement: str) -> list[str]:
    """The columns of a raw topic that a statement may read: a source in Python does not get them.

    A column is read by its name, by a `*` (except count(*)), or by a word for whole rows. Without
    any, a statement needs only the number of rows: the narrowest column is enough.
    """
    text = _COUNT_ALL.sub("", statement.lower())
    words = set(_WORD.findall(text))
    if "*" in text or words & _WHOLE_ROWS:
        return list(MESSAGE_SCHEMA.names)
    return [name for name in MESSAGE_SCHEMA.names if name in words] or ["broker"]


def _raw_view(session: Any, name: str, options: dict[str, str]) -> None:
    """Make a topic a view, whose name has underscores for the topic's dashes and dots."""
    pattern = re.sub("_", "[-._]", name.removeprefix(RAW))
    frame = session.read.format("kafka2011").options(**options, topicsPattern=pattern).load()
    frame.createOrReplaceTempView(name)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def write_result(frame: Any, form: str, out: TextIO) -> int:
    """Write the rows as `table`, `csv` or `json`; returns their number. Raises SqlError."""
    from pyspark.errors import PySparkException

    try:
        rows: Iterator[Any] = frame.toLocalIterator()
        if form == "csv":
            return _write_csv(frame.columns, rows, out)
        if form == "json":
            return _write_json(frame.columns, rows, out)
        return _write_table(frame.columns, rows, out)
    except PySparkException as error:
        raise SqlError(_first_line(error)) from error


def _write_csv(columns: list[str], rows: Iterable[Any], out: TextIO) -> int:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    count = 0
    for row in rows:
        writer.writerow(["" if value is None else _text(value) for value in row])
        count += 1
    return count


def _write_json(columns: list[str], rows: Iterable[Any], out: TextIO) -> int:
    """Write an array with one object a line."""
    count = 0
    out.write("[")
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        out.write(",\n " if count else "\n ")
        out.write(json.dumps(values, default=_json_value, ensure_ascii=False))
        count += 1
    out.write("\n]\n" if count else "]\n")
    return count


def _write_table(columns: list[str], rows: Iterable[Any], out: TextIO) -> int:
    table = new_table()
    for column in columns:
        table.add_column(Text(visible(column, CELL_SHOWN_MAX)))
    count = 0
    for row in rows:
        cells = ["" if value is None else _text(value) for value in row]
        table.add_row(*(Text(visible(cell, CELL_SHOWN_MAX)) for cell in cells))
        count += 1
    console = Console(file=out, highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # a file or a pipe has no width to fit into
    console.print(table)
    return count


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_json_value, ensure_ascii=False)
    return str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return _text(value)
