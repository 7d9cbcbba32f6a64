"""`kafka2011 online-consumer`: one member of an online consumer group, until SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.services.online_consumer.config import OnlineConsumerConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
) -> None:
    """Read events as they come; counts, lag and latency are on the metrics port."""
    config = load_or_exit(OnlineConsumerConfig, file, set_ or [])
    stop = stop_event()
    from kafka2011.services.online_consumer.app import run as consume

    raise SystemExit(consume(config, stop))
