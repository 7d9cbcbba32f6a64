"""`kafka2011 status`: the deployment's processes, their health, and the groups' lag.

Reads the process registry of each ZooKeeper, so it shows the same for containers and for local
processes; then asks each process that is registered whether it serves: one that hangs is registered
until its session ends. Exit status 1 when a process that should serve does not.
"""

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.cli.connections import (
    DATACENTERS,
    dialler,
    found_directory,
    found_zookeepers,
    reached,
    zookeeper_address,
)
from kafka2011.cli.options import ZOOKEEPER_HELP, AddressMap, AsJson
from kafka2011.cli.output import complain, print_json, print_table
from kafka2011.consumer.tools.cluster_state import GroupState, group_state, groups
from kafka2011.coordination import processes
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.runtime import logs
from kafka2011.runtime.clock import utc_text
from kafka2011.runtime.config import address, suggestion
from kafka2011.runtime.safe_text import one_line
from kafka2011.services.audit.groups import Json, validated_groups, verdict_text
from kafka2011.services.embedded.control import to_paste
from kafka2011.services.embedded.processes import http_answer, http_json, states_now

app = typer.Typer(add_completion=False)

SERVES, NOT_SERVING, NO_ANSWER = "serves", "not serving", "no answer"
REGISTERED, DOWN, STOPPED, DONE = "registered", "down", "stopped", "done"
PAUSED, NOT_REGISTERED = "paused", "not registered"
ASKED_AT_ONCE = 16
DIAL_TIMEOUT_S = 2.0
AT_FAULT = frozenset({NOT_SERVING, NO_ANSWER, DOWN, STOPPED, PAUSED, NOT_REGISTERED})

Address = tuple[str, int]
Key = tuple[str, str]  # datacenter and name of a process


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
    """Show every process that ever registered and whether it serves, and the lag of every consumer
    group, in bytes; of one that counts also whether it has read what was produced, as its members
    say.

    A registered process is expected until it is forgotten: --forget takes out one that was removed
    for good (a profile of the containers that is not used any more). One that is alive cannot be
    forgotten; then the status is 1.
    """
    logs.configure("status", level="WARNING")
    dialled = dialler(address_map)
    expected: list[ProcessRecord] = []
    alive: dict[Key, ProcessRecord] = {}
    found: list[tuple[str, GroupState]] = []
    validated: dict[tuple[str, str], Json] = {}
    asked = [zookeeper_address(each) for each in zookeepers or DATACENTERS]
    unanswered: list[str] = []
    forgotten: set[str] = set()
    for zookeeper in asked:
        try:
            with reached(zookeeper) as registry:
                if forget:
                    known = {record.name for record in processes.expected(registry)}
                    forgotten.update(processes.forget_others(registry, known.difference(forget)))
                records, living = processes.look(registry)
                expected += records
                alive |= {(p.datacenter, p.name): p for p in living}
                validated |= {(zookeeper, row["group"]): row for row in validated_groups(living)}
                found += [
                    (zookeeper, group_state(registry, name, dialled)) for name in groups(registry)
                ]
        except CoordinationError as error:
            complain(str(error))
            unanswered.append(zookeeper)
    if len(unanswered) == len(asked):
        raise SystemExit(1)
    answers = answers_of(alive.values(), dialled)
    states = states_without_answer(expected) | {key: state for key, (state, _) in answers.items()}
    here = deployment_here(asked)
    states |= seen_here(here, states)
    if as_json:
        print_json(
            as_document(expected, alive, states, found, validated) | {"unanswered": unanswered}
        )
    else:
        print_processes(expected, alive, states)
        reasons = {key: reason for key, (_, reason) in answers.items()}
        for line in (*cures(here, states, reasons), *link_faults(alive.values(), states, dialled)):
            print(one_line(line))
        print()
        print_groups(found, validated)
        lags = [lag_bytes(state) for _, state in found]
        if any(lags):
            print("lag: not committed yet; a group that keeps up commits every few seconds")
        if None in lags:
            print(
                "? is not known: a broker does not answer, no offset is stored yet, or one is past "
                "the end of its log"
            )
    if unanswered and not as_json:
        print(f"not shown, since its ZooKeeper does not answer: {', '.join(unanswered)}")
    stays = [name for name in dict.fromkeys(forget or ()) if name not in forgotten]
    for name in stays:
        complain(_why_it_stays(name, {process.name for process in expected}))
    raise SystemExit(1 if unanswered or stays or AT_FAULT.intersection(states.values()) else 0)


def _why_it_stays(name: str, known: set[str]) -> str:
    """Why --forget of a process did nothing; `known` are the expected ones."""
    if name in known:
        return f"{name} is alive, so it was not forgotten"
    return f"no process {name!r} is expected{suggestion(name, known) or ': nothing to forget'}"


def states_without_answer(expected: Iterable[ProcessRecord]) -> dict[Key, str]:
    """The state of each process, if it is not alive."""

    def state_of(record: ProcessRecord) -> str:
        if not record.said_goodbye:
            return DOWN
        return DONE if record.has_finished else STOPPED

    return {(record.datacenter, record.name): state_of(record) for record in expected}


def deployment_here(asked: Iterable[str]) -> Path | None:
    """The directory of the deployment that runs here, whose processes can be inspected; None if
    ZooKeepers of another one were asked, too: its processes have the same names."""
    return found_directory() if set(asked) <= set(found_zookeepers().values()) else None


def seen_here(here: Path | None, states: Mapping[Key, str]) -> dict[Key, str]:
    """Better states for processes of the deployment `here` that do not serve: paused by SIGSTOP,
    done as intended, or running but not registered. Processes elsewhere cannot be inspected."""
    found: dict[Key, str] = {}
    processes_here = {one["name"]: one for one in states_now(here)} if here else {}
    for key, state in states.items():
        one = processes_here.get(key[1])
        if one is None or state not in AT_FAULT:
            continue
        if one["paused"]:
            found[key] = PAUSED
        elif state in (DOWN, STOPPED) and one["running"]:
            found[key] = NOT_REGISTERED
        elif state == STOPPED and one["done"]:
            found[key] = DONE
    return found


def cures(
    here: Path | None, states: Mapping[Key, str], reasons: Mapping[Key, str]
) -> Iterator[str]:
    """A line for each process that is not as it should be: the command that heals one of the
    deployment `here`, or what its /healthz says (`reasons`)."""
    names = {one["name"] for one in states_now(here)} if here else set()
    for key, state in states.items():
        name = key[1]
        if here is not None and state == PAUSED:
            command = to_paste(here, "kill", name, "CONT")
            yield f"{name} is paused (SIGSTOP); let it go on: {command}"
        elif here is not None and state in (DOWN, STOPPED) and name in names:
            yield f"{name} has ended; start it again: {to_paste(here, 'start', name)}"
        elif state == NOT_SERVING:
            why = reasons.get(key) or "it starts, or a part of it failed"
            more = f" ({here / 'logs' / name}.log)" if here and name in names else ""
            yield f"{name} runs and does not serve: {why}{more}"
        elif state == NOT_REGISTERED:
            yield (
                f"{name} runs and is not in its ZooKeeper: it starts or ends, or its connection "
                "there is cut"
            )


def link_faults(
    alive: Iterable[ProcessRecord],
    states: Mapping[Key, str],
    dialled: Callable[[Address], Address],
) -> Iterator[str]:
    """A line for each proxy that serves and has faults set: its routes by fault, as
    `cut at zookeeper, broker-1`."""
    for record in alive:
        if record.kind != "proxy" or states[record.datacenter, record.name] != SERVES:
            continue
        host, port = dialled(address(record.metrics_address))
        harmed = harmed_routes(http_json(f"http://{host}:{port}/routes") or {})
        if harmed:
            said = [f"{fault} at {', '.join(routes)}" for fault, routes in harmed.items()]
            yield f"{record.name} serves and has faults set on its routes: {'; '.join(said)}"


def harmed_routes(document: Mapping[str, object]) -> dict[str, list[str]]:
    """Fault -> routes that have it, of the answer of a proxy's /routes."""
    harmed: dict[str, list[str]] = {}
    routes = document.get("routes")
    for name, route in routes.items() if isinstance(routes, dict) else ():
        faults = route.get("faults") if isinstance(route, dict) else None
        for fault, value in faults.items() if isinstance(faults, dict) else ():
            if value:  # a fault that is not set is 0, false, null or empty
                said = fault if value is True else f"{fault} {json.dumps(value)}"
                harmed.setdefault(said, []).append(name)
    return harmed


def answers_of(
    alive: Iterable[ProcessRecord], dialled: Callable[[Address], Address]
) -> dict[Key, tuple[str, str]]:
    """Each process's state and, where it gives one, the reason why it does not serve, by its
    /healthz, all asked at once; `down` where nothing listens there, `registered` where it has no
    such page, or its name is not known here."""

    def answer_of(record: ProcessRecord) -> tuple[str, str]:
        try:
            host, port = dialled(address(record.metrics_address))
            socket.getaddrinfo(host, port)
        except (ValueError, OSError):
            return REGISTERED, ""
        url = f"http://{host}:{port}/healthz"
        status, text = http_answer(url)
        if not status:
            status, text = http_answer(url)  # once more: the machine may be busy
        if status == 200:
            return SERVES, ""
        if status:
            return NOT_SERVING, text.strip().removeprefix(NOT_SERVING).removeprefix(": ")
        # An ended process stays in ZooKeeper until its session ends; one that hangs still listens.
        return DOWN if refuses(host, port) else NO_ANSWER, ""

    records = list(alive)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(answer_of, records)
        return {(r.datacenter, r.name): each for r, each in zip(records, answers, strict=True)}


def refuses(host: str, port: int) -> bool:
    """Whether nothing listens at the address."""
    try:
        with socket.create_connection((host, port), DIAL_TIMEOUT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def as_document(
    expected: list[ProcessRecord],
    alive: Mapping[Key, ProcessRecord],
    states: Mapping[Key, str],
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
                "state": states[process.datacenter, process.name],
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
    expected: list[ProcessRecord],
    alive: Mapping[Key, ProcessRecord],
    states: Mapping[Key, str],
) -> None:
    rows, red = [], []
    for number, process in enumerate(expected):
        key = process.datacenter, process.name
        record, state = alive.get(key), states[key]
        if state in AT_FAULT:
            red.append(number)
        places = (record.address, record.metrics_address) if record else ("", "")
        rows.append((process.datacenter, process.name, process.kind, state, *places))
    titles = ("datacenter", "process", "kind", "state", "address", "metrics")
    print_table(titles, rows, red_rows=red)


def validated_text(row: Json) -> str:
    """What a group that counts says of itself, since when it counts if it left out what was before,
    and why it may not have read all reports."""
    unread, since_ms = row.get("unread"), row.get("counted_from_ms")
    since = f", counted from {utc_text(since_ms)} on" if since_ms else ""
    return verdict_text(row) + since + (f" (at its last look: {unread})" if unread else "")


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
            validated_text(row) if (row := validated.get((zookeeper, state.group))) else "",
        )
        for zookeeper, state in found
    ]
    print_table(("group", "at", *numbers, "validated"), rows, numbers=numbers)
