"""`kafka2011 groups`: the consumer groups, their members, who owns what, offsets and lag."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cli.registry import ADDRESS_MAP_HELP, ZOOKEEPER_HELP, connected, dialler
from consumer.cluster_state import GroupState, group_state, groups
from runtime import logs

app = typer.Typer(add_completion=False, no_args_is_help=True)

ZooKeeper = Annotated[str, typer.Option("--zookeeper", help=ZOOKEEPER_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document instead of a table")]


@app.command("list")
def list_groups(zookeeper: ZooKeeper, as_json: AsJson = False) -> None:
    """Print the names of all groups, one a line."""
    logs.configure("groups", level="WARNING")
    with connected(zookeeper) as registry:
        names = groups(registry)
    if as_json:
        print(json.dumps(names))
    else:
        print("".join(f"{name}\n" for name in names), end="")


@app.command()
def describe(
    zookeeper: ZooKeeper,
    group: Annotated[str, typer.Argument(help="the group")],
    address_map: Annotated[str, typer.Option("--address-map", help=ADDRESS_MAP_HELP)] = "",
    as_json: AsJson = False,
) -> None:
    """Show a group's members and, per partition, owner, stored offset, end and lag in bytes.

    Status 1 when there is no such group.
    """
    logs.configure("groups", level="WARNING")
    dialled = dialler(address_map)
    with connected(zookeeper) as registry:
        if group not in groups(registry):
            print(f"kafka2011: no group {group!r}", file=sys.stderr)
            raise SystemExit(1)
        state = group_state(registry, group, dialled)
    if as_json:
        print(json.dumps(_json(state), indent=1))
        return
    console = Console(soft_wrap=not sys.stdout.isatty())
    members = Table("member", "subscription")
    for consumer_id, subscription in state.members.items():
        members.add_row(consumer_id, subscription)
    console.print(members)
    partitions = Table("topic", "partition", "owner")
    for title in ("offset", "end", "lag"):
        partitions.add_column(title, justify="right")
    for found in state.partitions:
        partitions.add_row(
            found.name.topic,
            f"{found.name.broker_id}-{found.name.partition}",
            found.owner or "nobody",
            *(_number(value) for value in (found.offset, found.end, found.lag_bytes)),
        )
    console.print(partitions)


def _json(state: GroupState) -> dict[str, object]:
    return {
        "group": state.group,
        "members": state.members,
        "partitions": [
            {
                "topic": found.name.topic,
                "broker": found.name.broker_id,
                "partition": found.name.partition,
                "owner": found.owner or None,
                "offset": found.offset,
                "end": found.end,
                "lag": found.lag_bytes,
            }
            for found in state.partitions
        ],
    }


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
