"""The launcher: makes the typer app of a `Process` of the command table.

The configuration class and the entry are imported when the command runs, not for its --help.
"""

import importlib
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import typer

from kafka2011.cli.commands import Process, ShortOption
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


def launch(process: Process, file: Any, settings: list[str] | None, **by_setting: Any) -> None:
    """Load the settings and run the process. Ends the program with its exit status."""
    from kafka2011.runtime.process_settings import load_or_exit
    from kafka2011.runtime.signals import stop_event

    config: Any = load_or_exit(_named(process.config_class), file, settings or (), **by_setting)
    stop = stop_event()
    raise SystemExit(_named(process.entry)(config, stop))


def serve_broker(config: Any, stop: threading.Event) -> int:
    """Run a broker. Returns the exit status, 1 with one line when it cannot start."""
    from kafka2011.broker.process import CannotStart, run_broker
    from kafka2011.cli.output import fail

    try:
        return run_broker(config, stop)
    except CannotStart as error:
        fail(str(error), command="broker")


def serve_zookeeper(config: Any, stop: threading.Event) -> int:
    """Run a ZooKeeper server, with the Java of JAVA_HOME if that is set."""
    from kafka2011.services.zookeeper.app import run

    return run(config, stop, java_home=os.environ.get("JAVA_HOME", ""))


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
    from typing import Annotated

    return Annotated[option.type | None, typer.Option(option.flag, help=option.help)]


def _parameter(option: ShortOption) -> str:
    return option.flag.removeprefix("--").replace("-", "_")


def _named(place: str) -> Any:
    """The object that `module:name` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
