"""`kafka2011 verify-rebalance`: is a group's rebalance complete (0.7's tool of that name).

The original's option names are taken, too: --zookeeper.connect and --zk.connect.
"""

from typing import Annotated

import typer

from kafka2011.cli.connections import connected, require_group
from kafka2011.cli.options import ZOOKEEPER_HELP, AsJson
from kafka2011.cli.output import complain, fail, print_json
from kafka2011.consumer.tools import rebalance_check
from kafka2011.runtime import logs

app = typer.Typer(add_completion=False)


@app.command()
def run(
    *,
    zookeeper: Annotated[
        str,
        typer.Option(
            "--zookeeper",
            "-z",
            "--zk.connect",
            "--zookeeper.connect",
            help=f"{ZOOKEEPER_HELP} (default: live)",
        ),
    ] = "",
    group: Annotated[str, typer.Option("--group", help="consumer group")],
    as_json: AsJson = False,
) -> None:
    """Check that every live partition of the subscribed topics is owned by the right member.

    For example: kafka2011 verify-rebalance --zookeeper localhost:2181 --group g

    Status 0 when it is so; 1 when it is not (one line a partition, on standard error), also for a
    moment while members come and go, and when there is no such group or it has no member.
    """
    logs.configure("verify-rebalance", level="WARNING")
    with connected(zookeeper) as registry:
        require_group(registry, group)
        picture = rebalance_check.read_registry(registry, group)
    found = rebalance_check.problems(picture)
    is_good = bool(picture.members) and not found and not picture.unreadable
    count = sum(len(partitions) for partitions in picture.partitions.values())
    if as_json:
        print_json(
            {
                "group": group,
                "ok": is_good,
                "members": len(picture.members),
                "unreadable_members": list(picture.unreadable),
                "partitions": count,
                "problems": [
                    {
                        "topic": one.name.topic,
                        "broker": one.name.broker_id,
                        "partition": one.name.partition,
                        "owner": one.owner or None,
                        "expected": one.expected or None,
                        "problem": one.text,
                    }
                    for one in found
                ],
            }
        )
        raise SystemExit(0 if is_good else 1)
    for member in picture.unreadable:
        complain(f"the registration of {member} cannot be read")
    for one in found:
        complain(f"{one.name}: {one.text}")
    if not picture.members:
        fail(f"group {group!r} has no member: there is no rebalance to verify")
    if not is_good:
        fail(f"rebalance of {group!r}: failure, {len(found)} of {count} partitions are not right")
    print(f"rebalance of {group!r}: success, {count} partitions, {len(picture.members)} members")
