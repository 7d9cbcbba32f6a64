"""Answers a statement with Spark SQL, over the tables and, with a ZooKeeper given, raw topics.

Only tables that the statement names become views: each needs its files listed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka2011.consumer.spark.options import parse_options
from kafka2011.consumer.spark.planning import SourcePlanner
from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.coordination.errors import CoordinationError
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN, WarehouseTable
from kafka2011.services.warehouse.shell.results import Answer, SqlError
from kafka2011.services.warehouse.table_paths import RAW
from kafka2011.services.warehouse.table_views import read_table

_WORD = re.compile(r"\w+")
PLAN_LINE_SHOWN_MAX = 10_000  # characters: a scan's line names each column and file
_PLAN = re.compile(r"\s*explain\b", re.IGNORECASE)
_COUNT_ALL = re.compile(r"\bcount\s*\(\s*\*\s*\)")
# `*`, and FROM without SELECT before it, or a pipe: `from t |> limit 5`.
_ALL_COLUMNS = re.compile(r"\*|\|>|(?:^|\()\s*from\b")
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


def source_options(config: WarehouseConfig, zk_connect: str) -> dict[str, str]:
    """The data source's options for the brokers of `zk_connect`, from the settings."""
    options = {"zk.connect": zk_connect, **config.forms.settings()}
    if config.schema_registry_url:
        options["schema.registry.url"] = config.schema_registry_url
    return options


def answer(
    session: Any,
    statement: str,
    tables: Mapping[str, WarehouseTable],
    raw_options: Mapping[str, str] | None = None,
    notice: Callable[[str], object] = lambda _: None,
) -> Answer:
    """The statement's rows, read as they are asked for.

    `raw_options` are the data source's (`zk.connect` at least); `notice` takes a line about what is
    not read of a topic. Raises SqlError, also while the rows are read.
    """
    with _spark_errors_as_ours():
        for name, table in tables.items():
            wanted = None
            if isinstance(table.path, ObjectPath):  # each column costs requests
                wanted = columns_named(statement, table.schema().names, least=HOUR_COLUMN)
            read_table(session, table, wanted).createOrReplaceTempView(name)
        if raw_options:
            columns = ",".join(columns_named(statement))
            for word in sorted(set(_WORD.findall(statement.lower()))):
                if word.startswith(RAW):
                    away = _raw_view(session, word, {**raw_options, "columns": columns})
                    if away:
                        names = " and ".join(away)
                        notice(f"{word} leaves out what only {names} can have, not registered now")
        frame = session.sql(statement)
        if _PLAN.match(statement):
            return Answer(frame.columns, _lines(_rows(frame)), "Spark", PLAN_LINE_SHOWN_MAX)
        return Answer(frame.columns, _rows(_without_zones(frame)), "Spark")


@contextmanager
def _spark_errors_as_ours() -> Iterator[None]:
    """Raises SqlError, of one line, for what Spark raises."""
    from py4j.protocol import (  # type: ignore[import-untyped]
        Py4JError,
        Py4JJavaError,
    )
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise SqlError(first_line(error)) from error
    except Py4JJavaError as error:  # the JVM lives: its exception follows the call's line
        said = str(error).partition("\n: ")[2].splitlines()
        raise SqlError(f"Spark: {said[0] if said else first_line(error)}") from error
    except (Py4JError, ConnectionError) as error:
        raise SqlError(f"Spark's JVM ended: {first_line(error)}") from error


def _without_zones(frame: Any) -> Any:
    """The frame with times that have no zone, as in the session's, UTC. PySpark makes all others
    times of the machine, at which Python fails on the first day of the year 1."""
    kinds = [field.dataType for field in frame.schema.fields]
    wanted = [_without_zone(kind) for kind in kinds]
    if wanted == kinds:
        return frame
    numbered = frame.toDF(*(f"c{number}" for number in range(len(wanted))))  # names may be the same
    return numbered.select(
        *(numbered[f"c{number}"].cast(kind) for number, kind in enumerate(wanted))
    )


def _without_zone(kind: Any) -> Any:
    from pyspark.sql import types

    if isinstance(kind, types.TimestampType):
        return types.TimestampNTZType()
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_without_zone(kind.elementType), kind.containsNull)
    if isinstance(kind, types.MapType):
        key, value = _without_zone(kind.keyType), _without_zone(kind.valueType)
        return types.MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, types.StructType):
        fields = ((part, _without_zone(part.dataType)) for part in kind.fields)
        return types.StructType(
            [types.StructField(part.name, inner, part.nullable) for part, inner in fields]
        )
    return kind


def _rows(frame: Any) -> Iterator[Any]:
    with _spark_errors_as_ours():
        try:
            for row in frame.toLocalIterator():
                yield tuple(_named(value) for value in row)
        except (ValueError, TypeError) as error:  # a date before the year 1, a map of maps
            raise SqlError(
                f"Python cannot take a value of the answer: {first_line(error)}"
            ) from error


def _lines(rows: Iterator[Any]) -> Iterator[Any]:
    """A row for each line of a plan, which Spark gives as one text."""
    for (plan,) in rows:
        yield from ((line,) for line in plan.splitlines())


def _named(value: Any) -> Any:
    """The value with each struct as a dict, as DuckDB gives it: a Row is a tuple."""
    if hasattr(value, "__fields__"):
        return {name: _named(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list):
        return [_named(part) for part in value]
    if isinstance(value, dict):
        return {key: _named(part) for key, part in value.items()}
    return value


def columns_named(
    statement: str, columns: Sequence[str] = MESSAGE_SCHEMA.names, least: str = "broker"
) -> list[str]:
    """The columns that a statement may read: Spark does not tell a source in Python which.

    A column is read by its name, by a `*` (except count(*)), or by what means whole rows. Without
    any, a statement needs only the number of rows: the column `least` is enough. A name that is no
    word (`user-id`) is looked for as it stands.
    """
    text = _COUNT_ALL.sub("", statement.lower())
    words = set(_WORD.findall(text))
    if _ALL_COLUMNS.search(text) or words & _WHOLE_ROWS:
        return list(columns)
    lowered = ((name, name.lower()) for name in columns)
    found = [n for n, low in lowered if low in (words if _WORD.fullmatch(low) else text)]
    return found or [least]


def _raw_view(session: Any, name: str, options: dict[str, str]) -> list[str]:
    """Make a topic a view, whose name has underscores for the topic's dashes and dots, in any case.
    Returns the names of brokers that may have more of it, and do not run.

    Makes none where there is no such topic: Spark says so if it is one that the statement reads.
    Raises SqlError where none of its brokers lives, which is not the same as no messages.
    """
    options["topicsPattern"] = "(?i)" + re.sub("_", "[-._]", name.removeprefix(RAW))
    planner = SourcePlanner(parse_options(options))
    try:
        topics = planner.topics()
        if topics and not planner.partitions():
            raise SqlError(f"no live broker has topic {' or '.join(topics)}")
        away = planner.brokers_away() if topics else []
    except CoordinationError as error:
        raise SqlError(first_line(error)) from error
    finally:
        planner.close()
    if topics:
        frame = session.read.format("kafka2011").options(**options).load()
        frame.createOrReplaceTempView(name)
    return away
