"""`kafka2011 replicas`: replica sets, their leaders and in-sync members; and making a set. What
changes one that exists is in `replica_changes`.

kafka2011 replicas create 1 --member a --member b --member c --zookeeper localhost:2181
"""

from typing import Annotated

import typer

from kafka2011.broker.replica.report import SetReport, ask_all, ask_shown, report
from kafka2011.broker.replica.set_node import NoSuchSet, SetNode
from kafka2011.broker.replication.set_state import SetState
from kafka2011.cli import replica_changes, replica_moves, replica_salvage, replica_verify
from kafka2011.cli.connections import connected
from kafka2011.cli.options import AsJson, ZooKeeper
from kafka2011.cli.output import complain, fail, print_json, print_table
from kafka2011.cli.replica_changes import BrokerId
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import cluster_id, live_brokers
from kafka2011.coordination.errors import BadZnode, NodeExists
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import set_ids
from kafka2011.runtime import logs
from kafka2011.runtime.safe_text import one_line

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show, make, change and verify replica sets. For example: "
    "kafka2011 replicas show --zookeeper localhost:2181",
)

app.command()(replica_changes.members)
app.command()(replica_changes.handover)
app.command()(replica_changes.min_insync)
app.command()(replica_changes.elect)
app.command("plan")(replica_moves.plan_moves)
app.command()(replica_moves.move)
app.command("verify")(replica_verify.verify_set)
app.command()(replica_salvage.salvage)


@app.command()
def show(
    broker_id: Annotated[
        int | None, typer.Argument(metavar="ID", help="broker id of a set (default: all)")
    ] = None,
    *,
    zookeeper: ZooKeeper = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="status 1 unless all members are in sync and answer, clients let in"
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show each set's members: role, epoch, flushed end, how many bytes behind the leader.

    Status 1 when there is no such set, or one cannot be read.
    """
    logs.configure("replicas", level="WARNING")
    found, wrong = [], []
    with connected(zookeeper) as registry:
        for one in _sets(registry, broker_id):
            try:
                found.append(_report(registry, one))
            except (BadZnode, NoSuchSet) as error:
                wrong.append(str(error))
    if as_json:
        print_json([_json(one) for one in found])
    elif found or not wrong:
        _print(found)
    if check:
        wrong += [
            f"broker {one.broker_id}: {'; '.join(one.troubles)}" for one in found if one.troubles
        ]
    for line in wrong:
        complain(line)
    if wrong:
        raise SystemExit(1)


def _sets(registry: Registry, broker_id: int | None) -> list[int]:
    found = set_ids(registry)
    if broker_id is None:
        return found
    if broker_id not in found:
        fail(f"broker {broker_id} is no replica set")
    return [broker_id]


def _report(registry: Registry, broker_id: int) -> SetReport:
    reading = SetNode(registry, broker_id).read()
    shown = ask_shown(live_brokers(registry).get(broker_id))
    return report(broker_id, reading, ask_all(reading, cluster_id(registry), broker_id), shown)


def _print(found: list[SetReport]) -> None:
    if not found:
        print("no replica set")
    for one in found:
        leader = one.leader or "none"
        line = (
            f"broker {one.broker_id}: epoch {one.epoch}, leader {leader}, "
            f"min_insync {one.min_insync}, {one.shown.trouble or one.shown.address}"
        )
        print(one_line(line))
        print_table(
            ("member", "role", "epoch", "end", "behind", "address"),
            (
                (
                    member.name,
                    member.role,
                    _or_dash(member.epoch),
                    _or_dash(member.end),
                    _or_dash(member.behind_bytes),
                    member.address or "-",
                )
                for member in one.members
            ),
            numbers=("epoch", "end", "behind"),
        )


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _json(one: SetReport) -> dict[str, object]:
    return {
        "broker": one.broker_id,
        "epoch": one.epoch,
        "leader": one.leader,
        "min_insync": one.min_insync,
        "address": one.shown.address or None,
        "whole": not one.troubles,
        "members": [
            {
                "name": member.name,
                "directory": member.directory,
                "role": member.role,
                "address": member.address or None,
                "epoch": member.epoch,
                "end": member.end,
                "behind_bytes": member.behind_bytes,
            }
            for member in one.members
        ],
    }


@app.command()
def create(
    broker_id: BrokerId,
    *,
    zookeeper: ZooKeeper = "",
    member: Annotated[
        list[str],
        typer.Option("--member", help="name of a replica, in order of preference; repeatable"),
    ],
    first: Annotated[
        str,
        typer.Option(
            "--first", help="the member whose directory the set begins with (default: the first)"
        ),
    ] = "",
    min_insync: Annotated[
        int,
        typer.Option(
            "--min-insync",
            min=0,
            help="how many replicas must have a message before it is confirmed "
            "(default: 1 of two, 2 of three, more than half)",
        ),
    ] = 0,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="leave a set that is there already as it is")
    ] = False,
) -> None:
    """Make a broker id a replica set. Its members are brokers with that id and replica.name.

    A broker that has been alone is stopped first, and named by --first: the others copy it.
    """
    logs.configure("replicas", level="WARNING")
    if len(set(member)) < len(member) or not all(member):
        fail("each --member must be another name", 2)
    first = first or member[0]
    if first not in member:
        fail(f"--first {first} is no --member", 2)
    least = min_insync or (len(member) // 2 + 1 if len(member) > 2 else 1)
    if least > len(member):
        fail(f"--min-insync {least} of {len(member)} members could never be", 2)
    state = SetState(
        epoch=0,
        leader=None,
        isr=frozenset(),
        eligible=frozenset(),
        min_insync=least,
        members=tuple((name, "") for name in member),
        first=first,
    )
    with connected(zookeeper) as registry:
        if if_missing and registry.exists(paths.replica_state_path(broker_id)):
            print(f"broker {broker_id} is a replica set already")
            return
        if registry.exists(paths.broker_id_path(broker_id)):
            fail(f"broker {broker_id} is running: stop it first")
        cluster_id(registry)
        try:
            SetNode(registry, broker_id).create(state)
        except NodeExists:
            if if_missing:  # another member's container was faster
                print(f"broker {broker_id} is a replica set already")
                return
            fail(f"broker {broker_id} is a replica set already")
    print(f"broker {broker_id}: {', '.join(member)}; start {first} first")
