"""The jobs as commands: their arguments, for `kafka2011 NAME` and for spark-submit alike.

Each module holds a typer `app`, and its file is a script for spark-submit wherever the package is
installed. The scripts in spark-jobs/ are the same for a clone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

# As in the other commands.
FILE_HELP = "properties file with settings"
WAREHOUSE_HELP = (
    "directory of the warehouse, or s3://bucket/prefix; what is reported is written into `reports` "
    "beside it (object store: var/reports), unless report.dir is set"
)
PropertiesFile = Annotated[Path | None, typer.Argument(metavar="FILE", help=FILE_HELP)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="a setting (kafka2011 settings lists them); repeatable"
    ),
]


def with_settings_here(
    context: typer.Context, words: Sequence[str] | None, file: Path | None
) -> list[str]:
    """The words of --set, behind the settings of the deployment in the current directory that they,
    the file and the environment do not give. Under spark-submit these are not looked for."""
    words = words or []
    here = [] if context.obj is None else context.obj(words, file)
    return [*here, *words]
