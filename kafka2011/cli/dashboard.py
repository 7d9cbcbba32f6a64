"""`kafka2011 dashboard`: the page that shows both datacenters live, until SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.services.dashboard.config import DashboardConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    port: Annotated[int | None, typer.Option("--port", help="port of the page")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
) -> None:
    """Serve the page (http://127.0.0.1:8088 unless set otherwise); it only looks."""
    config = load_or_exit(DashboardConfig, file, set_ or [], dashboard_port=port)
    stop = stop_event()
    from kafka2011.services.dashboard.app import run as serve

    raise SystemExit(serve(config, stop))
