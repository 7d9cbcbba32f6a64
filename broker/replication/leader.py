"""One leadership: how it begins and ends, and which members are in sync. `confirming` has the rest.

The beginning, each part done before the next:

    flush all logs -> journal the epoch and the floors -> followers may join, others hear of it
    -> the old address is gone -> the gap -> open to clients -> show the address
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from kafka2011.broker.replication import set_state
from kafka2011.broker.replication.confirming import Confirming, Phase
from kafka2011.broker.replication.context import Context, Turn
from kafka2011.broker.replication.copies import Copy, Row
from kafka2011.broker.replication.effects import (
    Close,
    CloseClients,
    OpenClients,
    OpenLog,
    PauseProducers,
    Register,
    Send,
    Tell,
)
from kafka2011.broker.replication.events import (
    Refused,
    Unanswered,
    Written,
)
from kafka2011.broker.replication.frames import (
    Ack,
    Data,
    Frame,
    Hello,
    Mark,
    Plan,
    Ready,
    Start,
    Table,
    Verdict,
    Welcome,
)
from kafka2011.broker.replication.member import Member
from kafka2011.broker.replication.plan import Action, Step, plan
from kafka2011.broker.replication.set_state import Directory, SetState
from kafka2011.protocol.lineage import begun


class Answer(Enum):
    """How a fetch is answered."""

    READ = auto()  # with what is below the watermark
    EMPTY = auto()  # no bytes, no error: the leader before has shown them, and this one will
    OUT_OF_RANGE = auto()
    CLOSED = auto()  # this replica serves no client


class Leader(Confirming):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.floors: dict[str, int] = {}
        self._is_unsettled = False
        self._writes_address = False  # the request under way is a Register
        self._is_shown = False  # in this session
        self._session = 0
        self._asked_in = 0  # the session of the Register under way

        self._began_ms = context.now_ms
        self._seen_ms: dict[Directory, int] = {}  # when last caught up
        self._lost_ms: dict[Directory, int] = {}
        self._journal = 0
        self._gap_ends_ms = 0
        self._marked_ms = context.now_ms
        self._mark = 0
        self._opening: dict[str, int] = {}  # new partitions, by the journal write that each awaits
        self._hands_over_until_ms: int | None = None
        self._is_drained = False  # all that came before the pause is written
        self._gave_up_on: Directory | None = None  # a handover that took too long

    # --- beginning and end ---------------------------------------------------------------------

    def begin(self) -> None:
        """Journal the epoch's beginning once all is flushed; nothing of it is written before."""
        context = self.context
        if self.phase is not Phase.FLUSHING or not context.is_flushed:
            return
        context.accepted = self.epoch
        context.has_joined = True
        for name, copy in context.copies.items():
            self.floors[name] = copy.flushed
            # A standalone broker's bytes are of epoch 0: without an entry they would seem let go.
            before = copy.lineage or ((0, copy.start),)
            copy.lineage = begun(before, self.epoch, copy.flushed)
        self.phase = Phase.JOURNALLING
        self._journal = context.journal()

    def journalled(self, number: int) -> None:
        for name in [name for name, awaited in self._opening.items() if awaited <= number]:
            del self._opening[name]
            self.context.effects.append(OpenLog(name))
            for link, member in self.members.items():
                self._plan_new(link, member)
        if self.phase is not Phase.JOURNALLING or number < self._journal:
            return
        context = self.context
        self.phase = Phase.CLEARING
        others = frozenset(entered for _, entered in self.known.members) - {context.directory}
        context.effects.append(Tell(others))
        self._advance_all()

    def end(self) -> None:
        context = self.context
        if self.phase is Phase.SERVING:
            context.effects.append(CloseClients())
        context.effects += [Close(link) for link in self.members]

    def _step_back(self) -> None:
        """Stop leading, so that another can: the follower that this becomes writes the state."""
        self.context.rests_until_ms = self.context.now_ms + self.context.timing.rest_ms
        self.context.stepped_back_in = self.epoch
        self.context.turn = Turn.FOLLOW

    def log_failed(self) -> None:
        self._step_back()

    def hand_over(self) -> None:
        """Take no more from clients, and step back once another has everything."""
        if self._hands_over_until_ms is None:
            context = self.context
            self._hands_over_until_ms = context.now_ms + context.timing.handover_ms
            self._is_drained = False
            context.effects.append(PauseProducers(True))

    def drained(self) -> None:
        self._is_drained = True
        self._finish_handover()

    def _finish_handover(self) -> None:
        if self._hands_over_until_ms is None or self.phase is not Phase.SERVING:
            return
        if not self._is_drained:
            return
        copies = self.context.copies
        # Nothing is written to a partition that waits for its journal, maybe for room.
        ends = {name: c.written for name, c in copies.items() if name not in self._opening}
        if any(copies[name].watermark < end for name, end in ends.items()):
            return
        for member in self.members.values():
            is_target = self.known.wanted_leader in (None, self._gave_up_on, member.directory)
            if is_target and member.has(ends) and member.directory in self.known.isr:
                self._step_back()
                return

    def tick(self) -> None:
        context, timing = self.context, self.context.timing
        now_ms = context.now_ms
        if self._hands_over_until_ms is not None:
            left_ms = self._hands_over_until_ms - now_ms
            if left_ms <= 0:
                self._hands_over_until_ms = None
                self._gave_up_on = self.known.wanted_leader
                context.effects.append(PauseProducers(False))
            elif left_ms <= timing.handover_ms // 2:
                self.drained()  # do not wait for what takes longer, maybe for lack of room
                if context.turn is not None:
                    return
        if self.phase is Phase.GAP and now_ms >= self._gap_ends_ms:
            self.phase = Phase.SERVING
            context.effects.append(OpenClients())
        if self._is_stuck() and len(self.known.isr) > 1:
            self._step_back()
            return
        if now_ms - self._marked_ms >= timing.mark_ms:
            self._send_marks()

    def _is_stuck(self) -> bool:
        """Whether the disk hangs, or lacks room for the epoch's beginning, before which no follower
        may join. The session lives on, so that only the leader itself notices soon."""
        context, patience_ms = self.context, self.context.timing.lag_max_ms
        has_begun = self.phase >= Phase.CLEARING
        return context.flush_age_ms > patience_ms or (
            not has_begun and context.now_ms - self._began_ms > patience_ms
        )

    # --- the state -----------------------------------------------------------------------------

    def state_read(self) -> None:
        context, state = self.context, self.context.state
        assert state is not None
        if state.epoch > self.epoch or state.leader != context.directory:
            context.turn = Turn.FOLLOW
            return
        if not self._is_unsettled:
            # Others only take members out: waiting for more than is needed did no harm.
            self._adopt(state)
        if state.wanted_leader is None:
            self._gave_up_on = None
        elif state.wanted_leader not in (context.directory, self._gave_up_on):
            self.hand_over()

    def heard_of(self, epoch: int) -> None:
        """Step back when a later epoch is heard of, even if the state cannot be read."""
        if epoch > self.epoch:
            self.context.turn = Turn.FOLLOW

    def _adopt(self, state: SetState) -> None:
        self.known = state
        self.asked.clear()
        self._is_unsettled = False
        self._advance_all()

    def act(self) -> None:
        """Begin the most urgent write. A write whose answer was lost is settled by writing the
        state that was read: reading alone will not do, as the lost write may yet take effect."""
        context = self.context
        if context.is_stale or self.phase < Phase.CLEARING:
            return
        if self._is_unsettled:
            self._settle()
        elif self.phase is Phase.CLEARING:
            self._write_address(False)
        elif (changed := self._wanted_set()) is not None:
            self._write(changed)
        elif self.phase is Phase.SERVING and not self._is_shown:
            self._write_address(True)

    def _settle(self) -> None:
        assert self.context.state is not None
        self._write(self.context.state)

    def _write(self, state: SetState) -> None:
        self.asked.append(state)
        self.context.write(self, self.context.version, state)

    def _write_address(self, present: bool) -> None:
        self._writes_address = True
        self._asked_in = self._session
        version = self.context.version
        self.context.ask(self, lambda request: Register(request, version, present))

    def answered(self, answer: Written | Refused | Unanswered) -> None:
        context = self.context
        if self._writes_address:
            self._writes_address = False
            if isinstance(answer, Written):
                self._address_written()
            else:
                context.look_first()
        elif isinstance(answer, Written):
            context.version, context.state = answer.version, self.asked[-1]
            self._adopt(self.asked[-1])
        elif isinstance(answer, Refused):
            # This write never takes effect; one before it may. Another replica has written since.
            self.asked.pop()
            context.look_first()
        else:
            self._is_unsettled = True
            context.look_first()

    @property
    def is_shown(self) -> bool:
        """Whether clients are shown this leader's address."""
        return self._is_shown

    def _address_written(self) -> None:
        if self.phase is Phase.CLEARING:
            self.phase = Phase.GAP
            self._gap_ends_ms = self.context.now_ms + self.context.timing.gap_ms
        else:
            self._is_shown = self._asked_in == self._session

    def session_renewed(self) -> None:
        """Have the address shown again, which went with the old session: on the known version, as
        another may lead by now. An answer still to come belongs to the old session."""
        self._session += 1
        self._is_shown = False

    # --- which members are in sync -------------------------------------------------------------

    def _wanted_set(self) -> SetState | None:
        """The set as it should be, or None when it is right as it is; one change at a time."""
        context, state = self.context, self.known
        if state.wanted_min_insync is not None:
            return set_state.with_min_insync(state)
        for link in sorted(self.members):
            member = self.members[link]
            directory = member.directory
            is_new = directory not in state.isr and state.is_member(directory)
            if is_new and not self._is_behind(directory) and self._may_join(member):
                return set_state.joined(state, directory)
        leaving = frozenset(
            directory
            for directory in state.isr - {context.directory}
            if not state.is_member(directory) or self._is_behind(directory)
        )
        return set_state.without(state, leaving) if leaving else None

    def _may_join(self, member: Member) -> bool:
        """Whether a member has all that is confirmed, by this leader and by earlier ones, whose
        last watermark may be unknown here: it is at most the floor. (Being caught up implies as
        much; the ends are compared all the same, as so much depends on it.)"""
        copies = self.context.copies.items()
        ends = {name: max(copy.watermark, self.floors[name]) for name, copy in copies}
        return member.is_caught_up and member.has(ends)

    def _is_behind(self, directory: Directory) -> bool:
        now_ms, timing = self.context.now_ms, self.context.timing
        if now_ms - self._seen_ms.get(directory, self._began_ms) > timing.lag_max_ms:
            return True
        lost_ms = self._lost_ms.get(directory)
        return lost_ms is not None and now_ms - lost_ms > timing.gone_ms

    # --- readers and producers -----------------------------------------------------------------

    @property
    def takes_produces(self) -> bool:
        return self.phase is Phase.SERVING and self._hands_over_until_ms is None

    def fetch(self, partition: str, offset: int) -> Answer:
        """How a fetch is answered. A new leader's watermark may lag behind what the old one has
        shown, but its end does not: between the two a reader gets no bytes, and no error."""
        if self.phase is not Phase.SERVING:
            return Answer.CLOSED
        copy = self.context.copies[partition]
        if copy.start <= offset <= copy.watermark:
            return Answer.READ
        return (
            Answer.EMPTY if copy.start < offset <= self.floors[partition] else Answer.OUT_OF_RANGE
        )

    def latest(self, partition: str) -> int | None:
        """The watermark, once it is not below what an earlier leader may have shown."""
        watermark = self.context.copies[partition].watermark
        if self.phase is not Phase.SERVING or watermark < self.floors[partition]:
            return None
        return watermark

    # --- retention -----------------------------------------------------------------------------

    def retirable(self, partition: str) -> int | None:
        """Up to where a log may lose messages; None: none now. All above the watermark stays, and
        what a linked follower may still be sent: else its copying would begin anew each time."""
        if self.phase is not Phase.SERVING or partition not in self.context.copies:
            return None
        ends = [self.context.copies[partition].watermark]
        for member in self.members.values():
            needed = member.needs_from(partition)
            if needed is not None:
                ends.append(needed)
        return min(ends)

    def retired(self, partition: str) -> None:
        for link, member in self.members.items():
            self._tell_starts(link, member, (partition,))

    def _tell_starts(self, link: int, member: Member, partitions: Iterable[str]) -> None:
        starts = {
            name: self.context.copies[name].start
            for name in partitions
            if name in member.flushed and self.context.copies[name].start
        }
        if member.is_ready and starts:
            self.context.effects.append(Send(link, Start(starts)))

    def no_room(self) -> None:
        self.begin()

    # --- followers -----------------------------------------------------------------------------

    def appended(self, partition: str) -> None:
        for link, member in self.members.items():
            if partition in member.sent:
                self._send_data(link, member, partition)

    def log_made(self, partition: str) -> None:
        context = self.context
        if self.phase is Phase.SERVING and partition not in context.copies:
            self.floors[partition] = 0
            context.copies[partition] = Copy(0, 0, 0, 0, begun((), self.epoch, 0))
            self._opening[partition] = context.journal()

    def _plan_new(self, link: int, member: Member) -> None:
        """Have a joined follower make the partitions that are new; one plan at a time."""
        copies = self.context.copies
        lacking = member.lacks(name for name in copies if name not in self._opening)
        if member.is_ready and member.planned is None and lacking:
            member.planned = {
                name: Step(Action.ANEW, copies[name].start, copies[name].lineage)
                for name in lacking
            }
            self.context.effects.append(Send(link, Plan(member.planned)))

    def flushed(self, partition: str) -> None:
        self.begin()
        self._advance(partition)
        self._after_progress()

    def _after_progress(self) -> None:
        if self._has_moved:
            self._send_marks()
        self._finish_handover()

    def _send_data(self, link: int, member: Member, partition: str) -> None:
        end, sent = self.context.copies[partition].written, member.sent[partition]
        if sent < end:
            member.sent[partition] = end
            self.context.effects.append(Send(link, Data(partition, sent, end)))

    def _send_marks(self) -> None:
        """Send a mark, behind all data that was sent, to every follower that has joined."""
        context = self.context
        self._marked_ms = context.now_ms
        self._has_moved = False
        self._mark += 1
        watermarks = {name: copy.watermark for name, copy in context.copies.items()}
        mark = Mark(self._mark, watermarks, context.flush_age_ms)
        for link, member in self.members.items():
            if member.is_ready:
                member.note_mark(self._mark, context.now_ms, context.timing.lag_max_ms)
                context.effects.append(Send(link, mark))

    def closed(self, link: int, refused: bool) -> None:
        del refused  # a leader asks for no links
        member = self.members.pop(link, None)
        if member is not None:
            self._lost_ms[member.directory] = self.context.now_ms

    def received(self, link: int, frame: Frame) -> None:
        member = self.members.get(link)
        match frame:
            case Ack() if member is not None and member.is_ready:
                self._acknowledged(member, frame)
            case Hello() if member is None:
                self._greeted(link, frame)
            case Table(rows) if member is not None and not (member.planned or member.is_ready):
                member.planned = self._plan_for(rows)
                self.context.effects.append(Send(link, Plan(member.planned)))
            case Ready() if member is not None and member.planned is not None:
                self._is_ready(link, member)
            case _:
                self.context.effects.append(Close(link))
                self.closed(link, False)

    def _greeted(self, link: int, hello: Hello) -> None:
        context = self.context
        verdict = Verdict.OK
        if self.phase < Phase.CLEARING:
            verdict = Verdict.NOT_READY
        elif hello.accepted > self.epoch:
            verdict = Verdict.OLD_EPOCH
            self.heard_of(hello.accepted)
        elif not self.known.is_member(hello.directory):
            verdict = Verdict.NO_MEMBER
            context.look()
        context.effects.append(Send(link, Welcome(verdict, self.epoch)))
        if verdict is not Verdict.OK:
            context.effects.append(Close(link))
            return
        for old, member in list(self.members.items()):
            if member.directory == hello.directory:
                context.effects.append(Close(old))
                del self.members[old]
        self.members[link] = Member(hello.directory)
        self._lost_ms.pop(hello.directory, None)

    def _plan_for(self, rows: Mapping[str, Row]) -> dict[str, Step]:
        ours = {name: copy.row(copy.written) for name, copy in self.context.copies.items()}
        return plan(ours, rows)

    def _is_ready(self, link: int, member: Member) -> None:
        """Count from now on what the member's plan kept, and send it the rest."""
        member.carried_out()
        for name in self.context.copies:
            if name in member.sent:
                self._send_data(link, member, name)
        self._plan_new(link, member)
        self._tell_starts(link, member, self.context.copies)
        self._advance_all()
        self._send_marks()
        self._after_progress()

    def _acknowledged(self, member: Member, ack: Ack) -> None:
        for name, end in ack.flushed.items():
            member.flushed[name] = end
            self._advance(name)
        sent_ms = member.take_mark(ack.mark)
        if sent_ms is not None:
            member.is_caught_up = True
            self._seen_ms[member.directory] = sent_ms
        self._after_progress()
