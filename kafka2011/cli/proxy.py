"""`kafka2011 proxy`: balance connections over targets, and break them on request."""

from pathlib import Path
from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.services.proxy.config import ProxyConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
    routes: Annotated[
        str | None,
        typer.Option("--routes", help="[name=]listen:port>target:port|target:port,..."),
    ] = None,
) -> None:
    """Relay TCP connections until SIGTERM; faults are set over the metrics port (/faults)."""
    forced = {} if routes is None else {"proxy_routes": routes}
    config = load_or_exit(ProxyConfig, file, set_ or [], **forced)
    stop = stop_event()
    from kafka2011.services.proxy.app import run as serve

    raise SystemExit(serve(config, stop))
