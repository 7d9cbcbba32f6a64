"""`kafka2011 topics`: the topics, their partitions, brokers and sizes."""

from typing import Annotated

import typer

from kafka2011.cli.connections import connected, dialler
from kafka2011.cli.options import AddressMap, AsJson, ZooKeeper
from kafka2011.cli.output import complain, print_json, print_lines, print_table
from kafka2011.consumer.tools.cluster_state import PartitionEnds, partition_ends
from kafka2011.coordination import cluster
from kafka2011.runtime import logs

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List and describe topics. For example: "
    "kafka2011 topics describe --zookeeper localhost:2181 clicks",
)


@app.command("list")
def list_topics(zookeeper: ZooKeeper = "", as_json: AsJson = False) -> None:
    """Print the names of all topics, one a line."""
    logs.configure("topics", level="WARNING")
    with connected(zookeeper) as registry:
        names = cluster.topics(registry)
    if as_json:
        print_json(names)
    else:
        print_lines(names)


@app.command()
def describe(
    topics: Annotated[list[str] | None, typer.Argument(help="only these topics")] = None,
    *,
    zookeeper: ZooKeeper = "",
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
        print_json([_json(ends) for ends in found])
    else:
        _print_table(found, wanted)
    for topic in unknown:
        complain(f"no topic {topic!r}")
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
    rows: list[tuple[object, ...]] = []
    for ends in found:
        address = f"{ends.address.host}:{ends.address.port}" if ends.address else "?"
        place = f"{ends.name.broker_id}-{ends.name.partition}"
        size = ends.error or ends.size_bytes
        rows.append((ends.name.topic, place, address, ends.start, ends.end, size))
    for topic in topics:
        if not any(ends.name.topic == topic for ends in found):
            rows.append((topic, "on no live broker", "", "", "", ""))
    print_table(
        ("topic", "partition", "broker", "start", "end", "size"),
        rows,
        numbers=("start", "end", "size"),
    )
