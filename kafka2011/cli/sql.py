"""`kafka2011 sql "select ..."`: SQL on the warehouse, or on topics."""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kafka2011.cli.connections import (
    found_zookeeper,
    tables_here,
    tables_of,
    zookeeper_address,
)
from kafka2011.cli.options import OldZooKeeper, Settings, ZooKeeper, warehouse_option
from kafka2011.cli.output import complain, fail
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    statement: Annotated[str, typer.Argument(help="one SQL statement")],
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="form of the result")
    ] = "table",
    *,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            exists=True,
            file_okay=False,
            help="directory of a deployment (default: that which is here)",
        ),
    ] = None,
    warehouse: Annotated[
        StoragePath | None,
        warehouse_option(
            "--warehouse", about="directory of the warehouse (default: that of the deployment here)"
        ),
    ] = None,
    engine: Annotated[
        Literal["auto", "duckdb", "spark"],
        typer.Option(
            "--engine",
            help="auto: DuckDB where its answer is Spark's, else Spark; duckdb: its own SQL",
        ),
    ] = "auto",
    zookeeper: ZooKeeper = "",
    zk: OldZooKeeper = "",
    set_: Settings = None,
) -> None:
    """Run one statement over the tables of the warehouse: access_log, page_view, ...

    quarantine_NAME holds the messages that could not become rows of NAME. raw_NAME reads the topic
    itself from the brokers that --zookeeper names. Which engine answered, and from which
    versions of the tables, is said on standard error.
    """
    words = [*tables_here(set_ or []), *(set_ or [])]
    config = load_or_exit(WarehouseConfig, None, words, log_level="WARNING")
    os.environ["TZ"] = "UTC"  # PySpark hands out timestamps in the machine's own time zone
    time.tzset()
    import duckdb

    from kafka2011.services.warehouse.errors import WarehouseError
    from kafka2011.services.warehouse.session import SparkNotStarted, start_quietly
    from kafka2011.services.warehouse.shell.results import SqlError, write_answer
    from kafka2011.services.warehouse.shell.sql import Warehouse as Tables
    from kafka2011.services.warehouse.shell.sql import ask

    def start_spark() -> Any:
        return start_quietly("sql", config.spark_master)

    zookeeper = zookeeper_address(zookeeper) if zookeeper else zk or found_zookeeper()
    try:
        with ExitStack() as stack:
            place = warehouse or (tables_of(directory) if directory else config.warehouse_dir)
            known = Tables(place)
            tables = known.named_in(statement)
            answer = ask(
                stack,
                known,
                tables,
                statement,
                engine=engine,
                start_spark=start_spark,
                notice=complain,
                raw=(config, zookeeper) if zookeeper else None,
            )
            write_answer(answer, form, sys.stdout)
            sys.stdout.flush()
            read = known.read_by(statement, tables)
            names = [f"{name} (version {table.version})" for name, table in read.items()]
            source = f" from {', '.join(names)} in {place}" if names else ""
            complain(f"answered by {answer.engine}{source}")
            for note in known.notes(read):
                complain(note)
    except (SqlError, SparkNotStarted, WarehouseError, duckdb.Error) as error:
        fail(str(error).strip().splitlines()[0])
