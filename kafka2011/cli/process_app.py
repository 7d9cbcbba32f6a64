"""The typer app of a `Process` of the command table: its help, its completion, its errors.

The configuration class and the entry are imported when the command runs, not for its --help.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from kafka2011.cli.commands import Process, ShortOption
from kafka2011.cli.launcher import launch
from kafka2011.cli.options import PropertiesFile, Settings


def process_app(process: Process) -> typer.Typer:
    """The app of `kafka2011 NAME [FILE] [--set NAME=VALUE]...` for one process."""
    app = typer.Typer(add_completion=False)
    app.command(help=process.help)(process_command(process))
    return app


def process_command(process: Process) -> Callable[..., None]:
    """The function of the command, with one parameter for each option."""

    def run(**given: Any) -> None:
        by_setting = {
            option.setting.replace(".", "_"): given[_parameter(option)]
            for option in process.options
        }
        launch(process, given["file"], given["set_"], **by_setting)

    parameters = list(_parameters(process))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(process: Process) -> Iterator[inspect.Parameter]:
    def keyword(name: str, annotation: Any) -> inspect.Parameter:
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )

    yield keyword("file", PropertiesFile)
    for option in process.options:
        yield keyword(_parameter(option), _annotation(option))
    yield keyword("set_", Settings)


def _annotation(option: ShortOption) -> Any:
    return Annotated[option.type | None, typer.Option(option.flag, help=option.help)]


def _parameter(option: ShortOption) -> str:
    return option.flag.removeprefix("--").replace("-", "_")
