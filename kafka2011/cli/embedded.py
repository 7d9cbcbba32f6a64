"""`kafka2011 embedded`: the whole deployment as local processes; status, stop, start, kill."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from kafka2011.cli.connections import deployment_directory
from kafka2011.cli.extras import missing
from kafka2011.cli.options import AsJson, Input, InputFormat
from kafka2011.cli.output import fail, print_json, print_table

if TYPE_CHECKING:
    from kafka2011.services.embedded.config import EmbeddedConfig
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
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="a setting of the deployment; repeatable"),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        "--replicas", min=1, max=3, help="replicas of each live broker; a demo loses one's disk"
    ),
]
TablesPlace = Annotated[
    str | None,
    typer.Option(
        "--warehouse", metavar="URL", help="s3://bucket/prefix of the tables (default: in --dir)"
    ),
]
SIGNALS = ("KILL", "TERM", "STOP", "CONT")  # those that the documentation names
STOP_TIMEOUT_S = 120.0  # above the supervisor's own limit for all stages together
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="directory of data, logs and state (default: that which runs here, or var)"
    ),
]


# For the commands that start a deployment, where --set embedded.dir is the same.
NewRootOption = Annotated[
    Path | None, typer.Option("--dir", help="directory of data, logs and state (default: var)")
]


@app.command()
def demo(
    root: NewRootOption = None,
    input_path: Input = "",
    input_format: InputFormat = "",
    *,
    is_fresh: Annotated[
        bool, typer.Option("--fresh", help="delete what `up` has collected in the directory")
    ] = False,
    port: PortOption = None,
    replicas: Replicas = None,
    warehouse: TablesPlace = None,
    overrides: Overrides = None,
) -> None:
    """Run everything once from clean: send, mirror, load, report, and prove that nothing was lost.

    Exits 0 only if the audit balances to the last message.
    """
    _check_installed()
    deployment = _deployment(
        root,
        overrides,
        port,
        (input_path, input_format),
        replicas=replicas,
        warehouse=warehouse,
        keeps=not is_fresh,
    )
    raise typer.Exit(_run(deployment.run))


@app.command()
def up(
    root: NewRootOption = None,
    port: PortOption = None,
    replicas: Replicas = None,
    warehouse: TablesPlace = None,
    overrides: Overrides = None,
) -> None:
    """Run everything on the existing data (synthetic activity) until Ctrl-C."""
    _check_installed()
    deployment = _deployment(root, overrides, port, replicas=replicas, warehouse=warehouse)
    raise typer.Exit(_run(deployment.run_until_stopped))


def _check_installed() -> None:
    """Exit if packages that its processes need are missing: Spark's, and the web pages'."""
    if install := missing("pyspark", "pyarrow", "deltalake", "starlette", "uvicorn"):
        fail(f"the deployment needs more packages: {install}")


def _deployment(
    root: Path | None,
    overrides: list[str] | None,
    port: int | None,
    given: tuple[str, str] = ("", ""),
    *,
    replicas: int | None,
    warehouse: str | None,
    keeps: bool = False,
) -> "Demo":
    """The deployment of these options. `given`: an input and its format. `keeps`: refuse a
    directory with messages that `up` collected."""
    from kafka2011.runtime.process_settings import load_or_exit
    from kafka2011.services.embedded.config import EmbeddedConfig
    from kafka2011.services.embedded.control import DirectoryRefused, preparing
    from kafka2011.services.embedded.demo import Demo
    from kafka2011.services.embedded.root_directory import check_replaceable, check_root
    from kafka2011.services.embedded.running import runs
    from kafka2011.services.embedded.supervisor import StartFailed
    from kafka2011.services.frontend.input_file import InputRefused
    from kafka2011.services.frontend.log_format import parser_of

    try:
        parser_of(given[1] or "auto")
    except ValueError as error:
        fail(f"--format (make: LOG_FORMAT=): {error}", 2)
    config = load_or_exit(
        EmbeddedConfig,
        None,
        overrides or (),
        log_level="WARNING",
        embedded_dir=root,
        embedded_input=given[0] or None,
        embedded_input_format=given[1] or None,
        embedded_dashboard_port=port,
        embedded_replicas=replicas,
        embedded_warehouse=warehouse,
    )
    try:
        with preparing(config.root_dir):
            check_root(config.root_dir)
            if keeps and not runs(config.root_dir):  # one that is in use is refused later
                check_replaceable(config.root_dir)
        options = {"--port": port, "--replicas": replicas, "--warehouse": warehouse}
        again = _given_again(config, options, overrides or ())
        return Demo(_with_checked_input(config, keeps=keeps), Console(), again, keeps=keeps)
    except (DirectoryRefused, StartFailed) as error:
        fail(str(error), 2)
    except InputRefused as error:
        fail(f"input {error}")


def _given_again(
    config: "EmbeddedConfig", options: Mapping[str, object], overrides: Iterable[str]
) -> list[str]:
    """The words that start the deployment with these settings again. Defaults, of which `make`
    gives some, are left out."""
    from kafka2011.runtime.config import default_of, settings_of

    fields = settings_of(type(config))

    def is_default(name: str) -> bool:
        field = fields.get(name)
        return field is not None and getattr(config, field.name) == default_of(field)

    names = {"--port": "embedded.dashboard.port"}
    given = [
        word
        for option, value in options.items()
        if value is not None and not is_default(names.get(option, ""))
        for word in (option, str(value))
    ]
    for override in overrides:
        name = override.partition("=")[0].strip()
        if name != "embedded.dir" and not is_default(name):  # the line has --dir
            given += ["--set", override]
    return given


def _with_checked_input(config: "EmbeddedConfig", *, keeps: bool) -> "EmbeddedConfig":
    """The settings with a checked input, kept in a file if it was a stream; prints what it is.
    Raises StartFailed, DirectoryRefused (by `keeps`, too), InputRefused."""
    from kafka2011.services.embedded.control import held
    from kafka2011.services.embedded.demo_input import (
        STANDARD_INPUT,
        check_input,
        discard,
        is_stream,
        keep,
    )
    from kafka2011.services.embedded.root_directory import check_replaceable
    from kafka2011.services.frontend.input_file import InputRefused

    name, root = config.input_path, config.root_dir

    def check() -> None:
        if keeps:
            check_replaceable(root)

    if not is_stream(name):
        said = check_input(name, config.input_format)
    else:
        is_new = not root.exists()
        with (
            held(root, "demo", check=check),
            sys.stdin.buffer if name == STANDARD_INPUT else open(name, "rb") as stream,
        ):
            config = replace(config, input_path=keep(stream, root))
            try:
                said = check_input(config.input_path, config.input_format)
            except InputRefused as error:
                discard(root, is_new=is_new)
                text = str(error).replace(config.input_path, name, 1)
                raise InputRefused(text) from None
    if said:
        typer.echo(said)
    return config


def _run(run: Callable[[], int]) -> int:
    from kafka2011.services.embedded.control import DirectoryRefused

    try:
        return run()
    except DirectoryRefused as error:
        fail(str(error), 2)


@app.command()
def status(root: RootOption = None, as_json: AsJson = False) -> None:
    """Show every process: state, and its address as the option that takes it.

    Exits 1 when one that should run does not or is paused, and while not all have been started;
    3 when no deployment runs.
    """
    from kafka2011.services.embedded.control import (
        NotRunning,
        is_serving,
        last_command,
        to_paste,
    )
    from kafka2011.services.embedded.processes import states_now, wait_for
    from kafka2011.services.embedded.running import runs

    root = deployment_directory(root)
    is_up = runs(root)
    _refuse_another_users(root)
    if is_up:  # the supervisor alone has a status, and looks a few times a second
        wait_for(
            lambda: all(s["running"] or s["status"] is not None for s in states_now(root)), 2.0
        )
    states, serves = sorted(states_now(root), key=_place), is_serving(root)
    if as_json:
        print_json(states)
    if not is_up:
        fail(str(NotRunning(root)), 3)
    failed = [
        number
        for number, state in enumerate(states)
        if state["paused"] or not (state["running"] or state["done"])
    ]
    if not as_json:
        print_table(
            ("name", "state", "address (and the option that takes it)"),
            [(state["name"], _state_of(state), _address_of(state)) for state in states],
            red_rows=failed,
        )
        for number, state in enumerate(states):
            if state["paused"]:
                print(f"resume it: {to_paste(root, 'kill', state['name'], 'CONT')}")
            elif number in failed and state["status"] is not None and serves:
                print(f"start it again: {to_paste(root, 'start', state['name'])}")
        if not serves:
            print("not all of it serves yet: it is starting, or being stopped")
        command, pid = last_command(root)
        print(f"embedded {command}, pid {pid}, in {root}/; logs: {root / 'logs'}/NAME.log")
    if failed or not serves:
        raise typer.Exit(1)


def _place(state: dict[str, Any]) -> list[tuple[int, str]]:
    """The key by which processes are sorted: broker-2 before broker-11."""
    parts = state["name"].split("-")
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _state_of(state: dict[str, Any]) -> str:
    from kafka2011.services.embedded.supervisor import describe_status

    if state["paused"]:
        return f"paused by SIGSTOP, pid {state['pid']}"
    if state["running"]:
        return f"running, pid {state['pid']}"
    if state["status"] is None:
        return "ended"
    if state["status"] == 0:
        return "done" if state["done"] else "stopped"
    return describe_status(state["status"])


def _address_of(state: dict[str, Any]) -> str:
    """A process's address: the option of commands that connect to it, or the URL of its page."""
    ports = state["ports"]
    if "client" in ports:
        return f"--zookeeper 127.0.0.1:{ports['client']}"
    if "broker" in ports:
        return f"--server kafka://127.0.0.1:{ports['broker']}"
    if "balancer" in ports:
        return f"--broker-list 0:127.0.0.1:{ports['balancer']}"
    if "registry" in ports:
        return f"--registry http://127.0.0.1:{ports['registry']}"
    option = "--url " if state["name"] == "audit" else ""  # of `kafka2011 audit`
    return f"{option}http://127.0.0.1:{ports.get('page') or ports['metrics']}"


@app.command()
def stop(name: Annotated[str, typer.Argument(hidden=True)] = "", root: RootOption = None) -> None:
    """Stop the deployment, as Ctrl-C does where it runs; returns when all has ended."""
    from kafka2011.services.embedded.control import (
        NotRunning,
        TakesNoRequests,
        ask,
        last_command,
        stopped_text,
        to_paste,
    )
    from kafka2011.services.embedded.processes import wait_for
    from kafka2011.services.embedded.running import runs

    root = deployment_directory(root)
    if name:
        one = to_paste(root, "kill", name, "TERM")
        fail(f"stop is for the whole deployment; this stops {name} cleanly: {one}", 2)
    has_met_one = runs(root)
    _refuse_another_users(root)

    def is_asked() -> bool:
        """Whether it has been asked, or has ended. One that starts takes the request in a moment,
        one that is being stopped already takes none."""
        try:
            answer = ask(root, "stop")
        except TakesNoRequests:
            return False
        except NotRunning as error:
            if not has_met_one:
                fail(str(error), 3)
            return True
        if answer.startswith("error"):
            fail(answer.removeprefix("error: "))
        return True

    if not (
        wait_for(is_asked, STOP_TIMEOUT_S) and wait_for(lambda: not runs(root), STOP_TIMEOUT_S)
    ):
        fail(f"the deployment under {root} did not stop in {STOP_TIMEOUT_S:.0f} s")
    if last_command(root)[0] == "up":
        typer.echo(stopped_text(root))
    typer.echo(f"stopped; data and logs stay in {root}/")


@app.command()
def start(name: str, root: RootOption = None) -> None:
    """Start a process that was killed or has ended."""
    typer.echo(_ask(deployment_directory(root), "start", name))


@app.command()
def restart(name: str, root: RootOption = None) -> None:
    """Stop a process cleanly, if it runs, and start it again."""
    typer.echo(_ask(deployment_directory(root), "restart", name))


def _ask(root: Path, verb: str, name: str) -> str:
    """The supervisor's answer; ends the command when it is an error or no deployment runs."""
    from kafka2011.services.embedded.control import NotRunning, TakesNoRequests, ask

    _state_of_one(root, name)
    try:
        answer = ask(root, verb, name)
    except TakesNoRequests as error:
        fail(str(error))
    except NotRunning as error:
        fail(str(error), 3)
    if answer.startswith("error"):
        fail(answer.removeprefix("error: "))
    return answer


def _refuse_another_users(root: Path) -> None:
    """End the command when the deployment that runs is another user's: all its processes would seem
    to have ended."""
    from kafka2011.runtime.process_state import is_hidden
    from kafka2011.services.embedded.control import last_command
    from kafka2011.services.embedded.running import runs

    pid = last_command(root)[1]
    if runs(root) and pid.isdecimal() and is_hidden(int(pid)):
        fail(
            f"the deployment under {root} is another user's (pid {pid}): its processes cannot be "
            "looked at"
        )


def _state_of_one(root: Path, name: str) -> dict[str, Any]:
    """The state of a process; ends the command when there is none of that name."""
    from kafka2011.runtime.config import suggestion
    from kafka2011.services.embedded.control import NotRunning
    from kafka2011.services.embedded.processes import states_now
    from kafka2011.services.embedded.running import runs

    if not runs(root):
        fail(str(NotRunning(root)), 3)
    _refuse_another_users(root)
    states = {state["name"]: state for state in states_now(root)}
    if name not in states:
        others = f" (there are: {', '.join(states)})" if states else " yet"
        fail(f"no process {name!r} under {root}{suggestion(name, states)}{others}", 2)
    return states[name]


@app.command()
def kill(
    name: str,
    signal_name: Annotated[str, typer.Argument(help="KILL, TERM, STOP, CONT ...")] = "KILL",
    root: RootOption = None,
) -> None:
    """Send a signal to a process and its children (default: SIGKILL)."""
    from kafka2011.runtime.config import suggestion
    from kafka2011.services.embedded.control import to_paste

    root = deployment_directory(root)
    state = _state_of_one(root, name)
    try:
        number = signal.Signals[f"SIG{signal_name.upper().removeprefix('SIG')}"]
    except KeyError:
        known = suggestion(signal_name.upper().removeprefix("SIG"), SIGNALS)
        fail(f"no signal {signal_name!r}{known} (usual ones: {', '.join(SIGNALS)})", 2)
    pid = state["pid"]
    if not state["running"]:
        fail(f"{name} does not run")
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # it ended a moment ago
        fail(f"{name} does not run")
    typer.echo(f"{number.name} sent to {name} (pid {pid})")
    if number is signal.SIGKILL:
        typer.echo(f"start it again: {to_paste(root, 'start', name)}")
    if number is signal.SIGSTOP:
        typer.echo(f"resume it: {to_paste(root, 'kill', name, 'CONT')}")
