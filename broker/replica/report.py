"""What an operator sees of a replica set: each member's role, and how far behind it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.broker.replica.frames import Greeting, Purpose
from kafka2011.broker.replica.peer_calls import Dial, canvass
from kafka2011.broker.replica.set_node import Reading
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.broker.replication.set_state import Directory
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.coordination.replica_sets import role_of


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One member. `role`: leader, in sync, eligible, behind (alive, but not in sync), away. `end`
    is the sum of its flushed ends, `behind_bytes` how much less that is than the leader's; None
    without an answer."""

    name: str
    directory: Directory
    role: str
    address: str
    epoch: int | None
    end: int | None
    behind_bytes: int | None


@dataclass(frozen=True, slots=True)
class Shown:
    """The address that clients are shown, and what is wrong with it; each "" when none."""

    address: str
    trouble: str


@dataclass(frozen=True, slots=True)
class SetReport:
    broker_id: int
    epoch: int
    leader: str | None
    min_insync: int
    members: tuple[MemberReport, ...]
    shown: Shown

    @property
    def troubles(self) -> list[str]:
        """What is not as it should be, in words: each member in sync and answering, one of them the
        leader, clients let in."""
        found = [] if self.leader is not None else ["it has no leader"]
        for member in self.members:
            if member.role not in ("leader", "in sync"):
                found.append(f"{member.name} is {member.role}")
            elif member.end is None:  # dead or stuck for some seconds: the set does not know it yet
                found.append(f"{member.name} does not answer")
        return found + ([self.shown.trouble] if self.shown.trouble else [])


def ask_shown(address: BrokerAddress | None) -> Shown:
    """Check that a process listens at the address that clients are shown: an elected member leads
    in the state before it lets clients in, and may never get that far."""
    if address is None:
        return Shown("", "clients are shown no address")
    dial = Dial(address)
    dial.run()
    if dial.socket is not None:
        dial.socket.close()
    text = f"{address.host}:{address.port}"
    return Shown(text, f"{text} refuses clients" if dial.is_refused else "")


def ask_all(reading: Reading, cluster_id: str, broker_id: int) -> dict[Directory, Canvassing]:
    """Canvass the live members in turn, each with two seconds to connect and two to answer."""
    greeting = Greeting(Purpose.CANVASS, cluster_id, broker_id, "", "", 0)
    answers = {
        directory: canvass(live.address, greeting) for directory, live in reading.live.items()
    }
    return {directory: answer for directory, answer in answers.items() if answer is not None}


def report(
    broker_id: int, reading: Reading, answers: Mapping[Directory, Canvassing], shown: Shown
) -> SetReport:
    state = reading.state
    ends = {directory: sum(answer.ends.values()) for directory, answer in answers.items()}
    leader_end = ends.get(state.leader or "")
    members = []
    for name, directory in state.members:
        end = ends.get(directory)
        live = reading.live.get(directory)
        answer = answers.get(directory)
        is_known = end is not None and leader_end is not None
        members.append(
            MemberReport(
                name,
                directory,
                role_of(
                    directory,
                    leader=state.leader,
                    isr=state.isr,
                    eligible=state.eligible,
                    is_live=live is not None,
                ),
                f"{live.address.host}:{live.address.port}" if live else "",
                answer.accepted if answer else None,
                end,
                max(0, (leader_end or 0) - (end or 0)) if is_known else None,
            )
        )
    names = {directory: name for name, directory in state.members}
    leader = names.get(state.leader, state.leader) if state.leader else None
    return SetReport(broker_id, state.epoch, leader, state.min_insync, tuple(members), shown)
