"""`kafka2011 registry`: the schema registry, with Confluent's REST paths, until SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.services.schema_registry.config import SchemaRegistryConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    port: Annotated[int | None, typer.Option("--port", help="port; 0 takes a free one")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="where its file is")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
) -> None:
    """Keep Avro schemas, give them ids, and say which may follow which."""
    config = load_or_exit(
        SchemaRegistryConfig, file, set_ or [], registry_port=port, data_dir=data_dir
    )
    stop = stop_event()
    from kafka2011.services.schema_registry.app import run as serve

    raise SystemExit(serve(config, stop))
