"""An answer to a statement, and its three forms: a table, CSV, JSON."""

import csv
import datetime
import decimal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from kafka2011.runtime import strict_json
from kafka2011.runtime.safe_text import visible
from kafka2011.runtime.tables import new_table
from kafka2011.services.warehouse.delta_table import WarehouseError

CELL_SHOWN_MAX = 200


class SqlError(WarehouseError):
    """The statement cannot be answered; the text is one line for the user."""


@dataclass(frozen=True)
class Answer:
    """The rows of a result, read once, and the engine that found them. A table of them
    shows `cell_shown_max` characters of each value."""

    columns: Sequence[str]
    rows: Iterator[Any]
    engine: str
    cell_shown_max: int = CELL_SHOWN_MAX


def write_answer(answer: Answer, form: str, out: TextIO) -> int:
    """Write the rows as `table`, `csv` or `json`; returns their number.

    Raises what reading the rows raises, and SqlError where the form cannot have these columns.
    """
    if form == "table":
        return _write_table(answer, out)
    write = {"csv": _write_csv, "json": _write_json}[form]
    return write(answer.columns, answer.rows, out)


def _write_csv(columns: Sequence[str], rows: Iterable[Any], out: TextIO) -> int:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    count = 0
    for row in rows:
        writer.writerow(["" if value is None else _text(value) for value in row])
        count += 1
    return count


def _write_json(columns: Sequence[str], rows: Iterable[Any], out: TextIO) -> int:
    """Write an array with one object a line. Raises SqlError where two columns have one name."""
    for name in columns:
        if columns.count(name) > 1:
            raise SqlError(
                f"two columns are called {name}: give one another name with AS, or take "
                "--format csv or table, which show both"
            )
    count = 0
    out.write("[")
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        out.write(",\n " if count else "\n ")
        out.write(_json_text(values))
        count += 1
    out.write("\n]\n" if count else "]\n")
    return count


def _write_table(answer: Answer, out: TextIO) -> int:
    table = new_table()
    for column in answer.columns:
        table.add_column(Text(visible(column, CELL_SHOWN_MAX)))
    count = 0
    for row in answer.rows:
        cells = ["" if value is None else _text(value) for value in row]
        table.add_row(*(Text(visible(cell, answer.cell_shown_max)) for cell in cells))
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
        # DuckDB's times inside structs have a zone; Spark's have none and are UTC.
        in_utc = value if value.tzinfo is None else value.astimezone(datetime.UTC)
        return in_utc.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, dict | list | tuple):
        return _json_text(value)
    return str(value)


def _json_text(value: Any) -> str:
    try:
        return strict_json.dumps(value, default=_json_value, ensure_ascii=False)
    except TypeError:  # a map whose keys JSON does not take
        found = _with_text_keys(value)
        return strict_json.dumps(found, default=_json_value, ensure_ascii=False)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        takes = (str, int, float, bool, type(None))
        return {
            key if isinstance(key, takes) else _text(key): _with_text_keys(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_text_keys(inner) for inner in value]
    return value


def _json_value(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        if value == value.to_integral_value():
            return int(value)
        # A number that a double would change is written as text.
        return float(value) if decimal.Decimal(repr(float(value))) == value else str(value)
    return _text(value)
