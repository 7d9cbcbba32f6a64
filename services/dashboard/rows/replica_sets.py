"""Replica sets as rows: each member's role, whether it is in sync, how far behind; and the set's
state in a word and a line. Pure.

The state is ZooKeeper's. How far a member is behind is the sum over partitions of what the leader
has written and it has not, from the newest scrapes of both: an estimate while much is produced.
"""

from collections.abc import Iterator, Mapping

from kafka2011.coordination.replica_sets import SetMember, SetView
from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedProcess,
    Row,
    Rows,
)

WHOLE = "in sync"
UNDER_REPLICATED = "under-replicated"
NOTHING_CONFIRMED = "nothing confirmed"
NO_LEADER = "no leader"

# By coordination's name of a role: the name shown.
ROLES = {
    "leader": "leader",
    "in sync": "follower",
    "eligible": "follower",
    "behind": "follower",
    "joining": "joining",
    "away": "away",
    "away, in sync": "away",
}
IN_SYNC = frozenset({"leader", "in sync", "away, in sync"})

Ends = Mapping[tuple[str, str], float]  # by topic and partition


def is_member(process: ObservedProcess, broker_id: int, member: str) -> bool:
    """Whether the process is that member: replicas are named `...-<broker id>-<member>`."""
    return process.kind == "broker" and f"-{process.name}".endswith(f"-{broker_id}-{member}")


def members_of(
    seen: Observations,
) -> Iterator[tuple[str, SetView, SetMember, ObservedProcess | None]]:
    """Every member of every set: its datacenter, set, and its process where one is registered."""
    for datacenter, cluster in seen.clusters.items():
        brokers = [
            process
            for process in seen.processes.values()
            if process.datacenter == datacenter and process.kind == "broker"
        ]
        for broker_id, view in cluster.sets.items():
            for member in view.members:
                found = (one for one in brokers if is_member(one, broker_id, member.name))
                yield datacenter, view, member, next(found, None)


def state_of(view: SetView) -> str:
    """The worst that can be said of the set."""
    if view.leader is None:
        return NO_LEADER
    if view.in_sync < view.min_insync:
        return NOTHING_CONFIRMED
    return WHOLE if all(member.is_whole for member in view.members) else UNDER_REPLICATED


def text_of(view: SetView) -> str:
    """The set's state in a line."""
    return (
        view.trouble or f"all {len(view.members)} replicas of broker {view.broker_id} are in sync"
    )


def behind_bytes(leader: ObservedProcess | None, member: ObservedProcess | None) -> int | None:
    """What the leader has written and the member has not; None where one of them does not answer.
    What the leader has deleted at the start of a log is not counted, as it is not copied."""
    if leader is None or member is None or not (_answers(leader) and _answers(member)):
        return None
    starts = _by_partition(leader, "kafka2011_broker_log_start")
    has = _by_partition(member, "kafka2011_broker_log_end")
    ends = _by_partition(leader, "kafka2011_broker_log_end")
    return int(
        sum(
            max(0.0, end - max(has.get(log, 0.0), starts.get(log, 0.0)))
            for log, end in ends.items()
        )
    )


def set_rows(seen: Observations) -> Rows:
    """`<datacenter>/<broker id>` -> the set with its members, in their order."""
    processes: dict[tuple[str, int, str], ObservedProcess | None] = {
        (datacenter, view.broker_id, member.name): process
        for datacenter, view, member, process in members_of(seen)
    }
    rows: Rows = {}
    for datacenter, cluster in seen.clusters.items():
        for broker_id, view in cluster.sets.items():
            leader = processes.get((datacenter, broker_id, view.leader or ""))
            rows[f"{datacenter}/{broker_id}"] = {
                "dc": datacenter,
                "broker_id": broker_id,
                "epoch": view.epoch,
                "min_insync": view.min_insync,
                "in_sync": view.in_sync,
                "leader": leader.name if leader else view.leader,
                "state": state_of(view),
                "text": text_of(view),
                "is_old": not cluster.is_answering,
                "members": [
                    _member_row(member, leader, processes[datacenter, broker_id, member.name])
                    for member in view.members
                ],
            }
    return rows


def _member_row(
    member: SetMember, leader: ObservedProcess | None, process: ObservedProcess | None
) -> Row:
    is_leader = member.role == "leader"
    return {
        "name": member.name,
        "process": process.name if process else "",
        "key": process.key if process else "",
        "role": ROLES.get(member.role, member.role),
        "is_in_sync": member.role in IN_SYNC,
        "behind_bytes": None if is_leader else behind_bytes(leader, process),
    }


def _answers(process: ObservedProcess) -> bool:
    return not process.health.failures and bool(process.samples)


def _by_partition(process: ObservedProcess, metric: str) -> Ends:
    return {
        (labels.get("topic", ""), labels.get("partition", "")): value
        for labels, value in process.samples.get(metric, ())
    }
