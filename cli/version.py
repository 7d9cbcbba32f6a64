"""`kafka2011 version`: the version, and which twin of the hot loops is in use."""

from importlib.metadata import PackageNotFoundError, version

import typer

app = typer.Typer()


@app.command()
def show() -> None:
    """Print the version and whether the hot loops are compiled or pure."""
    from protocol import hot

    try:
        number = version("kafka2011")
    except PackageNotFoundError:
        number = "uninstalled"
    typer.echo(f"kafka2011 {number} ({'compiled' if hot.COMPILED else 'pure'})")
