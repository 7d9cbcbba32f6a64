"""Answers one SQL statement over the warehouse's tables: by DuckDB at once, or else by Spark.

    access_log              the warehouse table of that name, as of its newest version
    quarantine_access_log   messages of the topic that could not become rows
    raw_access_log          the topic itself, from the brokers: Spark only

The language is Spark's. DuckDB answers what it answers alike (`same_answer`), in about a second;
the start of Spark takes ten. Each table is read at one version, whatever is committed meanwhile.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from kafka2011.runtime.config import suggestion
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.shell import same_answer
from kafka2011.services.warehouse.shell.duckdb_engine import DuckDb, fields_of
from kafka2011.services.warehouse.shell.results import Answer, SqlError, first_line
from kafka2011.services.warehouse.table_paths import QUARANTINED, RAW, tables_in

AUTO, DUCKDB, SPARK = "auto", "duckdb", "spark"
_WORD = re.compile(r"\w+")
_SHOW = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(r"\s*desc(?:ribe)?\s+(?:table\s+)?(\w+)\s*;?\s*", re.IGNORECASE)
_LISTING = re.compile(r"\s*(show|desc|describe)\b", re.IGNORECASE)
# The first words of Spark's statements: another one is a slip, for which no JVM is started.
_BEGINNINGS = re.compile(
    "add|alter|analyze|begin|cache|call|clear|comment|create|declare|delete|desc|describe|drop|"
    "execute|explain|from|grant|insert|list|load|map|merge|msck|optimize|reduce|refresh|repair|"
    "replace|reset|restore|revoke|select|set|show|table|truncate|uncache|update|use|vacuum|values|"
    "with"
)
_SPARK_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


class Warehouse:
    """The tables of a warehouse as one statement sees them; opened when they are named."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.paths = tables_in(directory.resolve())

    def named_in(self, statement: str) -> dict[str, WarehouseTable]:
        """The tables that a statement names, at their newest versions; all, if it lists them."""
        words = set(_WORD.findall(statement.lower()))
        is_exact = _SHOW.fullmatch(statement) or _DESCRIBE.fullmatch(statement)
        takes_all = _LISTING.match(statement) and not is_exact
        wanted = [name for name in self.paths if takes_all or name.lower() in words]
        found = {name: WarehouseTable.open(self.paths[name]) for name in wanted}
        return {name: table for name, table in found.items() if table is not None}

    @property
    def contents(self) -> str:
        return ", ".join(self.paths) or f"no table in {self._directory}; `make demo` leaves some"

    def in_quarantine(self, name: str) -> str:
        """Where the messages of a table without rows are; empty where there are none."""
        view = QUARANTINED + name
        path = self.paths.get(view)
        table = WarehouseTable.open(path) if path else None
        count = table.row_count() if table else 0
        if not count:
            return ""
        return f"{count:,} of its topic's messages could not become rows: see {view}"

    def notes(self, tables: Mapping[str, WarehouseTable]) -> list[str]:
        """What a reader of an answer from these tables should know."""
        return [
            f"{name} is empty; {where}"
            for name, table in tables.items()
            if not table.row_count() and (where := self.in_quarantine(name))
        ]


def ask(
    stack: ExitStack,
    warehouse: Warehouse,
    tables: Mapping[str, WarehouseTable],
    statement: str,
    *,
    engine: str,
    start_spark: Callable[[], Any],
    raw: tuple[WarehouseConfig, str] | None = None,
) -> Answer:
    """The answer, whose rows can be read until `stack` is closed.

    `engine` is AUTO, or the one that must answer; `start_spark` returns a session; `raw` has the
    settings and the ZooKeeper for topics. Raises SqlError, and duckdb.Error while rows are read.
    """
    reason = ""
    beginning = _WORD.match(statement.strip().lower())
    if engine == AUTO and beginning and not _BEGINNINGS.fullmatch(beginning[0]):
        hint = suggestion(beginning[0], _BEGINNINGS.pattern.split("|"))
        raise SqlError(f"no statement begins with {beginning[0]!r}{hint}")
    if engine != SPARK:
        try:
            return _without_spark(stack, warehouse, tables, statement, engine)
        except same_answer.Unknown as error:
            raise SqlError(_unknown(error, warehouse)) from error
        except same_answer.Unsure as unsure:
            reason = str(unsure)
        except duckdb.Error as error:
            if engine == DUCKDB:
                raise SqlError(f"{first_line(error)} (there are: {warehouse.contents})") from error
            reason = f"DuckDB: {first_line(error)}"
    from kafka2011.services.warehouse.shell import spark_engine

    session = start_spark()
    stack.callback(session.stop)
    try:
        options = spark_engine.source_options(*raw) if raw else None
        found = spark_engine.answer(session, statement, tables, options)
    except SqlError as error:
        raise SqlError(f"{error} (there are: {warehouse.contents})") from error
    return replace(found, engine=f"Spark ({reason})") if reason else found


def _without_spark(
    stack: ExitStack,
    warehouse: Warehouse,
    tables: Mapping[str, WarehouseTable],
    statement: str,
    engine: str,
) -> Answer:
    if listing := _from_logs(statement, warehouse, tables):
        return listing
    if engine == AUTO and any(
        word.startswith(RAW) and word not in tables for word in _WORD.findall(statement.lower())
    ):
        raise same_answer.Unsure("a topic")
    connection = stack.enter_context(DuckDb(tables))
    names = connection.columns_as_spark(statement) if engine == AUTO else None
    return connection.answer(statement, names)


def _from_logs(
    statement: str, warehouse: Warehouse, tables: Mapping[str, WarehouseTable]
) -> Answer | None:
    """The answer to `show tables` and `describe TABLE`, as Spark gives it."""
    if _SHOW.fullmatch(statement):
        rows = [("", name.lower(), True) for name in warehouse.paths]
        return Answer(("namespace", "tableName", "isTemporary"), iter(rows), "the tables' logs")
    if not _DESCRIBE.fullmatch(statement) or len(tables) != 1:
        return None
    (table,) = tables.values()
    if any(kind == same_answer.OTHER for _, kind in fields_of(table)):
        return None
    fields = [(name, _SPARK_TYPES.get(kind, kind), None) for name, kind in fields_of(table)]
    return Answer(("col_name", "data_type", "comment"), iter(fields), "the table's log")


def _unknown(error: same_answer.Unknown, warehouse: Warehouse) -> str:
    where = warehouse.in_quarantine(error.table.lower())
    hint = f"; {where}" if where else suggestion(error.table.lower(), warehouse.paths)
    return f"{error}{hint} (there are: {warehouse.contents})"
