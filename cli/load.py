"""`kafka2011 load`: the load job; also what `spark-submit spark-jobs/load.py` runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli import spark_environment
from cli.settings import load_or_exit
from services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
    interval_ms: Annotated[
        int | None, typer.Option("--interval-ms", help="load again and again, this far apart")
    ] = None,
) -> None:
    """Load what is new in the offline brokers' topics into the warehouse."""
    forced: dict[str, Any] = {} if interval_ms is None else {"load_interval_ms": interval_ms}
    config = load_or_exit(WarehouseConfig, file, set_ or [], **forced)
    spark_environment.prepare()
    from services.warehouse import app as job

    raise SystemExit(job.main(config))
