"""`kafka2011 sql "select ..."`: ask the warehouse, or topics, a question in Spark SQL."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    statement: Annotated[str, typer.Argument(help="one SQL statement")],
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="form of the answer")
    ] = "table",
    warehouse: Annotated[
        Path, typer.Option("--warehouse", help="the warehouse's directory")
    ] = Path("var/warehouse"),
    zk: Annotated[
        str, typer.Option("--zk", help="ZooKeeper of the brokers, for views named raw_TOPIC")
    ] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
) -> None:
    """Run one statement over the tables of the warehouse: access_log, page_view, ...

    quarantine_NAME is what could not become a row of NAME. With --zk, raw_NAME reads the topic
    itself from its brokers.
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

    session = start_session("sql", config.spark_master)
    try:
        frame = run_sql(session, statement, warehouse, source_options(config, zk) if zk else None)
        write_result(frame, form, sys.stdout)
    except SqlError as error:
        print(f"kafka2011 sql: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    finally:
        session.stop()
