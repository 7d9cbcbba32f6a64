"""`kafka2011 version`: the version, and which twin of the hot loops is in use."""

import typer

app = typer.Typer(add_completion=False)


@app.command()
def show() -> None:
    """Print the version and whether the hot loops are compiled or pure."""
    from kafka2011 import __version__
    from kafka2011.protocol import hot

    typer.echo(f"kafka2011 {__version__} ({'compiled' if hot.COMPILED else 'pure'})")
