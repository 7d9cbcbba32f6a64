"""`kafka2011 replicas verify`: whether the replicas of a set have the same bytes on their disks;
and having a damaged copy made anew."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from kafka2011.broker.replica.comparing import Damage, Sums, compared_bytes, damages
from kafka2011.broker.replica.frames import Greeting, Purpose
from kafka2011.broker.replica.peer_calls import tell, verify
from kafka2011.broker.replica.set_node import Reading, SetNode
from kafka2011.broker.replication.operator_changes import Refusal, check_can_begin_anew
from kafka2011.cli.connections import connected
from kafka2011.cli.options import AsJson, ZooKeeper
from kafka2011.cli.output import complain, fail, print_json, print_table
from kafka2011.cli.replica_changes import BrokerId
from kafka2011.coordination.cluster import cluster_id
from kafka2011.runtime import logs


def verify_set(
    broker_id: BrokerId,
    *,
    zookeeper: ZooKeeper = "",
    heal: Annotated[
        bool, typer.Option("--heal", help="have a follower with a damaged copy copy it anew")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--wait",
            "--timeout-s",
            min=1,
            help="longest wait for a member to read its disk, seconds",
        ),
    ] = 3600,
    as_json: AsJson = False,
) -> None:
    """Compare what is confirmed on the disks of a set's members, and check every entry.

    For example: kafka2011 replicas verify 1 --zookeeper localhost:2181

    Each live member reads all of its segments from the disk. Status 1 when a copy is damaged or
    differs, or a member that is in sync did not answer.

    --heal has one follower, whose copy is damaged for certain, copy everything again from the
    leader; what it has goes to its quarantine. It is refused when too few would stay in sync.
    """
    logs.configure("replicas", level="WARNING")
    with connected(zookeeper) as registry:
        reading = SetNode(registry, broker_id).read()
        cluster = cluster_id(registry)
        names = {directory: name for name, directory in reading.state.members}
        leader = names.get(reading.state.leader or "", "")
        sums = _ask(reading, cluster, broker_id, names, timeout_s)
        found = damages(sums, leader)
        healed = _heal(reading, cluster, broker_id, leader, found) if heal and found else ""
    silent = sorted(
        names.get(directory, directory)
        for directory in reading.state.isr
        if names.get(directory, directory) not in sums
    )
    if as_json:
        print_json(
            {
                "broker": broker_id,
                "members": sorted(sums),
                "compared_bytes": compared_bytes(sums),
                "silent": silent,
                "damages": [_json(one) for one in found],
                "healed": healed or None,
            }
        )
    else:
        _print(broker_id, sums, found)
    for name in silent:
        complain(f"broker {broker_id}: {name} is in sync and did not answer: see its log")
    if healed and not as_json:
        print(f"{healed} copies everything again: kafka2011 replicas show {broker_id}")
    raise SystemExit(1 if found or silent else 0)


def _ask(
    reading: Reading, cluster: str, broker_id: int, names: Mapping[str, str], timeout_s: float
) -> dict[str, Sums]:
    """What the live members answer, by name."""
    greeting = Greeting(Purpose.VERIFY, cluster, broker_id, "", "", 0)
    live = {names[one]: live.address for one, live in reading.live.items() if one in names}
    with ThreadPoolExecutor(max(1, len(live))) as threads:
        answers = threads.map(lambda address: verify(address, greeting, timeout_s), live.values())
        pairs = zip(live, answers, strict=True)
        return {name: answer.partitions for name, answer in pairs if answer is not None}


def _heal(
    reading: Reading, cluster: str, broker_id: int, leader: str, found: Iterable[Damage]
) -> str:
    """Have a member with a damaged copy begin anew; returns its name. Exits with status 1 when none
    can."""
    certain = sorted({one.member for one in found if one.is_certain})
    if not certain:
        fail(f"broker {broker_id}: which copy is damaged is not certain; nothing was healed")
    if leader in certain:
        fail(
            f"broker {broker_id}: the leader's copy is damaged: kafka2011 replicas handover "
            f"{broker_id}, then heal"
        )
    name = certain[0]
    try:
        directory = check_can_begin_anew(reading.state, reading.live, name)
    except Refusal as refusal:
        fail(f"broker {broker_id}: {refusal}")
    greeting = Greeting(Purpose.BEGIN_ANEW, cluster, broker_id, "", directory, 0)
    tell(reading.live[directory].address, greeting)
    return name


def _print(broker_id: int, sums: Mapping[str, Sums], found: list[Damage]) -> None:
    compared = f"{compared_bytes(sums):,} bytes of {', '.join(sorted(sums)) or 'no member'}"
    if not found:
        print(f"broker {broker_id}: {compared}: no difference, every entry checks")
        return
    print(f"broker {broker_id}: {compared}")
    rows = [
        (one.member, one.partition, one.offset, one.reason, "yes" if one.is_certain else "no")
        for one in found
    ]
    print_table(("member", "partition", "offset", "what", "certain"), rows, ("offset",))


def _json(one: Damage) -> dict[str, object]:
    return {
        "member": one.member,
        "partition": one.partition,
        "segment": one.segment_start,
        "offset": one.offset,
        "reason": one.reason,
        "certain": one.is_certain,
    }
