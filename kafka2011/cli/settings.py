"""`kafka2011 settings`: the settings of a process, with environment variables and defaults."""

from typing import Annotated

import typer

from kafka2011.cli.options import AsJson
from kafka2011.cli.output import fail, print_json, print_table
from kafka2011.runtime.config import documented
from kafka2011.runtime.process_settings import config_classes

# Classes whose command has another name.
COMMAND_OF = {
    "OnlineConsumer": "online-consumer",
    "SchemaRegistry": "registry",
    "Warehouse": "load",
}

app = typer.Typer(add_completion=False)


@app.command()
def run(
    process: Annotated[
        str, typer.Argument(metavar="PROCESS", help="one process (default: all)")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the settings of a process, or of all, with their defaults.

    A setting is given with --set NAME=VALUE, in the environment (log.flush.interval is
    KAFKA2011_LOG_FLUSH_INTERVAL) or in a properties file, in this order of precedence.

    For example: kafka2011 settings broker
    """
    processes = {process_name(config_class): config_class for config_class in config_classes()}
    if process and process not in processes:
        fail(f"no process {process!r} (there are: {', '.join(processes)})", 2)
    rows = [
        (name, setting, variable, default, description)
        for name, config_class in processes.items()
        if process in ("", name)
        for setting, variable, default, description in sorted(documented(config_class))
    ]
    titles = ("process", "setting", "variable", "default", "description")
    if as_json:
        print_json([dict(zip(titles, row, strict=True)) for row in rows])
    else:
        print_table(titles[:2] + titles[3:], [row[:2] + row[3:] for row in rows])


def process_name(config_class: type) -> str:
    """The command of the process that has these settings."""
    name = config_class.__name__.removesuffix("Config")
    return COMMAND_OF.get(name, name.lower())
