"""`kafka2011 reports`: the reports on member activity; `kafka2011 report` is the one on traffic."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.cli import spark_environment
from kafka2011.cli.settings import load_or_exit
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="which; all when none is named")
    ] = None,
    file: Annotated[Path | None, typer.Option("--config", help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
    warehouse: Annotated[
        Path | None, typer.Option("--warehouse", help="the warehouse's directory")
    ] = None,
) -> None:
    """Click-through per item and position, top searches, co-viewed pages, sessions, and candidates
    for abuse: a table and a picture of each, from what the warehouse holds."""
    forced: dict[str, Any] = {} if warehouse is None else {"warehouse_dir": str(warehouse)}
    config = load_or_exit(WarehouseConfig, file, set_ or [], log_level="WARNING", **forced)
    spark_environment.prepare()
    from kafka2011.services.warehouse.reports import activity_job as activity_run

    raise SystemExit(activity_run.main(config, names or ()))
