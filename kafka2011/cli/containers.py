"""`kafka2011 containers`: the demo in the containers of docker-compose.yml."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kafka2011.cli.options import Input, InputFormat
from kafka2011.cli.output import fail
from kafka2011.runtime.signals import stop_event

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Run the deployment in containers, from a clone.",
)


@app.callback()
def containers() -> None:
    """Run the deployment in containers, from a clone (also: make up, make down)."""


@app.command()
def demo(
    input_path: Input = "",
    input_format: InputFormat = "",
    *,
    project: Annotated[
        str, typer.Option("--project", help="Compose project, whose volumes are removed")
    ] = "kafka2011-demo",
    rate: Annotated[
        int, typer.Option("--rate", help="synthetic events a second, over all frontends")
    ] = 2000,
    duration_s: Annotated[
        int, typer.Option("--seconds", help="length of the activity, seconds")
    ] = 30,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            min=1,
            max=3,
            help="replicas of each live broker, 1 or 3; with 3 one loses its disk in the middle",
        ),
    ] = 1,
) -> None:
    """Run all containers once from clean: send, mirror, load, report, prove that nothing was lost.

    Exits 0 only if the audit balances to the last message. Removes everything it made.
    """
    from kafka2011.services.containers.demo import (
        FRONTENDS,
        ContainerDemo,
        check_input,
        dashboard_port,
        leave,
        project_root,
    )
    from kafka2011.services.containers.engine import ComposeProject, EngineError
    from kafka2011.services.containers.replicas import COMPOSE_FILES
    from kafka2011.services.embedded.supervisor import StartFailed
    from kafka2011.services.frontend.input_file import InputRefused

    if replicas == 2:
        fail("--replicas 2: in containers a live broker is one process, or a set of three", 2)
    frontends = FRONTENDS[:1] if input_path else FRONTENDS
    settings = {
        "FRONTEND_SOURCE": "access-log" if input_path else "synthetic",
        "FRONTEND_INPUT": str(Path(input_path).resolve()) if input_path else "/dev/null",
        "FRONTEND_FORMAT": input_format or "auto",
        # An access log goes as fast as it can.
        "FRONTEND_RATE": "0" if input_path else str(max(1, rate // len(frontends))),
        "FRONTEND_DURATION_MS": str(duration_s * 1000),
        "MEASURE_INTERVAL_MS": "0",  # measurements would not end with the frontends
        "AUDIT_REDELIVERY_EXPECTED": "false",  # the demo reports restarts itself
    }
    if replicas == 3:
        settings["COMPOSE_FILE"] = COMPOSE_FILES
    try:
        if found := check_input(input_path, settings["FRONTEND_FORMAT"]):
            typer.echo(found)
        root = project_root()
        port, notice = dashboard_port(ComposeProject(project, root, os.environ))
    except (StartFailed, EngineError) as error:
        fail(str(error), 2)
    except InputRefused as error:
        fail(f"input {error}")
    except ValueError as error:
        fail(f"--format: {error}", 2)
    if notice:
        typer.echo(notice, err=True)
    settings["DASHBOARD_PORT"] = str(port)
    compose = ComposeProject(project, root, {**os.environ, **settings})
    stop = stop_event(forced=lambda: leave(compose))
    raise typer.Exit(
        ContainerDemo(
            compose,
            Console(),
            frontends=frontends,
            report_table="access_log" if input_path else "page_view",
            stop_asked=stop.is_set,
            loses_leader=replicas == 3,
        ).run()
    )
