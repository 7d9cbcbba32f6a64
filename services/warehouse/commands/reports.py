"""`kafka2011 reports`: the reports on member activity; `kafka2011 report` is the one on traffic.

Also as `spark-submit spark-jobs/reports.py`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.commands import (
    FILE_HELP,
    WAREHOUSE_HELP,
    Settings,
    with_settings_here,
)
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="reports to make (default: all)")
    ] = None,
    file: Annotated[Path | None, typer.Option("--config", help=FILE_HELP)] = None,
    set_: Settings = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="PATH", help=WAREHOUSE_HELP),
    ] = None,
) -> None:
    """Click-through per item and position, top searches, co-viewed pages, sessions, and candidates
    for abuse: a table and a picture of each, from the tables of the warehouse: by default that of
    the deployment that runs in this directory."""
    forced: dict[str, Any] = {} if warehouse is None else {"warehouse_dir": warehouse}
    words = with_settings_here(context, set_, file) if warehouse is None else set_ or []
    config = load_or_exit(WarehouseConfig, file, words, log_level="WARNING", **forced)
    from kafka2011.services.warehouse.reports.activity_job import run_reports

    raise SystemExit(run_reports(config, names or ()))


if __name__ == "__main__":  # spark-submit FILE
    app(prog_name="reports.py")
