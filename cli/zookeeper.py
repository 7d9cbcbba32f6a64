"""`kafka2011 zookeeper`: run one ZooKeeper server from PySpark's jars until SIGTERM."""

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.settings import load_or_exit
from runtime.signals import stop_event
from services.zookeeper.config import ZooKeeperConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
) -> None:
    """Run one ZooKeeper server. Needs Java 17 or newer; the jars come with PySpark."""
    config = load_or_exit(ZooKeeperConfig, file, set_ or [])
    stop = stop_event()
    from services.zookeeper.app import run as serve

    raise SystemExit(serve(config, stop, java_home=os.environ.get("JAVA_HOME", "")))
