"""Machines with one rule broken each. Every one must be found; a rule that may be broken unseen is
either not needed or not tested.

`MUTANTS` are found by few random walks. FollowsAnOlderEpoch, SettlesByAReading and
CountsOldAcknowledgements need many, and have a schedule each. Most of them are mistakes that real
systems have made and shipped; docs/replication.md names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka2011.broker.replication.candidate import Candidate
from kafka2011.broker.replication.confirming import Phase
from kafka2011.broker.replication.context import Context, Turn
from kafka2011.broker.replication.copies import Copy, Row
from kafka2011.broker.replication.effects import AnswerBarrier, CutLogs, OpenClients, OpenLog, Send
from kafka2011.broker.replication.events import BarrierAsked, StateRead
from kafka2011.broker.replication.follower import Follower, Stage
from kafka2011.broker.replication.frames import Ack, Table
from kafka2011.broker.replication.leader import Answer, Leader
from kafka2011.broker.replication.machine import Replica
from kafka2011.broker.replication.member import Member
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.broker.replication.set_state import Directory, SetState


@dataclass(frozen=True)
class Mutant:
    """A broken machine. `invariants`: those it may break first, as docs/replication.md has them."""

    name: str
    machine: type[Replica]
    invariants: tuple[str, ...]
    names_are_directories: bool = False
    keeps_what_it_took: bool = False
    counts_unseen_starts: bool = False


MUTANTS: list[Mutant] = []


def leader(*invariants: str):  # type: ignore[no-untyped-def]
    return _add("leader", invariants)


def follower(*invariants: str):  # type: ignore[no-untyped-def]
    return _add("follower", invariants)


def candidate(*invariants: str):  # type: ignore[no-untyped-def]
    return _add("candidate", invariants)


def _add(role: str, invariants: tuple[str, ...]):  # type: ignore[no-untyped-def]
    def add(mutant):  # type: ignore[no-untyped-def]
        machine = type(mutant.__name__, (Replica,), {role: mutant})
        MUTANTS.append(Mutant(mutant.__name__, machine, invariants))
        return mutant

    return add


# --- joining -------------------------------------------------------------------------------------


@follower("I1")
class CutsToItsWatermark(Follower):
    """Kafka up to 0.10: what was confirmed and not yet known as such is lost."""

    def _tell(self) -> None:
        super()._tell()
        sent = self.context.effects[-1:]
        if sent and isinstance(sent[0], Send) and isinstance(sent[0].frame, Table):
            copies = self.context.copies
            rows = {name: copy.row(copy.watermark) for name, copy in copies.items()}
            self.context.effects[-1] = Send(sent[0].link, Table(rows))

    def _carry_out(self, steps: dict[str, Step]) -> None:
        keep = {name for name, step in steps.items() if step.action is Action.KEEP}
        cut = {name: replace(steps[name], action=Action.CUT) for name in keep}
        super()._carry_out(steps | cut)


@leader("I1", "I4", "I8", "I9")
class ComparesLengthsOnly(Leader):
    def _plan_for(self, rows: Mapping[str, Row]) -> dict[str, Step]:
        steps = super()._plan_for(rows)
        for name, row in rows.items():
            copy = self.context.copies.get(name)
            end = min(row.end, copy.written) if copy else -1
            if copy and end >= copy.start:
                steps[name] = Step(Action.CUT, end, steps[name].lineage)
        return steps


class _OlderFollower(Follower):
    def _accepts(self, epoch: int) -> bool:
        return True


class FollowsAnOlderEpoch(Replica):
    follower = _OlderFollower

    def _read(self, event: StateRead) -> None:
        self.context.accepted = 0
        super()._read(event)


@follower("I8")
class IsReadyBeforeItsJournal(Follower):
    def logs_cut(self) -> None:
        super().logs_cut()
        if self.stage is Stage.JOURNALLING:
            self._settled()


@follower("I8")
class JournalsTheLineageBeforeTheCut(Follower):
    def _carry_out(self, steps: dict[str, Step]) -> None:
        self._steps = steps
        self.stage = Stage.CUTTING
        for name in steps.keys() & self.context.copies.keys():
            self.context.copies[name].lineage = steps[name].lineage
        self.context.journal()
        self.context.effects.append(CutLogs(steps))


# --- acknowledging and confirming ----------------------------------------------------------------


@follower("I1")
class AcknowledgesUnflushed(Follower):
    def _acknowledged_end(self, partition: str) -> int:
        return self.context.copies[partition].written


@leader("I5")
class ConfirmsUnflushed(Leader):
    def _own_end(self, copy: Copy) -> int:
        return copy.written


class _RememberingLeader(Leader):
    """The same process leads again, and counts the acknowledgements of its earlier leadership."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.heard: dict[tuple[Directory, str], int] = vars(context).setdefault("heard", {})

    def _acknowledged(self, member: Member, ack: Ack) -> None:
        for name, end in ack.flushed.items():
            key = member.directory, name
            self.heard[key] = max(end, self.heard.get(key, 0))
        super()._acknowledged(member, ack)

    def _flushed_at(self, directory: Directory, partition: str) -> int:
        heard = self.heard.get((directory, partition), -1)
        return max(heard, super()._flushed_at(directory, partition))


class CountsOldAcknowledgements(Replica):
    leader = _RememberingLeader


@leader("I1", "I2")
class IgnoresMinInsync(Leader):
    def _can_confirm(self) -> bool:
        return True


@leader("I7")
class AnswersBarriersWhenFlushed(Leader):
    def barrier_asked(self, asked: BarrierAsked) -> None:
        copies = self.context.copies
        if all(copies[name].flushed >= end for name, end in asked.ends.items()):
            self.context.effects.append(AnswerBarrier(asked.barrier))
        else:
            super().barrier_asked(asked)


# --- the in-sync set -----------------------------------------------------------------------------


@leader("I1", "I2")
class ShrinksBeforeTheAnswer(Leader):
    def _needed(self) -> frozenset[Directory]:
        return self.asked[-1].isr if self.asked else super()._needed()


@leader("I1", "I2")
class ForgetsWhatItAskedFor(Leader):
    def _needed(self) -> frozenset[Directory]:
        return self.known.isr


class _ReadingLeader(Leader):
    def state_read(self) -> None:
        self._is_unsettled = False
        super().state_read()


class SettlesByAReading(Replica):
    leader = _ReadingLeader


@leader("I1", "I2")
class LetsJoinBelowTheFloor(Leader):
    def _may_join(self, member: Member) -> bool:
        copies = self.context.copies.items()
        return member.has({name: copy.watermark for name, copy in copies})


@leader("I1", "I2")
class KeepsTheEligible(Leader):
    def _wanted_set(self) -> SetState | None:
        changed = super()._wanted_set()
        if changed is None or self.known.wanted_min_insync is not None:
            return changed
        return replace(changed, eligible=self.known.candidates - changed.isr)


@leader("I1", "I2")
class KeepsTheEligibleWhenFewerAreNeeded(Leader):
    def _wanted_set(self) -> SetState | None:
        changed = super()._wanted_set()
        if changed is None or self.known.wanted_min_insync is None:
            return changed
        return replace(changed, eligible=self.known.eligible)


# --- retention and full disks ---------------------------------------------------------------------


@leader("I11")
class RetiresWhatIsNotConfirmed(Leader):
    def retirable(self, partition: str) -> int | None:
        end = super().retirable(partition)
        return None if end is None else self.context.copies[partition].flushed


@leader("I11")
class RetiresWhatIsBeingCopied(Leader):
    def retirable(self, partition: str) -> int | None:
        end = super().retirable(partition)
        return None if end is None else self.context.copies[partition].watermark


@leader("I1", "I4", "I8", "I9")
class ComparesFromItsOwnStart(Leader):
    """Another epoch may have written what a follower has below."""

    def _plan_for(self, rows: Mapping[str, Row]) -> dict[str, Step]:
        copies = self.context.copies
        cut = {
            name: replace(row, start=max(row.start, copies[name].start))
            for name, row in rows.items()
            if name in copies
        }
        return super()._plan_for(
            dict(rows) | {name: row for name, row in cut.items() if row.start <= row.end}
        )


@leader("I8")
class ForgetsWhatAFollowerKeeps(Leader):
    """It forgets the epochs of bytes that the leader has let go, and the follower still has."""

    def _plan_for(self, rows: Mapping[str, Row]) -> dict[str, Step]:
        copies = self.context.copies
        return {
            name: replace(step, lineage=copies[name].lineage) if name in copies else step
            for name, step in super()._plan_for(rows).items()
        }


class TakesForWrittenWhatFoundNoRoom(Replica):
    def _no_room(self, partition: str, end: int) -> None:
        super()._no_room(partition, self.context.copies[partition].written)


MUTANTS.append(Mutant("TakesForWrittenWhatFoundNoRoom", TakesForWrittenWhatFoundNoRoom, ("I10",)))


# --- taking over ---------------------------------------------------------------------------------


@candidate("I1", "I2")
class TakesStrangersAsInSync(Candidate):
    def _elected(self) -> SetState:
        chosen = super()._elected()
        return replace(chosen, isr=frozenset(entered for _, entered in chosen.members))


@follower("I1", "I2", "I3", "I4", "I5")
class GoesOnInItsEpochAfterARestart(Follower):
    def act(self) -> None:
        context, state = self.context, self.context.state
        is_leader = state is not None and state.leader == context.directory
        if is_leader and context.may_lead and not context.is_stale:
            context.turn = Turn.LEAD
        else:
            super().act()


@leader("I8")
class WritesBeforeItsEpochIsDurable(Leader):
    def begin(self) -> None:
        before = self.phase
        super().begin()
        if before is not self.phase:
            self.phase = Phase.SERVING
            self.context.effects.append(OpenClients())


@leader("I8", "I10")
class OpensALogBeforeItsLineageIsDurable(Leader):
    def log_made(self, partition: str) -> None:
        super().log_made(partition)
        if self._opening.pop(partition, None):
            self.context.effects.append(OpenLog(partition))


@leader("I6")
class ShowsItsOwnWatermarkAtOnce(Leader):
    """Kafka before 0.11: consumers get error 1 after a takeover, and start over."""

    def fetch(self, partition: str, offset: int) -> Answer:
        answer = super().fetch(partition, offset)
        return Answer.OUT_OF_RANGE if answer is Answer.EMPTY else answer


@leader("I6")
class ShowsAnEndThatFalls(Leader):
    def latest(self, partition: str) -> int | None:
        if self.phase is not Phase.SERVING:
            return None
        return self.context.copies[partition].watermark


MUTANTS.append(Mutant("NamesDirectoriesByReplica", Replica, ("I1", "I2"), True))
MUTANTS.append(
    Mutant("WritesForClientsAfterItsEnd", Replica, ("I4", "I8"), keeps_what_it_took=True)
)
MUTANTS.append(Mutant("CountsUnseenStarts", Replica, ("I1", "I2"), counts_unseen_starts=True))
