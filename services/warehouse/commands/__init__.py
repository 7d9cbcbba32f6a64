"""The jobs as commands: their arguments, for `kafka2011 NAME` and for spark-submit alike.

Each module holds a typer `app`, and its file is a script for spark-submit wherever the package is
installed. The scripts in spark-jobs/ are the same for a clone.
"""

from pathlib import Path


def script(name: str) -> Path:
    """The file that spark-submit runs for the command `name`."""
    return Path(__file__).with_name(f"{name}.py")
