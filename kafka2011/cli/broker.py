"""`kafka2011 broker`: run one broker until SIGTERM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit

app = typer.Typer(add_completion=False)


@app.command()
def run(
    properties: Annotated[
        Path | None, typer.Argument(help="a server.properties, 0.7's or ours")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="name=value, over file and environment")
    ] = None,
) -> None:
    """Run one broker. It stops cleanly on SIGTERM (exit status 0)."""
    from kafka2011.broker.config import BrokerConfig
    from kafka2011.broker.process import CannotStart, run_broker
    from kafka2011.runtime.signals import stop_event

    config = load_or_exit(BrokerConfig, properties, set_ or ())
    stop = stop_event()
    try:
        status = run_broker(config, stop)
    except CannotStart as error:
        print(f"kafka2011 broker: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(status)
