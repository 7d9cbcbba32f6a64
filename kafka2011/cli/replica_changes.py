"""What `kafka2011 replicas` changes in a set that exists: members, leader, min_insync, and the
election of a member that may miss what was confirmed.

What is refused, and why, is in `broker.replication.operator_changes`.
"""

import contextlib
import getpass
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal

import typer

from kafka2011.broker.replica.report import ask_all
from kafka2011.broker.replica.set_node import Reading, SetNode
from kafka2011.broker.replication import operator_changes
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.broker.replication.operator_changes import Refusal
from kafka2011.broker.replication.set_state import Directory, SetState
from kafka2011.cli.connections import connected
from kafka2011.cli.options import AsJson, ZooKeeper
from kafka2011.cli.output import complain, fail, print_json, print_table
from kafka2011.coordination.cluster import cluster_id
from kafka2011.coordination.errors import CoordinationUnavailable, NodeConflict, VersionConflict
from kafka2011.coordination.replica_sets import UncleanRecord
from kafka2011.runtime import logs
from kafka2011.runtime.clock import now_ms

TRIES = 10  # of a write that another one came before; a leader writes seldom
LOOK_S = 0.2

BrokerId = Annotated[int, typer.Argument(metavar="ID", min=0, help="broker id of the set")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of a member")]


def members(
    broker_id: BrokerId,
    *,
    zookeeper: ZooKeeper = "",
    add: Annotated[
        str, typer.Option("--add", metavar="NAME", help="a new member, last in preference")
    ] = "",
    remove: Annotated[
        str, typer.Option("--remove", metavar="NAME", help="the member to take out of the set")
    ] = "",
    prefer: Annotated[
        str,
        typer.Option("--prefer", metavar="NAME", help="the member to be the first in preference"),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Add, remove or prefer members of a set, in one write.

    For example: kafka2011 replicas members 1 --add d --remove b --zookeeper localhost:2181

    Start a new member's broker afterwards, with an empty directory; stop that of a member that was
    removed. Status 1 when it is refused: a leader hands over before it is removed, and at least
    min_insync members stay in sync.
    """
    if not (add or remove or prefer):
        fail("members: give --add, --remove or --prefer", 2)

    def decide(reading: Reading) -> SetState:
        state = reading.state
        if add:
            state = operator_changes.with_member(state, add)
        if remove:
            state = operator_changes.without_member(state, remove)
        return operator_changes.with_preferred(state, prefer) if prefer else state

    with _set(zookeeper, broker_id) as node:
        state = _change(node, decide)
    names = [name for name, _ in state.members]
    if as_json:
        print_json({"broker": broker_id, "members": names})
    else:
        print(f"broker {broker_id}: members {', '.join(names)}")


def min_insync(
    broker_id: BrokerId,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="number of members")],
    *,
    zookeeper: ZooKeeper = "",
) -> None:
    """Set how many members must have a message before it is confirmed; the leader carries it out.

    For example: kafka2011 replicas min-insync 1 2 --zookeeper localhost:2181
    """
    with _set(zookeeper, broker_id) as node:
        _change(node, lambda reading: operator_changes.with_min_insync(reading.state, count))
    print(f"broker {broker_id}: min_insync {count}, as soon as the leader has read it")


def handover(
    broker_id: BrokerId,
    *,
    zookeeper: ZooKeeper = "",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NAME",
            help="member that is to lead (default: the first in preference that can)",
        ),
    ] = "",
    wait_s: Annotated[
        float,
        typer.Option("--wait", "--wait-s", min=0, help="longest wait until it leads, seconds"),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Have another member lead, without loss: clients wait until it has everything.

    For example: kafka2011 replicas handover 1 --to b --zookeeper localhost:2181

    Status 1 when that member does not lead in time; then the request is withdrawn.
    """
    with _set(zookeeper, broker_id) as node:
        chosen = []

        def decide(reading: Reading) -> SetState:
            state, directory = operator_changes.with_leader(reading.state, reading.live, to or None)
            chosen.append(directory)
            return state

        _change(node, decide)
        target = chosen[-1]
        deadline = time.monotonic() + wait_s
        while (state := node.read().state).leader != target and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        if state.leader != target:
            _withdraw(node, target)
            leader = _name_of(state, state.leader) or "no replica"
            fail(
                f"{leader} leads broker {broker_id} after {wait_s:g} s: {_name_of(state, target)} "
                "did not get everything in time, or stopped: see kafka2011 replicas show"
            )
    name = _name_of(state, target)
    if as_json:
        print_json({"broker": broker_id, "leader": name, "epoch": state.epoch})
    else:
        print(f"broker {broker_id}: {name} leads, epoch {state.epoch}")


def _withdraw(node: SetNode, directory: str) -> None:
    for _ in range(TRIES):
        reading = node.read()
        state = operator_changes.without_wanted_leader(reading.state, directory)
        if state is None:
            return
        try:
            node.write(reading.version, state)
        except VersionConflict:
            continue
        return


def elect(
    broker_id: BrokerId,
    name: Name,
    *,
    zookeeper: ZooKeeper = "",
    unclean: Annotated[
        bool, typer.Option("--unclean", help="accept the loss of messages that were confirmed")
    ] = False,
    confirm: Annotated[
        str, typer.Option("--confirm", metavar="WORD", help="the word that the command printed")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a member that may miss confirmed messages the leader, when no other is left.

    For example: kafka2011 replicas elect 1 b --unclean --zookeeper localhost:2181

    It first says what may be lost, changes nothing, and ends with status 1; the same again with
    --confirm does it, and leaves a record that the audit reads. Refused while a member lives that
    has everything: that one takes over by itself.
    """
    if not unclean:
        fail("elect: members that have everything take over by themselves; give --unclean", 2)
    logs.configure("replicas", level="WARNING")
    with connected(zookeeper) as registry:
        node = SetNode(registry, broker_id)
        reading = node.read()
        answers = ask_all(reading, cluster_id(registry), broker_id)
        followed = max((answer.accepted for answer in answers.values()), default=0)
        try:
            state = operator_changes.elected_unclean(reading.state, reading.live, name, followed)
        except Refusal as refusal:
            fail(f"broker {broker_id}: {refusal}")
        answer = answers.get(state.entered_for(name) or "")
        if answer is None:
            fail(
                f"broker {broker_id}: {name} does not answer, or its copy is damaged, or its disk "
                "hangs: see its log for replica_damaged, replica_not_whole or replica_journal_waits"
            )
        record = _record(reading.state, state.epoch + 1, name, answer)
        word = f"{broker_id}-{state.epoch}"
        if confirm != word:
            _say_what_may_be_lost(broker_id, reading.state, record, answers, as_json)
            if confirm:
                fail(f"--confirm {confirm}: the set has changed; see what is printed above", 2)
            complain(f"nothing was changed; to do it: --confirm {word}")
            raise SystemExit(1)
        _elect(node, reading, state, record)
    if as_json:
        print_json(record.as_json())
    else:
        print(f"broker {broker_id}: {name} takes over with epoch {record.epoch}; this is recorded")


def _elect(node: SetNode, reading: Reading, state: SetState, record: UncleanRecord) -> None:
    """Write the election. Exits with status 1 unless it is known to stand."""
    broker_id = node.broker_id
    try:
        node.write_unclean(reading.version, state, record)
    except (VersionConflict, NodeConflict):
        fail(f"broker {broker_id}: the set was changed meanwhile; run this again")
    except CoordinationUnavailable as error:
        fail(f"broker {broker_id}: {error}; the election may have been written: run this again")


def _record(state: SetState, epoch: int, name: str, answer: Canvassing) -> UncleanRecord:
    names = {directory: member for member, directory in state.members}
    own = state.entered_for(name) or ""
    return UncleanRecord(
        epoch=epoch,
        at_ms=now_ms(),
        by=f"{getpass.getuser()}@{socket.gethostname()}",
        elected=name,
        directory=own,
        gone={one: names.get(one, "") for one in sorted(state.candidates - {own})},
        ends=dict(answer.ends),
    )


def _say_what_may_be_lost(
    broker_id: int,
    found: SetState,
    record: UncleanRecord,
    answers: Mapping[Directory, Canvassing],
    as_json: bool,
) -> None:
    if as_json:
        print_json(record.as_json())
        return
    if record.epoch > found.epoch + 1:
        print(
            f"broker {broker_id}: the state in ZooKeeper is of epoch {found.epoch}, and epoch "
            f"{record.epoch - 1} was followed: an older ZooKeeper was put back.\n"
            "Which member has everything that was confirmed is not known from it.\n"
            f"What others have beyond these ends of {record.elected} will be cut:"
        )
    else:
        gone = ", ".join(name or directory for directory, name in record.gone.items())
        print(
            f"broker {broker_id}: {gone} had everything that was confirmed, and do not run.\n"
            f"What they have confirmed beyond these ends of {record.elected} will be lost:"
        )
    ends, known = _most(answers, "ends"), _most(answers, "watermarks")
    names = sorted(record.ends.keys() | ends)
    rows = [(name, record.ends.get(name), ends.get(name), known.get(name)) for name in names]
    columns = ("end", "most of a live member", "known as confirmed")
    print_table(("partition", *columns), rows, columns)


def _most(
    answers: Mapping[Directory, Canvassing], what: Literal["ends", "watermarks"]
) -> dict[str, int]:
    """By partition, the largest of what the live members have told."""
    found: dict[str, int] = {}
    for answer in answers.values():
        told = answer.ends if what == "ends" else answer.watermarks
        for name, offset in told.items():
            found[name] = max(offset, found.get(name, 0))
    return found


# --- what they share ------------------------------------------------------------------------------


@contextlib.contextmanager
def _set(zookeeper: str, broker_id: int) -> Iterator[SetNode]:
    logs.configure("replicas", level="WARNING")
    with connected(zookeeper) as registry:
        yield SetNode(registry, broker_id)


def _change(node: SetNode, decide: Callable[[Reading], SetState]) -> SetState:
    """Decide on the set's state and write the result, again if the set has changed meanwhile. Exits
    with status 1 when it is refused."""
    for _ in range(TRIES):
        reading = node.read()
        try:
            state = decide(reading)
        except Refusal as refusal:
            fail(f"broker {node.broker_id}: {refusal}")
        try:
            node.write(reading.version, state)
        except VersionConflict:
            continue
        return state
    fail(f"broker {node.broker_id}: the set keeps changing: see kafka2011 replicas show")


def _name_of(state: SetState, directory: str | None) -> str | None:
    return next((name for name, entered in state.members if entered == directory), directory)
