"""`kafka2011 sql "select ..."`: Spark SQL on the warehouse or on topics."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka2011.cli.connections import zookeeper_address
from kafka2011.cli.options import OldZooKeeper, Settings, ZooKeeper
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    statement: Annotated[str, typer.Argument(help="one SQL statement")],
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="form of the result")
    ] = "table",
    *,
    warehouse: Annotated[
        Path, typer.Option("--warehouse", help="directory of the warehouse")
    ] = Path("var/warehouse"),
    zookeeper: ZooKeeper = "",
    zk: OldZooKeeper = "",
    set_: Settings = None,
) -> None:
    """Run one statement over the tables of the warehouse: access_log, page_view, ...

    quarantine_NAME holds the messages that could not become rows of NAME. With --zookeeper,
    raw_NAME reads the topic itself from its brokers.
    """
    config = load_or_exit(WarehouseConfig, None, set_ or [], log_level="WARNING")
    os.environ["TZ"] = "UTC"  # PySpark hands out timestamps in the machine's own time zone
    time.tzset()
    from kafka2011.services.warehouse.session import start_session
    from kafka2011.services.warehouse.shell.sql import (
        SqlError,
        run_sql,
        source_options,
        write_result,
    )

    zookeeper = zookeeper_address(zookeeper) if zookeeper else zk
    options = source_options(config, zookeeper) if zookeeper else None
    session = start_session("sql", config.spark_master)
    try:
        frame = run_sql(session, statement, warehouse, options)
        write_result(frame, form, sys.stdout)
    except SqlError as error:
        print(f"kafka2011 sql: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    finally:
        session.stop()
