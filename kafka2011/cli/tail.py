"""`kafka2011 tail`: follow log files and send each line as a message, until SIGTERM."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.cli.connections import (
    DATACENTERS,
    event_settings_here,
    found_zookeeper,
    is_set,
    zookeeper_address,
)
from kafka2011.cli.options import Settings, ZooKeeper
from kafka2011.cli.output import complain, fail, number_of
from kafka2011.producer.tail.config import TailConfig
from kafka2011.producer.tail.messages import BadState
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event

app = typer.Typer(add_completion=False)


@app.command()
def run(  # noqa: PLR0917 (options)
    files: Annotated[
        list[str], typer.Argument(help="files, or quoted patterns, which also match new files")
    ],
    topic: Annotated[str | None, typer.Option("--topic", help="topic to write")] = None,
    zookeeper: ZooKeeper = "",
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", help="id:host:port,... instead of ZooKeeper")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", help="file that keeps the positions (default: ~/.kafka2011/tail-TOPIC)"
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="start or end: where the first run begins in the files there"),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "--once", help="stop at the end of all files")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the counts at the end as JSON")
    ] = False,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="properties file with settings")
    ] = None,
    set_: Settings = None,
) -> None:
    """Send the lines of FILES, each at least once, following rotation and truncation."""
    zk_connect = _zookeeper(zookeeper, broker_list, config_file, set_ or [])
    is_here = zk_connect is not None and zookeeper in ("", *DATACENTERS)
    given = {
        "tail.topic": topic,
        "zk.connect": zk_connect,
        "broker.list": broker_list,
        "tail.state": state,
        "tail.from": from_,
    }
    words = [f"{name}={value}" for name, value in given.items() if value is not None]
    if is_here:
        words += event_settings_here(set_ or [], config_file)
    if not is_set("tail.topic", [*(set_ or []), *words], config_file):
        fail("give --topic TOPIC", 2)
    config = load_or_exit(
        TailConfig,
        config_file,
        [*(set_ or []), *words],
        log_level="WARNING" if until_end else "INFO",
    )
    stop = stop_event()
    from kafka2011.producer.tail.app import TailRun

    try:
        tail = TailRun(config, files, stop)
    except BadState as error:
        fail(str(error), 2)
    except OSError as error:
        place = config.state_file or error.filename
        fail(f"tail.state {place} cannot be used: {error.strerror or error}", 2)
    status = tail.run(until_end=until_end)
    if as_json:
        counts = dataclasses.asdict(tail.tailer.stats)
        print(json.dumps({**counts, "unsent_lines": tail.unsent_lines}))
    stats = tail.tailer.stats
    behind = ""
    if stats.resumed:
        files_ = number_of(stats.resumed, "file")
        behind = f", behind what was sent of {files_} before, by the positions in {tail.state_path}"
    complain(f"{number_of(stats.lines, 'line')} sent to {config.topic}{behind}")
    if tail.unsent_lines:
        lines = number_of(tail.unsent_lines, "line")
        complain(f"read and maybe not on the brokers: {lines}; the next run sends this again")
    raise SystemExit(status)


def _zookeeper(
    given: str, broker_list: str | None, config_file: Path | None, words: list[str]
) -> str | None:
    """zk.connect from the option or, if nothing names the brokers, of the deployment here."""
    if given:
        return zookeeper_address(given)
    is_named = broker_list is not None or any(
        is_set(name, words, config_file) for name in ("zk.connect", "broker.list", "host")
    )
    return None if is_named else found_zookeeper() or None
