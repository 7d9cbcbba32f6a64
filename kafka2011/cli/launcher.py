"""The launcher: loads the settings of a `Process` of the command table and runs its entry.

A process is mostly started with a file of settings, `--set` and its own options, and nothing else:
`usual_words` reads these. Help, completion and mistakes are left to typer (`process_app`), whose
import takes longer, and more memory, than that of most processes.
"""

import importlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kafka2011.cli.commands import Command, Process


class Words(NamedTuple):
    """What the command line of a process says."""

    process: Process
    file: Path | None
    settings: list[str]
    by_setting: dict[str, str]  # of its own options, by the setting's name with _ for .


def usual_words(command: Command, words: Sequence[str]) -> Words | None:
    """The words of a process's command line; None if typer must handle it."""
    process, rest = _process_of(command, words)
    if process is None:
        return None
    flags = {option.flag: option.setting.replace(".", "_") for option in process.options}
    file: Path | None = None
    settings: list[str] = []
    by_setting: dict[str, str] = {}
    left = iter(rest)
    for word in left:
        flag, has_value, value = word.partition("=")
        if not word.startswith("-"):
            if not word or file is not None:
                return None
            file = Path(word)
            continue
        if not has_value:
            value = next(left, "-")
        if value.startswith("-"):
            return None
        if flag == "--set":
            settings.append(value)
        elif flag in flags:
            by_setting[flags[flag]] = value
        else:
            return None
    return Words(process, file, settings, by_setting)


def _process_of(command: Command, words: Sequence[str]) -> tuple[Process | None, Sequence[str]]:
    """The process that the words are for, and its own words."""
    if isinstance(command.run, Process):
        return command.run, words
    serves = command.serves
    if serves is None:
        return None, words
    if words[:1] == [serves.word]:
        return serves.process, words[1:]
    # A first word without dashes could name another subcommand.
    is_meant = serves.is_default and (not words or words[0].startswith("--set"))
    return (serves.process if is_meant else None), words


def launch(
    process: Process, file: Any, settings: Sequence[str] | None, **by_setting: Any
) -> NoReturn:
    """Load the settings and run the process. Ends the program with its exit status."""
    from kafka2011.runtime.process_settings import load_or_exit
    from kafka2011.runtime.signals import stop_event

    config: Any = load_or_exit(_named(process.config_class), file, settings or (), **by_setting)
    stop = stop_event()
    status = _named(process.entry)(config, stop)
    if status == 1 and not stop.is_set():
        _say_other_addresses(config)
    raise SystemExit(status)


def _say_other_addresses(config: Any) -> None:
    """Complain when a deployment runs in the current directory and the settings have none of its
    ZooKeepers, or no registry: a process that is started by hand has the defaults."""
    from kafka2011.cli.connections import found_registry, found_zookeepers
    from kafka2011.cli.output import complain
    from kafka2011.runtime.config import settings_of

    names = [name for name in settings_of(type(config)) if name.endswith("zk.connect")]
    given = {str(getattr(config, name.replace(".", "_"))) for name in names}
    found = found_zookeepers()
    if names and found and not given & set(found.values()):
        known = ", ".join(f"{datacenter} {address}" for datacenter, address in found.items())
        complain(f"{' and '.join(names)} had another address than the deployment here ({known})")
    registry = found_registry()
    if registry and getattr(config, "schema_registry_url", registry) == "":
        complain(f"the deployment here has schema.registry.url={registry}")


def serve_broker(config: Any, stop: threading.Event) -> int:
    """Run a broker. Returns the exit status, 1 with one line when it cannot start."""
    from kafka2011.broker.process import CannotStart, run_broker

    try:
        return run_broker(config, stop)
    except CannotStart as error:
        from kafka2011.cli.output import fail

        fail(str(error), command="broker")


def serve_zookeeper(config: Any, stop: threading.Event) -> int:
    """Run a ZooKeeper server, with the Java of JAVA_HOME if that is set."""
    from kafka2011.services.zookeeper.app import run

    return run(config, stop, java_home=os.environ.get("JAVA_HOME", ""))


def serve_mirror(config: Any, stop: threading.Event) -> int:
    """Run one member of a mirror with one source."""
    from kafka2011.services.mirror_maker.app import run

    return run([config], stop)


def _named(place: str) -> Any:
    """The object that `module:name` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
