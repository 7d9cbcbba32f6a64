"""`kafka2011 warehouse check URL`: whether an object store can hold the warehouse."""

from typing import Annotated

import typer

from kafka2011.cli.output import fail
from kafka2011.runtime import logs
from kafka2011.runtime.storage_paths import ObjectPath, storage_path

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def warehouse() -> None:
    """Check whether an object store can hold the warehouse."""


@app.command()
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="s3://bucket/prefix")],
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=10_000, help="how often the writers race")
    ] = 50,
) -> None:
    """Race writers on an object store, and say whether it can hold the warehouse.

    Credentials are taken from the environment (AWS_ACCESS_KEY_ID, ...), the files in ~/.aws or the
    machine's role. Exit status 0: it can; 1: it cannot, with a line that says why; 2: no such URL.
    """
    logs.configure("warehouse", level="ERROR")
    try:
        found = storage_path(url)
    except ValueError as error:
        fail(str(error), 2)
    if not isinstance(found, ObjectPath):
        fail(f"{url} is a directory, which needs no check", 2)
    from kafka2011.services.warehouse.store_check import Unfit, check_store

    try:
        typer.echo(check_store(found, rounds=rounds))
    except Unfit as unfit:
        fail(str(unfit), 1)
