"""`kafka2011 report`: the traffic report; also what `spark-submit spark-jobs/report.py` runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.cli import spark_environment
from kafka2011.cli.settings import load_or_exit
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="the table; access_log, else page_view")
    ] = None,
    json_: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="write JSON there; - prints it and no tables"),
    ] = None,
) -> None:
    """Page views, visitors and bytes per hour, the top 20 paths and the share of errors.

    spark-submit mixes a job's standard error into its standard output: under it, name a file for
    --json."""
    forced: dict[str, Any] = {} if table is None else {"report_table": table}
    config = load_or_exit(WarehouseConfig, file, set_ or [], log_level="WARNING", **forced)
    spark_environment.prepare()
    from kafka2011.services.warehouse.reports import traffic_job as report_app

    raise SystemExit(report_app.main(config, json_))
