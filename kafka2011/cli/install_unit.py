"""`kafka2011 install-unit`: a systemd unit for a process of this host, with one settings file."""

import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.broker.config import BrokerConfig
from kafka2011.cli.output import complain, fail
from kafka2011.cli.settings import process_name
from kafka2011.cli.systemd_unit import (
    KINDS,
    MARK,
    STATE_DIRECTORY,
    CannotRun,
    Unit,
    outside,
    render,
)
from kafka2011.runtime.config import ConfigError, load, settings_of
from kafka2011.runtime.process_settings import config_classes
from kafka2011.runtime.storage_paths import ObjectPath

SETTINGS_DIRECTORY = Path("/etc/kafka2011")
UNITS = Path("/etc/systemd/system")
BOOTED = Path("/run/systemd/system")  # there where systemd is the init process (sd_booted)

app = typer.Typer(add_completion=False)


@app.command()
def install(
    process: Annotated[str, typer.Argument(metavar="PROCESS", help=", ".join(KINDS))],
    name: Annotated[
        str,
        typer.Option(
            "--name", help="name of the unit, for a second process of its kind on this host"
        ),
    ] = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", help="its settings (default: /etc/kafka2011/NAME.properties)"),
    ] = None,
    user: Annotated[
        str, typer.Option("--user", help="user that the process runs as")
    ] = "kafka2011",
    print_only: Annotated[
        bool, typer.Option("--print", help="only print the unit; change nothing")
    ] = False,
) -> None:
    """Write the systemd unit of a process, make its directories, and have systemd read the unit.

    The settings are checked first: status 2 when one is wrong. The unit is kafka2011-NAME.service;
    NAME is PROCESS unless --name says otherwise. Nothing is started. Running it again writes the
    same unit.

    For example: kafka2011 install-unit broker --print
    """
    if process not in KINDS:
        fail(f"no process {process!r} (there are: {', '.join(KINDS)})", 2)
    name = name or process
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,60}", name):
        fail(f"--name {name!r} may have letters, digits, - and _ alone", 2)
    if not re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,60}", user):
        fail(f"--user {user!r} may have letters, digits, -, _ and . alone", 2)
    unit = _unit(name, process, file or SETTINGS_DIRECTORY / f"{name}.properties", user)
    try:
        text = render(unit)
    except CannotRun as error:
        fail(str(error), 2)
    if print_only:
        print(text, end="")
        return
    if not BOOTED.is_dir():
        fail(f"systemd does not run this host ({BOOTED} is not there); --print shows the unit")
    try:
        _write(unit, text)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    print(f"{UNITS / _file_name(unit)} is written; to start it now and at each boot:")
    print(f"systemctl enable --now kafka2011-{name}")


def _unit(name: str, process: str, file: Path, user: str) -> Unit:
    """The unit of a settings file. Exits with status 2 when a setting cannot be used."""
    [config_class] = [found for found in config_classes() if process_name(found) == process]
    try:
        # The unit sets no environment variables: the file alone counts.
        loaded: tuple[Any, list[str]] = load(config_class, file=file, environment={})
    except ConfigError as error:
        fail(str(error), 2)
    config, warnings = loaded
    for warning in warnings:
        complain(warning)
    fields = settings_of(config_class)
    values: dict[str, Any] = {key: getattr(config, fields[key].name) for key in fields}
    # What is in an object store is no directory of this host.
    places = (values[key] for key in KINDS[process].writes)
    written = [str(place) for place in places if place and not isinstance(place, ObjectPath)]
    if isinstance(config, BrokerConfig) and str(config.quarantine) not in written:
        written.append(str(config.quarantine))
    return Unit(
        name,
        process,
        Path(sys.executable).parent / "kafka2011",
        _without_steps_up(file.absolute()),
        user,
        tuple(_without_steps_up(STATE_DIRECTORY / path) for path in written),
        values.get("buffered.request.bytes.max", 0),
    )


def _without_steps_up(path: Path) -> Path:
    """The path without `..`, so that it is below each path that it begins with."""
    return path.resolve() if ".." in path.parts else path


def _write(unit: Unit, text: str) -> None:
    """Make the directories and the unit, and have systemd read it. Raises OSError."""
    target = UNITS / _file_name(unit)
    if target.exists() and not target.read_text(encoding="utf-8").startswith(MARK):
        fail(f"{target} was not made by this command: move it away, or choose another --name")
    try:
        owner = pwd.getpwnam(unit.user)
    except KeyError:
        home = f"useradd --system --home-dir {STATE_DIRECTORY} {unit.user}"
        fail(f"there is no user {unit.user!r}: {home}")
    for directory in outside(unit.directories):
        if not directory.exists():
            directory.mkdir(parents=True, mode=0o750)
            shutil.chown(directory, owner.pw_uid, owner.pw_gid)
    part = target.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(target)
    done = subprocess.run(["systemctl", "daemon-reload"], check=False)
    if done.returncode:
        fail(f"{target} is written, but systemctl daemon-reload ended with {done.returncode}")


def _file_name(unit: Unit) -> str:
    return f"kafka2011-{unit.name}.service"
