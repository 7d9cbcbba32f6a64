"""`kafka2011 topics`: which topics there are, where their partitions stand, how large they are."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cli.registry import ADDRESS_MAP_HELP, ZOOKEEPER_HELP, connected, dialler
from consumer.cluster_state import PartitionEnds, partition_ends
from coordination import cluster
from runtime import logs

app = typer.Typer(add_completion=False, no_args_is_help=True)

ZooKeeper = Annotated[str, typer.Option("--zookeeper", help=ZOOKEEPER_HELP)]
AddressMap = Annotated[str, typer.Option("--address-map", help=ADDRESS_MAP_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document instead of a table")]


@app.command("list")
def list_topics(zookeeper: ZooKeeper, as_json: AsJson = False) -> None:
    """Print the names of all topics, one a line."""
    logs.configure("topics", level="WARNING")
    with connected(zookeeper) as registry:
        names = cluster.topics(registry)
    if as_json:
        print(json.dumps(names))
    else:
        print("".join(f"{name}\n" for name in names), end="")


@app.command()
def describe(
    zookeeper: ZooKeeper,
    topics: Annotated[list[str] | None, typer.Argument(help="only these topics")] = None,
    address_map: AddressMap = "",
    as_json: AsJson = False,
) -> None:
    """Show each partition's broker, start, end (high watermark) and size in bytes.

    Status 1 when a topic is unknown or a broker did not answer.
    """
    logs.configure("topics", level="WARNING")
    dialled = dialler(address_map)
    with connected(zookeeper) as registry:
        known = cluster.topics(registry)
        unknown = [topic for topic in topics or () if topic not in known]
        wanted = [topic for topic in known if topic in topics] if topics else known
        found = partition_ends(registry, wanted, dialled)
    if as_json:
        print(json.dumps([_json(ends) for ends in found], indent=1))
    else:
        _print_table(found, wanted)
    for topic in unknown:
        print(f"kafka2011: no topic {topic!r}", file=sys.stderr)
    if unknown or any(ends.error for ends in found):
        raise SystemExit(1)


def _json(ends: PartitionEnds) -> dict[str, object]:
    return {
        "topic": ends.name.topic,
        "broker": ends.name.broker_id,
        "partition": ends.name.partition,
        "address": f"{ends.address.host}:{ends.address.port}" if ends.address else None,
        "start": ends.start,
        "end": ends.end,
        "size": ends.size_bytes,
        "error": ends.error or None,
    }


def _print_table(found: list[PartitionEnds], topics: list[str]) -> None:
    table = Table()
    for title in ("topic", "partition", "broker"):
        table.add_column(title)
    for title in ("start", "end", "size"):
        table.add_column(title, justify="right")
    for ends in found:
        address = f"{ends.address.host}:{ends.address.port}" if ends.address else "?"
        numbers = [_number(value) for value in (ends.start, ends.end, ends.size_bytes)]
        if ends.error:
            numbers[2] = ends.error
        name = ends.name
        table.add_row(name.topic, f"{name.broker_id}-{name.partition}", address, *numbers)
    for topic in topics:
        if not any(ends.name.topic == topic for ends in found):
            table.add_row(topic, "no broker has it at present", "", "", "", "")
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
