"""`kafka2011 status`: the deployment's processes, their health, and the groups' lag.

Reads the process registry of each ZooKeeper, so it shows the same for
containers and of local processes. Exit status 1 when a process that should live does not.
"""

from collections.abc import Mapping
from typing import Annotated

import typer

from kafka2011.cli.connections import DATACENTERS, connected, dialler, zookeeper_address
from kafka2011.cli.options import ZOOKEEPER_HELP, AddressMap, AsJson
from kafka2011.cli.output import print_json, print_table
from kafka2011.consumer.tools.cluster_state import GroupState, group_state, groups
from kafka2011.coordination import processes
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.runtime import logs
from kafka2011.services.audit.groups import Json, validated_groups, verdict_text

app = typer.Typer(add_completion=False)

# A frontend that has sent everything ends; that is no problem.
FINITE_KINDS = frozenset({"frontend"})


@app.command()
def status(
    zookeepers: Annotated[
        list[str] | None,
        typer.Option("--zookeeper", "-z", help=f"{ZOOKEEPER_HELP} (default: both); repeatable"),
    ] = None,
    address_map: AddressMap = "",
    as_json: AsJson = False,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            "--forget", help="first remove this process from the expected ones; repeatable"
        ),
    ] = None,
) -> None:
    """Show every process that ever registered, and the lag of every consumer group, in bytes;
    of one that counts also whether it has read what was produced, as its members say.

    Who registered is expected until it is forgotten: --forget takes a process out that was removed
    for good (a profile of the containers that is not used any more). One that lives stays.
    """
    logs.configure("status", level="WARNING")
    dialled = dialler(address_map)
    expected: list[ProcessRecord] = []
    alive: dict[tuple[str, str], ProcessRecord] = {}
    found: list[tuple[str, GroupState]] = []
    validated: dict[tuple[str, str], Json] = {}
    for zookeeper in map(zookeeper_address, zookeepers or DATACENTERS):
        with connected(zookeeper) as registry:
            if forget:
                known = {record.name for record in processes.expected(registry)}
                processes.forget_others(registry, known.difference(forget))
            expected += processes.expected(registry)
            living = processes.alive(registry)
            alive |= {(p.datacenter, p.name): p for p in living}
            validated |= {(zookeeper, row["group"]): row for row in validated_groups(living)}
            found += [
                (zookeeper, group_state(registry, name, dialled)) for name in groups(registry)
            ]
    down = [
        process.name
        for process in expected
        if (process.datacenter, process.name) not in alive and process.kind not in FINITE_KINDS
    ]
    if as_json:
        print_json(as_document(expected, alive, found, validated))
    else:
        print_processes(expected, alive)
        print()
        print_groups(found, validated)
    raise SystemExit(1 if down else 0)


def as_document(
    expected: list[ProcessRecord],
    alive: dict[tuple[str, str], ProcessRecord],
    found: list[tuple[str, GroupState]],
    validated: Mapping[tuple[str, str], Json],
) -> dict[str, object]:
    return {
        "processes": [
            {
                "datacenter": process.datacenter,
                "name": process.name,
                "kind": process.kind,
                "alive": (record := alive.get((process.datacenter, process.name))) is not None,
                "address": record.address if record else None,
                "metrics": record.metrics_address if record else None,
            }
            for process in expected
        ],
        "groups": [
            {
                "zookeeper": zookeeper,
                "group": state.group,
                "members": len(state.members),
                "partitions": len(state.partitions),
                "unowned": unowned(state),
                "lag_bytes": lag_bytes(state),
                "validated": validated.get((zookeeper, state.group)),
            }
            for zookeeper, state in found
        ],
    }


def lag_bytes(state: GroupState) -> int | None:
    """The group's lag over all partitions; None when it is unknown for one of them."""
    lags = [partition.lag_bytes for partition in state.partitions]
    return None if None in lags else sum(lag for lag in lags if lag is not None)


def unowned(state: GroupState) -> int:
    return sum(1 for partition in state.partitions if not partition.owner)


def print_processes(
    expected: list[ProcessRecord], alive: dict[tuple[str, str], ProcessRecord]
) -> None:
    rows, down = [], []
    for number, process in enumerate(expected):
        record = alive.get((process.datacenter, process.name))
        gone = "gone" if process.kind in FINITE_KINDS else "down"
        if record is None and gone == "down":
            down.append(number)
        state = "serves" if record else gone
        places = (record.address, record.metrics_address) if record else ("", "")
        rows.append((process.datacenter, process.name, process.kind, state, *places))
    titles = ("datacenter", "process", "kind", "state", "address", "metrics")
    print_table(titles, rows, red_rows=down)


def print_groups(
    found: list[tuple[str, GroupState]], validated: Mapping[tuple[str, str], Json]
) -> None:
    numbers = ("members", "partitions", "without owner", "lag, bytes")
    rows = [
        (
            state.group,
            zookeeper,
            len(state.members),
            len(state.partitions),
            unowned(state),
            lag_bytes(state),
            verdict_text(row) if (row := validated.get((zookeeper, state.group))) else "",
        )
        for zookeeper, state in found
    ]
    print_table(("group", "at", *numbers, "validated"), rows, numbers=numbers)
