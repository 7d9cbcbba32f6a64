"""`kafka2011 frontend`: send an access log or synthetic activity until it ends or SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.services.frontend.config import FrontendConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
) -> None:
    """Run a load generator: source=synthetic (seed, rate) or source=access-log (input.path).

    Needs broker.list (id:host:port of a balancer or of brokers) or zk.connect. What was sent is
    journalled in data.dir: started again, it goes on where the brokers' disks have it.
    """
    config = load_or_exit(FrontendConfig, file, set_ or [])
    stop = stop_event()
    from kafka2011.services.frontend.app import run as send

    raise SystemExit(send(config, stop))
