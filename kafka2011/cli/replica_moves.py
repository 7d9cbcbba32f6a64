"""`kafka2011 replicas plan` and `move`: members of sets over machines and racks.

What to move is decided in `broker.replication.placement`, the steps of a move in
`broker.replication.moves`.
"""

import time
from typing import Annotated

import typer

from kafka2011.broker.replica.set_node import SetNode
from kafka2011.broker.replication import moves, operator_changes
from kafka2011.broker.replication.moves import Phase
from kafka2011.broker.replication.operator_changes import Refusal
from kafka2011.broker.replication.placement import PlacedMember, Plan, plan
from kafka2011.broker.replication.set_state import SetState
from kafka2011.cli.connections import connected
from kafka2011.cli.options import AsJson, ZooKeeper
from kafka2011.cli.output import complain, fail, print_json
from kafka2011.cli.replica_changes import LOOK_S, BrokerId
from kafka2011.coordination.errors import VersionConflict
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import set_ids
from kafka2011.runtime import logs

# --- plan -----------------------------------------------------------------------------------------


def plan_moves(
    *,
    zookeeper: ZooKeeper = "",
    machine: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            metavar="NAME=RACK",
            help="a machine that can take members, beside those with a live one; repeatable",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="a machine to be emptied; repeatable"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which members to move so that no set has two on a machine or, where there are racks
    enough, in a rack, and machines have equal numbers; and which should be first in preference.

    For example: kafka2011 replicas plan --machine db4=r2 --without db1

    Machines are known by the brokers' hostname, racks by replica.rack. Nothing is changed.
    """
    given = {}
    for text in machine or ():
        name, found, rack = text.partition("=")
        if not (name and found and rack):
            fail(f"--machine {text}: NAME=RACK", 2)
        given[name] = rack
    logs.configure("replicas", level="WARNING")
    with connected(zookeeper) as registry:
        sets, machines = _places(registry)
        machines |= given
        known = {one.place.machine for found in sets.values() for one in found if one.place}
        for name in without or ():
            if name not in known | machines.keys():
                fail(f"--without {name}: no member is there, but on {', '.join(sorted(known))}", 2)
        made = plan(sets, machines, without or ())
    if as_json:
        print_json(_json(made))
    else:
        _print(made)


def _places(registry: Registry) -> tuple[dict[int, list[PlacedMember]], dict[str, str]]:
    """Where the members of all sets are, and the machines with a live one."""
    sets, machines = {}, {}
    for broker_id in set_ids(registry):
        node = SetNode(registry, broker_id)
        reading = node.read()
        members = sets[broker_id] = [
            PlacedMember(name, node.place_of(name)) for name, _ in reading.state.members
        ]
        for member in members:
            if member.place and reading.state.entered_for(member.name) in reading.live:
                machines[member.place.machine] = member.place.rack
    return sets, machines


def _json(made: Plan) -> dict[str, object]:
    return {
        "moves": [
            {
                "broker": one.broker_id,
                "from": one.old,
                "to": one.new,
                "machine": one.to.machine,
                "rack": one.to.rack,
            }
            for one in made.moves
        ],
        "preferred": [
            {"broker": broker_id, "member": name} for broker_id, name in made.preferred.items()
        ],
        "notes": made.notes,
    }


def _print(made: Plan) -> None:
    if not made.moves and not made.preferred:
        print("nothing to move")
    for one in made.moves:
        print(
            f"kafka2011 replicas move {one.broker_id} --from {one.old} --to {one.new}\n"
            f"    and on {one.to.machine} a broker with brokerid={one.broker_id} "
            f"replica.name={one.new} replica.rack={one.to.rack}"
        )
    for broker_id, name in made.preferred.items():
        print(
            f"kafka2011 replicas members {broker_id} --prefer {name} && "
            f"kafka2011 replicas handover {broker_id} --to {name}"
        )
    for note in made.notes:
        complain(note)


# --- move -----------------------------------------------------------------------------------------


def move(
    broker_id: BrokerId,
    *,
    zookeeper: ZooKeeper = "",
    old: Annotated[str, typer.Option("--from", metavar="NAME", help="the member that leaves")],
    new: Annotated[str, typer.Option("--to", metavar="NAME", help="the new member")],
    wait_s: Annotated[
        float, typer.Option("--wait", "--wait-s", min=0, help="longest wait, seconds; 0: no limit")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Replace a member of a set by another, without loss: the new one joins, copies everything,
    leads if the old one did, and then the old one leaves.

    For example: kafka2011 replicas move 1 --from b --to d --zookeeper localhost:2181

    Start the new one's broker when this asks for it, with an empty directory; stop the old one's
    when it is done. If interrupted, the same command continues. Status 1 when it is refused,
    or --wait has passed.
    """
    logs.configure("replicas", level="WARNING")
    deadline_s = time.monotonic() + wait_s if wait_s else float("inf")
    with connected(zookeeper) as registry:
        node = SetNode(registry, broker_id)
        was_member = node.read().state.entered_for(old) is not None
        state = _moved(node, old, new, deadline_s)
        node.forget_place(old)
        _warn_of_racks(node, state, new)
    names = [name for name, _ in state.members]
    leader = next((name for name, entered in state.members if entered == state.leader), None)
    if as_json:
        print_json({"broker": broker_id, "members": names, "leader": leader})
    elif was_member:
        print(f"broker {broker_id}: {new} is in the place of {old}, which can be stopped")
    else:
        print(f"broker {broker_id}: {old} is no member, or no more; {new} is one, and in sync")


def _moved(node: SetNode, old: str, new: str, deadline_s: float) -> SetState:
    said = None
    left: str | None = None  # the old one's directory, until the leader does not count it any more
    while True:
        reading = node.read()
        state = reading.state
        left = left or state.entered_for(old)
        try:
            step = moves.step(state, reading.live, old, new)
        except Refusal as refusal:
            fail(f"broker {node.broker_id}: {refusal}")
        if step.phase is Phase.DONE and left not in state.candidates:
            return state
        if step.phase is not said and step.phase is not Phase.DONE:
            complain(f"broker {node.broker_id}: {new} {step.phase.value}")
            said = step.phase
        if step.state is not None:
            try:
                node.write(reading.version, step.state)
            except VersionConflict:
                pass  # read again, and decided anew
            continue
        if time.monotonic() > deadline_s:
            _withdraw(node, state.entered_for(new))
            fail(f"broker {node.broker_id}: {new} {step.phase.value}; the same command continues")
        time.sleep(LOOK_S)


def _withdraw(node: SetNode, directory: str | None) -> None:
    reading = node.read()
    state = operator_changes.without_wanted_leader(reading.state, directory) if directory else None
    if state is not None:
        try:
            node.write(reading.version, state)
        except VersionConflict:
            complain(f"broker {node.broker_id}: it may still take over")


def _warn_of_racks(node: SetNode, state: SetState, new: str) -> None:
    places = {name: place for name, _ in state.members if (place := node.place_of(name))}
    for name, place in places.items():
        if name != new and new in places and place.rack == places[new].rack:
            complain(f"broker {node.broker_id}: {new} and {name} are both in rack {place.rack}")
