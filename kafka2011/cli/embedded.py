"""`kafka2011 embedded`: the whole deployment as local processes; status, start, kill."""

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kafka2011.cli.options import AsJson
from kafka2011.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from kafka2011.services.embedded.demo import Demo

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Run and control the deployment as local processes.",
)

PortOption = Annotated[
    int | None,
    typer.Option("--port", help="port of the dashboard (default: 8088, or a free one; -1: none)"),
]
RootOption = Annotated[Path, typer.Option("--dir", help="directory of data, logs and state")]


# For the commands that start a deployment, where --set embedded.dir is the same.
NewRootOption = Annotated[
    Path | None, typer.Option("--dir", help="directory of data, logs and state (default: var)")
]


@app.command()
def demo(
    root: NewRootOption = None,
    input_path: Annotated[
        str, typer.Option("--input", help="access log to send (common or combined format)")
    ] = "",
    port: PortOption = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a setting of the deployment; repeatable"),
    ] = None,
) -> None:
    """Run everything once from clean: send, mirror, load, report, and prove that nothing was lost.

    Exits 0 only if the audit balances to the last message.
    """
    raise typer.Exit(_deployment(root, input_path, overrides, port).run())


@app.command()
def up(
    root: NewRootOption = None,
    port: PortOption = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a setting of the deployment; repeatable"),
    ] = None,
) -> None:
    """Run everything on the existing data (synthetic activity) until Ctrl-C."""
    raise typer.Exit(_deployment(root, "", overrides, port).run_until_stopped())


def _deployment(
    root: Path | None, input_path: str, overrides: list[str] | None, port: int | None
) -> "Demo":
    from kafka2011.runtime.process_settings import load_or_exit
    from kafka2011.services.embedded.config import EmbeddedConfig
    from kafka2011.services.embedded.demo import Demo, check_input, check_root
    from kafka2011.services.embedded.supervisor import StartFailed

    config = load_or_exit(
        EmbeddedConfig,
        None,
        overrides or (),
        log_level="WARNING",
        embedded_dir=root,
        embedded_input=input_path or None,
        embedded_dashboard_port=port,
    )
    try:
        check_input(config.input_path)
        check_root(config.root_dir)
    except StartFailed as error:
        fail(str(error), 2)
    return Demo(config, Console())


@app.command()
def status(
    root: RootOption = Path("var"),
    as_json: AsJson = False,
) -> None:
    """Show every process: state, pid, ports, log. Exits 1 when one that should run does not."""
    from kafka2011.services.embedded.processes import is_ours

    states = _states(root)
    if not states:
        fail(f"no embedded deployment under {root}")
    for state in states:
        state["running"] = is_ours(state["pid"], state["name"])
    failed = [
        number
        for number, state in enumerate(states)
        if not state["running"] and state["status"] != 0
    ]
    if as_json:
        print_json(states)
    else:
        print_table(
            ("name", "datacenter", "state", "pid", "ports", "log"),
            [
                (
                    state["name"],
                    state["datacenter"],
                    "running" if state["running"] else f"ended ({state['status']})",
                    str(state["pid"]),
                    ", ".join(f"{name} {port}" for name, port in state["ports"].items()),
                    state["log"],
                )
                for state in states
            ],
            red_rows=failed,
        )
    if failed:
        raise typer.Exit(1)


@app.command()
def start(name: str, root: RootOption = Path("var")) -> None:
    """Restart a process that was killed or has ended."""
    from kafka2011.services.embedded.control import NotRunning, ask

    try:
        answer = ask(root, "start", name)
    except NotRunning as error:
        fail(str(error))
    typer.echo(answer, err=answer.startswith("error"))
    raise typer.Exit(1 if answer.startswith("error") else 0)


@app.command()
def kill(
    name: str,
    signal_name: Annotated[str, typer.Argument(help="KILL, TERM, STOP, CONT ...")] = "KILL",
    root: RootOption = Path("var"),
) -> None:
    """Send a signal to a process and its children (default: SIGKILL)."""
    try:
        number = signal.Signals[f"SIG{signal_name.upper().removeprefix('SIG')}"]
    except KeyError:
        fail(f"no signal {signal_name!r}", 2)
    from kafka2011.services.embedded.processes import is_ours

    for state in _states(root):
        if state["name"] == name:
            if not is_ours(state["pid"], name):
                fail(f"{name} does not run")
            os.killpg(state["pid"], number)
            typer.echo(f"{number.name} sent to {name} (pid {state['pid']})")
            return
    known = ", ".join(state["name"] for state in _states(root)) or "none"
    fail(f"no process {name!r} under {root}; there are: {known}", 2)


def _states(root: Path) -> list[dict]:  # type: ignore[type-arg]
    states = []
    for path in sorted((root / "run").glob("*.json")):
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(state, dict) and "command" in state:
            states.append(state)
    return states
