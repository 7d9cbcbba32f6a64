"""Answers a statement with DuckDB over the files that the tables' logs name: no JVM to start.

Each table that a statement names is one view of one version of its log, in which times are
TIMESTAMP in UTC, as Spark shows them. What may differ from Spark's answer is decided in
`same_answer`; `--engine duckdb` takes DuckDB's own SQL.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import duckdb

from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.shell import same_answer
from kafka2011.services.warehouse.shell.kinds import kind_of_delta
from kafka2011.services.warehouse.shell.results import Answer

Result = TypeVar("Result")

ROWS_AT_ONCE = 1000
INTERRUPT_AGAIN_S = 0.1
_SETTINGS: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "default_null_order": "nulls_first_on_asc_last_on_desc",  # Spark's
}
_TYPES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "date": "DATE",
    "binary": "BLOB",
}
_GLOB = re.compile(r"[*?\[]")


def fields_of(table: WarehouseTable) -> list[tuple[str, Any]]:
    """Name and Delta's type of each column; a nested type is an object."""
    return [(field["name"], field["type"]) for field in json.loads(table.schema_json())["fields"]]


def _duckdb_type(kind: Any) -> str:
    """DuckDB's name of a type of Delta."""
    if isinstance(kind, str):
        return _TYPES.get(kind) or kind.upper()  # decimal(10,2)
    if kind["type"] == "array":
        return f"{_duckdb_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({_duckdb_type(kind['keyType'])}, {_duckdb_type(kind['valueType'])})"
    fields = (f"{_quoted(part['name'])} {_duckdb_type(part['type'])}" for part in kind["fields"])
    return f"STRUCT({', '.join(fields)})"


class DuckDb:
    """One connection, with a view for each table. `close` it, or use `with`."""

    def __init__(self, tables: Mapping[str, WarehouseTable]) -> None:
        self._tables = tables
        settings = {**_SETTINGS, "temp_directory": tempfile.gettempdir()}
        self._connection = duckdb.connect(config=settings)
        self._worker = ThreadPoolExecutor(1, "duckdb")
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            self._make_view(name, table)

    def __enter__(self) -> "DuckDb":
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        self._connection.close()

    def columns_as_spark(self, statement: str) -> list[str]:
        """Spark's names of the result's columns. Raises Unsure where DuckDB's answer may differ,
        and Unknown where there is no such table or column."""
        same_answer.check_text(statement)
        (text,) = self._rows("select json_serialize_sql(?)", [statement])[0]
        kinds = {
            name.lower(): {column: kind_of_delta(kind) for column, kind in fields_of(table)}
            for name, table in self._tables.items()
        }
        return same_answer.column_names(json.loads(text), kinds)

    def can_answer(self, statement: str) -> bool:
        """Whether the statement is a query that DuckDB understands, if differently from Spark."""
        try:
            statements = self._connection.extract_statements(statement)
            if [found.type for found in statements] != [duckdb.StatementType.SELECT]:
                return False
            self._connection.execute(f"EXPLAIN {statement}")
        except duckdb.Error:
            return False
        return True

    def answer(self, statement: str, names: list[str] | None = None) -> Answer:
        """The rows, with DuckDB's names of the columns unless others are given.

        Raises duckdb.Error, also while the rows are read.
        """
        cursor = self._interruptible(lambda: self._connection.execute(statement))
        found = names or [column[0] for column in cursor.description or []]

        def fetch() -> list[tuple[Any, ...]]:
            return self._interruptible(lambda: cursor.fetchmany(ROWS_AT_ONCE))

        first = fetch()

        def rows() -> Iterator[tuple[Any, ...]]:
            some = first
            while some:
                yield from some
                some = fetch()

        return Answer(found, rows(), "DuckDB")

    def _interruptible(self, call: Callable[[], Result]) -> Result:
        """What the call returns, made in another thread: in the main one DuckDB looks at Ctrl-C
        only between its tasks, of which one may be the whole query."""
        future = self._worker.submit(call)
        try:
            return future.result()
        except KeyboardInterrupt:
            while not future.done():  # it may not have begun, when there is nothing to interrupt
                self._connection.interrupt()
                wait([future], INTERRUPT_AGAIN_S)
            raise

    def _rows(self, statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def _make_view(self, name: str, table: WarehouseTable) -> None:
        fields = fields_of(table)
        declared = ", ".join(f"{_quoted(column)} {_duckdb_type(kind)}" for column, kind in fields)
        shown = ", ".join(
            f"{_quoted(column)} AT TIME ZONE 'UTC' AS {_quoted(column)}"
            if kind == "timestamp"
            else _quoted(column)
            for column, kind in fields
        )
        # Files from before a column was added lack it: a table without rows has all of them.
        none = _quoted(f"{name} none")
        rows = f"FROM {none}"
        files = table.file_paths()
        # DuckDB's own client of a store is an extension that its wheel does not bring; and it takes
        # NAME=VALUE in any part of a path for a column, in place of the file's.
        if files and (isinstance(table.path, ObjectPath) or "=" in str(table.path)):
            found = storage.dataset(files, table.schema(), table.path)
            self._connection.register(f"{name} rows", found)
            rows += f" UNION ALL BY NAME FROM {_quoted(f'{name} rows')}"
        elif files:
            listed = ", ".join(_text(_literal_path(path)) for path in files)
            rows += (
                f" UNION ALL BY NAME FROM read_parquet([{listed}], union_by_name=true, "
                "hive_partitioning=true, hive_types_autocast=false)"
            )
        self._connection.execute(f"CREATE TABLE {none} ({declared})")
        self._connection.execute(f"CREATE VIEW {_quoted(name)} AS FROM ({rows}) SELECT {shown}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal_path(path: str) -> str:
    """The path, escaped so that DuckDB finds no pattern in it."""
    return _GLOB.sub(lambda sign: f"[{sign[0]}]", path)
