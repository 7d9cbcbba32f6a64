"""`kafka2011 report`: the traffic report, also as `spark-submit spark-jobs/report.py`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.commands import (
    WAREHOUSE_HELP,
    PropertiesFile,
    Settings,
    with_settings_here,
)
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    context: typer.Context,
    file: PropertiesFile = None,
    *,
    set_: Settings = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="table to report on (default: access_log, else page_view)"),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="PATH", help=WAREHOUSE_HELP),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="print JSON instead of text; with a FILE.json, write it there and print text",
        ),
    ] = False,
) -> None:
    """Page views, visitors and bytes per hour, the top 20 paths and the share of errors.

    spark-submit mixes a job's standard error into its standard output: under it, name a FILE.json
    with --json. The warehouse is by default that of the deployment that runs in this directory."""
    json_place = None
    if as_json:
        # Before --json was a flag it had a value: `-`, or the file to write.
        is_place = file is not None and (file.suffix == ".json" or file == Path("-"))
        json_place, file = (str(file), None) if is_place else ("-", file)
    forced: dict[str, Any] = {} if table is None else {"report_table": table}
    if warehouse is not None:
        forced["warehouse_dir"] = warehouse
    words = with_settings_here(context, set_, file) if warehouse is None else set_ or []
    config = load_or_exit(WarehouseConfig, file, words, log_level="WARNING", **forced)
    from kafka2011.services.warehouse.reports.traffic_job import run_report

    raise SystemExit(run_report(config, json_place))


if __name__ == "__main__":  # spark-submit FILE
    app(prog_name="report.py")
