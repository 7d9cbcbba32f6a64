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
from typing import Any

import duckdb

from kafka2011.events.topics import table_name
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.shell import same_answer
from kafka2011.services.warehouse.shell.duckdb_engine import DuckDb, fields_of
from kafka2011.services.warehouse.shell.results import Answer, SqlError
from kafka2011.services.warehouse.shell.syntax_tree import Unsure
from kafka2011.services.warehouse.table_paths import QUARANTINED, RAW, tables_in

AUTO, DUCKDB, SPARK = "auto", "duckdb", "spark"
TYPE_SHOWN_MAX = 10_000  # characters: a record in a record has a long one
_WORD = re.compile(r"\w+")
_SHOW = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(r"\s*desc(?:ribe)?\s+(?:table\s+)?(\w+)\s*;?\s*", re.IGNORECASE)
_LISTING = re.compile(r"\s*(show|desc|describe)\b", re.IGNORECASE)
# As DuckDB and Spark say it.
_NO_TABLE = re.compile(r"Table with name .* does not exist|TABLE_OR_VIEW_NOT_FOUND")
# The first words of Spark's statements: any other is a mistake, for which no JVM is started.
_BEGINNINGS = re.compile(
    "add|alter|analyze|begin|cache|call|clear|comment|create|declare|delete|desc|describe|drop|"
    "execute|explain|from|grant|insert|list|load|map|merge|msck|optimize|reduce|refresh|repair|"
    "replace|reset|restore|revoke|select|set|show|table|truncate|uncache|update|use|vacuum|values|"
    "with"
)
# Those of them that read. The engines would carry out the others on a view, in memory or for a
# session that ends with the statement, and report success; or they would write somewhere else.
_READING = re.compile("desc|describe|explain|from|list|map|reduce|select|show|table|values|with")
_EXPLAIN = re.compile(
    r"explain\b\s*(?:\(\s*(?:analyze|format)\b[^)]*\)|\b(?:analyze|codegen|cost|extended|formatted|"
    r"logical)\b)?\s*",
    re.IGNORECASE,
)
_INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
# The kinds of DuckDB's statements that read; a PIVOT is MULTI.
_READS = {"SELECT", "EXPLAIN", "MULTI"}
_ANOTHER = "more follows the first statement: sql answers only one"
# What is text or a comment to Spark; a name in backquotes is neither.
_QUOTED = re.compile(
    r"""--[^\n]*|/\*.*?\*/|\br(?:'[^']*'|"[^"]*")|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""",
    re.DOTALL | re.IGNORECASE,
)
_TOPIC_NAME = re.compile(r"\b(?:from|join)\s+`?(\w+(?:-\w+)+)", re.IGNORECASE)
_SPARK_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


class Warehouse:
    """The tables of a warehouse as one statement sees them; opened when they are named."""

    def __init__(self, directory: StoragePath) -> None:
        self._directory = directory
        self.paths = tables_in(directory.resolve())

    def named_in(self, statement: str) -> dict[str, WarehouseTable]:
        """The tables that a statement names, at their newest versions; all, if it lists them.
        Raises WarehouseError for one that cannot be opened."""
        words = set(_WORD.findall(statement.lower()))
        is_exact = _SHOW.fullmatch(statement) or _DESCRIBE.fullmatch(statement)
        takes_all = _LISTING.match(statement) and not is_exact
        wanted = [name for name in self.paths if takes_all or name.lower() in words]
        found = {name: WarehouseTable.open_to_read(self.paths[name]) for name in wanted}
        return {name: table for name, table in found.items() if table is not None}

    @staticmethod
    def read_by(
        statement: str, tables: Mapping[str, WarehouseTable]
    ) -> Mapping[str, WarehouseTable]:
        """Those of the named tables that it reads: a word may be an operator (`like`), an alias or
        a text. All but those in texts, if it is no statement of DuckDB's."""
        if _LISTING.match(statement):
            return tables
        read = _read_names(statement)
        if read is None:
            read = set(_WORD.findall(_QUOTED.sub(" ", statement).lower()))
        return {name: table for name, table in tables.items() if name.lower() in read}

    @property
    def contents(self) -> str:
        """The existing tables, as the end of an error about a missing one."""
        if self.paths:
            return f" (there are: {', '.join(self.paths)})"
        below = self._directory / "warehouse"  # of a deployment's own directory
        hint = "--dir or --warehouse names another place"
        if tables_in(below.resolve()):
            hint = f"did you mean {below}?"
        return f" (no load has left a table in {self._directory.resolve()}; {hint})"

    def in_quarantine(self, name: str) -> str:
        """Where the messages of a table without rows are; empty where there are none."""
        view = QUARANTINED + name
        path = self.paths.get(view)
        table = WarehouseTable.open_to_read(path) if path else None
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
    notice: Callable[[str], object] = lambda _: None,
    raw: tuple[WarehouseConfig, str] | None = None,
) -> Answer:
    """The answer, whose rows can be read until `stack` is closed.

    `engine` is AUTO, or the one that must answer; `start_spark` returns a session, and `notice`
    takes a line that says why before that, and one about what is not read; `raw` has the settings
    and the ZooKeeper for topics. Raises SqlError, and duckdb.Error while rows are read.
    """
    reason, hint = "--engine spark", ""
    connection: DuckDb | None = None
    _check_statement(statement, warehouse, engine, raw)
    if raw is None and (topic := _read_topic(statement, tables)):
        raise SqlError(
            f"{topic} reads a topic from its brokers, and no deployment runs here: --zookeeper "
            "names theirs"
        )
    if engine != SPARK:
        try:
            if listing := _from_logs(statement, warehouse, tables):
                return listing
            if engine == AUTO and _names_topic(statement, tables):
                raise Unsure("a topic")
            if engine == DUCKDB:
                _check_for_duckdb(statement)
            connection = stack.enter_context(DuckDb(tables))
            names = connection.columns_as_spark(statement) if engine == AUTO else None
            return connection.answer(statement, names)
        except same_answer.Unknown as error:
            raise SqlError(_unknown(error, warehouse) + _not_loaded(error.table, raw)) from error
        except Unsure as unsure:
            reason = str(unsure) if re.search(r"\w", str(unsure)) else f"the sign {unsure}"
            if connection and connection.can_answer(statement):
                hint = "; --engine duckdb answers without Spark, by DuckDB's own rules"
        except duckdb.Error as error:
            if engine == DUCKDB:
                raise SqlError(_with_tables(first_line(error), warehouse)) from error
            reason = f"DuckDB: {first_line(error)}"
    from kafka2011.services.warehouse.shell import spark_engine

    notice(f"Spark is starting ({reason}){hint}")
    session = start_spark()
    stack.callback(session.stop)
    try:
        options = spark_engine.source_options(*raw) if raw else None
        found = spark_engine.answer(session, statement, tables, options, notice)
    except SqlError as error:
        hint = ""
        if _names_topic(statement, tables) and _NO_TABLE.search(str(error)):
            hint = f"; no such topic at {raw[1]}" if raw else "; --zookeeper reads topics"
        raise SqlError(_with_tables(str(error), warehouse) + hint) from error
    return found if engine == SPARK else replace(found, engine=f"Spark ({reason})")


def _check_statement(
    statement: str, warehouse: Warehouse, engine: str, raw: tuple[WarehouseConfig, str] | None
) -> None:
    """Raises SqlError for what needs no engine to be refused."""
    beginning = _WORD.match(statement.strip().lower())
    if not statement.strip(" \t\n;"):
        raise SqlError("the statement is empty")
    if writing := _writing_word(statement):
        raise _only_reads(writing)
    if engine == AUTO and beginning and not _BEGINNINGS.fullmatch(beginning[0]):
        meant = suggestion(beginning[0], _BEGINNINGS.pattern.split("|"))
        raise SqlError(f"no statement begins with {beginning[0]!r}{meant}")
    if engine != DUCKDB and (slip := _slip(statement, warehouse, raw)):
        raise SqlError(slip)


def _writing_word(statement: str) -> str:
    """The word by which a statement writes, in Spark's SQL; empty if it only reads."""
    bare = re.sub(r"`[^`]*`", " ", _QUOTED.sub(" ", statement)).lstrip(" \t\r\n(;")
    first = _WORD.match(_EXPLAIN.sub("", bare, count=1) if _EXPLAIN.match(bare) else bare)
    word = first[0].lower() if first else ""
    if _BEGINNINGS.fullmatch(word) and not _READING.fullmatch(word):
        return word
    return "insert" if _INSERT.search(bare) else ""


def _check_for_duckdb(statement: str) -> None:
    """Raises SqlError unless DuckDB would only read; duckdb.Error for what is not SQL."""
    with duckdb.connect() as parser:
        found = parser.extract_statements(statement)
        if len(found) > 1:
            raise SqlError(_ANOTHER)
        for each in found:
            if each.type == duckdb.StatementType.EXPLAIN:  # with ANALYZE it also runs it
                explained = _EXPLAIN.sub("", _QUOTED.sub(" ", each.query).lstrip(), count=1)
                word = _WORD.search(explained)
                if word and word[0].lower() in ("copy", "export"):
                    raise _only_reads(word[0].lower())
            elif each.type.name not in _READS:
                word = _WORD.search(_QUOTED.sub(" ", each.query))
                raise _only_reads(word[0].lower() if word else each.type.name.lower())


def _only_reads(word: str) -> SqlError:
    return SqlError(
        f"sql only reads, and {word!r} would change nothing in the warehouse: tables come from "
        "loads"
    )


def _not_loaded(name: str, raw: tuple[WarehouseConfig, str] | None) -> str:
    """Where a topic that has no table yet can be read, as the end of an error about that table."""
    if raw is None or not name or name.lower().startswith((RAW, QUARANTINED)):
        return ""
    return f"; a topic of which nothing is loaded yet is read as {RAW}{table_name(name)}"


def _slip(statement: str, warehouse: Warehouse, raw: tuple[WarehouseConfig, str] | None) -> str:
    """What is wrong with a statement, if an engine would say it less clearly; else empty."""
    bare = _QUOTED.sub(" ", statement)
    if open_quote := re.search(r"['\"]|`(?=[^`]*\Z)", re.sub(r"`[^`]*`", " ", bare)):
        return f"the quote {open_quote[0]} is not closed"
    if re.search(r";[\s;]*[^\s;]", re.sub(r"`[^`]*`", " ", bare)):
        return _ANOTHER
    named = _TOPIC_NAME.search(bare)
    if named is None or bare.lstrip()[:4].lower() == "with":  # WITH may define such a name
        return ""
    table = table_name(named[1])
    if table not in warehouse.paths:
        return f"no table {named[1]}{warehouse.contents}{_not_loaded(named[1], raw)}"
    return f"no table {named[1]}; did you mean {table}? (a table has _ where its topic has -)"


def _names_topic(statement: str, tables: Mapping[str, WarehouseTable]) -> bool:
    words = _WORD.findall(statement.lower())
    return any(word.startswith(RAW) and word not in tables for word in words)


def _read_topic(statement: str, tables: Mapping[str, WarehouseTable]) -> str:
    """The first topic that a statement reads as raw_NAME, if DuckDB can tell; else empty."""
    read = _read_names(statement) if _names_topic(statement, tables) else None
    return min(
        (name for name in read or () if name.startswith(RAW) and name not in tables), default=""
    )


def _read_names(statement: str) -> set[str] | None:
    """The tables that a statement reads, in small letters; None if DuckDB cannot tell."""
    try:
        with duckdb.connect() as parser:
            return {name.lower() for name in parser.get_table_names(statement)}
    except duckdb.Error:
        return None


def _from_logs(
    statement: str, warehouse: Warehouse, tables: Mapping[str, WarehouseTable]
) -> Answer | None:
    """The answer to `show tables` and `describe TABLE`, as Spark gives it. Raises Unknown."""
    if _SHOW.fullmatch(statement):
        rows = [("", name.lower(), True) for name in warehouse.paths]
        return Answer(("namespace", "tableName", "isTemporary"), iter(rows), "the tables' logs")
    described = _DESCRIBE.fullmatch(statement)
    if described is None or _names_topic(described[1], tables):
        return None
    known = {name.lower(): table for name, table in tables.items()}
    table = known.get(described[1].lower())
    if table is None:
        raise same_answer.Unknown(f"no table {described[1]}", described[1])
    fields = [(name, _spark_type(kind), None) for name, kind in fields_of(table)]
    return Answer(
        ("col_name", "data_type", "comment"), iter(fields), "the table's log", TYPE_SHOWN_MAX
    )


def _spark_type(kind: Any) -> str:
    """Spark's name of a type of Delta: `array<struct<item:string,count:int>>`."""
    if isinstance(kind, str):
        return _SPARK_TYPES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{_spark_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_spark_type(kind['keyType'])},{_spark_type(kind['valueType'])}>"
    parts = (f"{part['name']}:{_spark_type(part['type'])}" for part in kind["fields"])
    return f"struct<{','.join(parts)}>"


def _with_tables(said: str, warehouse: Warehouse) -> str:
    """An engine's error, with the existing tables if it did not find one."""
    return said + (warehouse.contents if _NO_TABLE.search(said) else "")


def _unknown(error: same_answer.Unknown, warehouse: Warehouse) -> str:
    if not error.table:
        return f"{error} (there are: {', '.join(dict.fromkeys(error.columns))})"
    where = warehouse.in_quarantine(error.table.lower())
    hint = f"; {where}" if where else suggestion(error.table.lower(), warehouse.paths)
    return f"{error}{hint}{warehouse.contents}"
