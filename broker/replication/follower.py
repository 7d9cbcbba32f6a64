"""A replica that copies a leader, or looks for one, and notices when it should take over.

Joining, in this order, each part durable before the next begins:

    flush -> tell what there is -> cut what differs -> journal the epoch and the lineage -> Ready

Until Ready nothing of this copy counts at the leader. Once a cut has begun it is carried to its
end, whatever happens to the link: in between, the logs and their lineages do not fit together.
The epoch need not be durable before the cut: what a leader of a later epoch has cut was never
confirmed, and never will be.
"""

from enum import Enum, auto

from kafka2011.broker.replication import set_state
from kafka2011.broker.replication.context import Context, Role, Turn
from kafka2011.broker.replication.copies import Copy, Row
from kafka2011.broker.replication.effects import (
    Close,
    Connect,
    CutLogs,
    Damaged,
    Known,
    LosesConfirmed,
    Retire,
    Send,
    Write,
)
from kafka2011.broker.replication.events import Refused, Unanswered, Written
from kafka2011.broker.replication.frames import (
    Ack,
    Data,
    Frame,
    Hello,
    Mark,
    Offsets,
    Plan,
    Ready,
    Start,
    Table,
    Verdict,
    Welcome,
)
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.broker.replication.set_state import Directory

# A log that ends before any other begins: the plan for it is to begin anew.
NOTHING_HERE = Row(0, -1, ())

# A leader that keeps answering so does not lead: it counts as silent.
_NOT_LEADING = (Verdict.NOT_LEADER, Verdict.NOT_READY)


class Stage(Enum):
    APART = auto()  # no link
    GREETING = auto()
    FLUSHING = auto()
    PLANNING = auto()
    CUTTING = auto()
    JOURNALLING = auto()
    JOINED = auto()


class Follower(Role):
    """The role of a replica that copies a leader, has none, or must not lead."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stage = Stage.APART
        self.leader: Directory | None = None
        self.link: int | None = None
        self._journal = 0
        self._steps: dict[str, Step] = {}
        self._is_extending = False  # has joined, and makes new partitions
        self._mark = 0  # the last one before which everything is flushed
        self._is_mark_held = False  # until it is durable that this copy is whole
        self._next_mark: tuple[int, dict[str, int]] | None = None
        # Watermarks above what is flushed here: the leader sends each only once.
        self._unreached: dict[str, int] = {}

        self._heard_ms = self._stirred_ms = context.now_ms  # of the leader; on the link
        self._leader_flush_age_ms = 0
        self._refused_since_ms: int | None = None
        self._no_session_since_ms: int | None = None
        self._leaves_until_ms = 0  # the leader is given time to go on without this copy

    def begin(self) -> None:
        self.context.look_first()

    def end(self) -> None:
        self._drop_link()

    # --- the state -----------------------------------------------------------------------------

    def state_read(self) -> None:
        context, state = self.context, self.context.state
        assert state is not None
        if state.leader != self.leader:
            self._drop_link()
            self.leader = state.leader
            self._heard_ms = context.now_ms
            self._leader_flush_age_ms = 0
            self._refused_since_ms = self._no_session_since_ms = None
        if context.stepped_back_in is not None and state.epoch > context.stepped_back_in:
            context.rests_until_ms = 0  # another has led since: this one may lead again
            context.stepped_back_in = None
        if self.leader is None or self.leader in context.live:
            self._no_session_since_ms = None
        elif self._no_session_since_ms is None:
            self._no_session_since_ms = context.now_ms

    def act(self) -> None:
        context, state = self.context, self.context.state
        if state is None or context.is_stale:
            return
        if self._should_take_over():
            context.turn = Turn.CANVASS
        elif state.leader == context.directory and not context.may_lead:
            context.write(self, context.version, set_state.resigned(state))
        elif state.first == context.name:
            founded = set_state.founded(state, context.directory)
            context.write(self, context.version, founded)
        elif not state.is_member(context.directory) and self._has_place():
            entered = set_state.entered(state, context.name, context.directory)
            context.write(self, context.version, entered)

    def _has_place(self) -> bool:
        """Whether the member of this name exists and no other process has it: two with one name
        would enter themselves in turn, for ever."""
        context, state = self.context, self.context.state
        assert state is not None
        entered = state.entered_for(context.name)
        return entered is not None and entered not in context.live

    def answered(self, answer: Written | Refused | Unanswered) -> None:
        del answer  # whatever it is, the next reading shows what stands
        self.context.look_first()

    # --- taking over ---------------------------------------------------------------------------

    def _should_take_over(self) -> bool:
        context, state = self.context, self.context.state
        assert state is not None
        if state.epoch < context.accepted or self._is_changing_logs:
            return False
        return context.may_lead and self._is_entitled() and self._leader_is_gone()

    def _is_entitled(self) -> bool:
        """Whether the state lets this replica lead. An eligible member lets in-sync ones go first,
        which may have more that is unconfirmed; but not for ever: a live one may be damaged."""
        context, state = self.context, self.context.state
        assert state is not None
        if context.directory in state.isr:
            return True
        has_waited = context.now_ms - self._heard_ms >= context.timing.silence_ms
        are_gone = not state.isr & context.live
        return context.directory in state.eligible and (are_gone or has_waited)

    def _leader_is_gone(self) -> bool:
        """Whether the leader seems gone: a wrong answer costs a takeover, never data.

        A replica that finds itself the leader of an epoch that it does not lead claims the next
        one: it was restarted, or the answer to its write was lost, and within an epoch one process
        appends without a break.
        """
        context, timing = self.context, self.context.timing
        if self.leader is None or self.leader == context.directory:
            return True
        now_ms = context.now_ms
        silent_ms = now_ms - self._heard_ms

        def is_past(since_ms: int | None, patience_ms: int) -> bool:
            return since_ms is not None and now_ms - since_ms >= patience_ms

        return (
            (self._no_session_since_ms is not None and silent_ms >= timing.refused_ms)
            or is_past(self._no_session_since_ms, timing.session_ms)
            or is_past(self._refused_since_ms, timing.refused_ms)
            or silent_ms >= timing.silence_ms
            or self._leader_flush_age_ms >= timing.silence_ms
        )

    @property
    def _is_changing_logs(self) -> bool:
        return self._is_extending or self.stage in (Stage.CUTTING, Stage.JOURNALLING)

    # --- the link ------------------------------------------------------------------------------

    def tick(self) -> None:
        context = self.context
        if context.now_ms < context.no_room_until_ms:
            self._heard_ms = context.now_ms  # without a link, silence says nothing of the leader
        is_quiet = context.now_ms - self._stirred_ms >= context.timing.reconnect_ms
        if is_quiet and self.stage is not Stage.FLUSHING:
            self._drop_link()
        self._connect()

    def _connect(self) -> None:
        context = self.context
        if self.link is not None or self.stage is not Stage.APART or self._is_extending:
            return
        if context.now_ms < context.no_room_until_ms:
            return
        if context.failed or self.leader is None or self.leader == context.directory:
            return
        if context.damage_journal or (self._is_in_sync and context.now_ms < self._leaves_until_ms):
            return
        self.link = context.new_link()
        self._stirred_ms = context.now_ms
        self.stage = Stage.GREETING
        context.effects.append(Connect(self.link, self.leader))

    def _drop_link(self) -> None:
        if self.link is not None:
            self.context.effects.append(Close(self.link))
        self._forget_link()

    def _forget_link(self) -> None:
        self.link = None
        self._mark, self._next_mark = 0, None
        self._is_mark_held = False
        self._unreached.clear()
        if self.stage not in (Stage.CUTTING, Stage.JOURNALLING):
            self.stage = Stage.APART

    def connected(self, link: int) -> None:
        if link == self.link:
            context = self.context
            self._refused_since_ms = None
            context.effects.append(Send(link, Hello(context.directory, context.accepted)))

    def closed(self, link: int, refused: bool) -> None:
        if link != self.link:
            return
        if not refused:
            self._refused_since_ms = None
        elif self._refused_since_ms is None:
            self._refused_since_ms = self.context.now_ms
        self._forget_link()

    def log_failed(self) -> None:
        self._drop_link()

    def no_room(self) -> None:
        """Drop the link: this copy soon leaves the in-sync set, so no confirmation waits for it."""
        self._drop_link()

    def received(self, link: int, frame: Frame) -> None:
        if link != self.link:
            if isinstance(frame, Hello):  # the caller takes this replica for the leader
                welcome = Welcome(Verdict.NOT_LEADER, self.context.accepted)
                self.context.effects.append(Send(link, welcome))
            self.context.effects.append(Close(link))
            return
        self._stirred_ms = self.context.now_ms
        if not (isinstance(frame, Welcome) and frame.verdict in _NOT_LEADING):
            self._heard_ms = self.context.now_ms
        match frame:
            case Data() if self.stage is Stage.JOINED:
                self._take_data(frame)
            case Mark() if self.stage is Stage.JOINED:
                self._take_mark(frame)
            case Start(starts) if self.stage is Stage.JOINED:
                self._take_starts(starts)
            case Welcome() if self.stage is Stage.GREETING:
                self._welcomed(frame)
            case Plan(steps) if self.stage is Stage.PLANNING:
                self._carry_out(dict(steps))
            case Plan(steps) if self.stage is Stage.JOINED and not self._is_extending:
                self._steps = dict(steps)
                self._is_extending = True
                self.context.effects.append(CutLogs(self._steps))
            case _:
                self._drop_link()

    # --- beginning anew ------------------------------------------------------------------------

    def begin_anew(self) -> None:
        """Have this copy made anew. The link stays closed for a while, so that the leader goes on
        without it: confirmation would otherwise wait until all is copied."""
        context = self.context
        if self._is_changing_logs or not context.whole:
            return
        context.note_damage()
        context.effects.append(Damaged("an operator asked for it to be copied anew"))
        self._leaves_until_ms = context.now_ms + context.timing.lag_max_ms
        self._drop_link()

    @property
    def _is_in_sync(self) -> bool:
        state = self.context.state
        return state is not None and self.context.directory in state.isr

    # --- joining -------------------------------------------------------------------------------

    def _welcomed(self, welcome: Welcome) -> None:
        context = self.context
        if welcome.verdict is not Verdict.OK or not self._accepts(welcome.epoch):
            self._drop_link()
            context.look()
            return
        context.accepted = welcome.epoch
        self.stage = Stage.FLUSHING
        self._tell()

    def _accepts(self, epoch: int) -> bool:
        """Whether to follow a leader of `epoch`: of none older than the accepted one, as it may
        have been deposed with the help of this very copy."""
        return epoch >= self.context.accepted

    def journalled(self, number: int) -> None:
        if self._is_mark_held and not self.context.whole_journal:
            self._send_ack(())
        if number < self._journal:
            return
        if self.stage is Stage.JOURNALLING:
            self._settled()
        elif self._is_extending and not self._steps:
            self._is_extending = False
            if self.link is not None:
                self.context.effects.append(Send(self.link, Ready()))
                self._acknowledge(())

    def _tell(self) -> None:
        """Send the table once everything written is flushed."""
        context = self.context
        if self.stage is Stage.FLUSHING and context.is_flushed:
            assert self.link is not None
            self.stage = Stage.PLANNING
            rows = {name: copy.row(copy.flushed) for name, copy in context.copies.items()}
            if not self._is_believed:
                rows = {name: NOTHING_HERE if row.end else row for name, row in rows.items()}
            context.effects.append(Send(self.link, Table(rows)))

    @property
    def _is_believed(self) -> bool:
        """Whether this copy may be kept on joining. If it is not whole, or its directory comes from
        elsewhere, all is fetched anew, and what the leader lacks is set aside. A lineage does not
        show the latter: whatever standalone brokers wrote has epoch 0."""
        return self.context.whole and self.context.has_joined

    def _carry_out(self, steps: dict[str, Step]) -> None:
        for name, step in steps.items():
            copy = self.context.copies.get(name)
            end = 0 if step.action is Action.ASIDE else step.offset
            if copy is not None and end < copy.watermark and self._is_believed:
                self.context.effects.append(LosesConfirmed(name, copy.watermark, end))
        self._steps = steps
        self.stage = Stage.CUTTING
        if all(step.action is Action.KEEP for step in steps.values()):
            self.logs_cut()
        else:
            self.context.effects.append(CutLogs(steps))

    def logs_cut(self) -> None:
        if self.stage is not Stage.CUTTING and not self._is_extending:
            return
        context = self.context
        for name, step in self._steps.items():
            if step.action is Action.ASIDE:
                del context.copies[name]
                continue
            copy = context.copies.setdefault(name, Copy(step.offset, step.offset, 0, 0, ()))
            copy.written = copy.flushed = step.offset
            copy.lineage = step.lineage
            if step.action is Action.ANEW:
                copy.start = copy.watermark = step.offset
            copy.watermark = min(copy.watermark, step.offset)
        self._steps = {}
        if not self._is_extending:
            self.stage = Stage.JOURNALLING
            context.has_joined = True
        self._journal = context.journal()

    def _settled(self) -> None:
        if self.link is None:
            self.stage = Stage.APART
        else:
            self.stage = Stage.JOINED
            self.context.effects.append(Send(self.link, Ready()))

    # --- following -----------------------------------------------------------------------------

    def _take_data(self, data: Data) -> None:
        copy = self.context.copies.get(data.partition)
        if copy is None or data.offset != copy.written:
            self._drop_link()
            return
        copy.written = data.end
        self.context.unflushed_since_ms.setdefault(data.partition, self.context.now_ms)
        self.context.effects.append(Write(data.partition, data.offset, data.end))

    def _take_mark(self, mark: Mark) -> None:
        context = self.context
        self._leader_flush_age_ms = mark.flush_age_ms
        for name, watermark in mark.watermarks.items():
            copy = context.copies.get(name)
            if copy is None:
                self._unreached[name] = watermark  # new: its plan is on its way
                continue
            self._know(name, copy, watermark)
        if self._next_mark is None:
            ends = {name: copy.written for name, copy in context.copies.items()}
            self._next_mark = (mark.number, ends)
            self._acknowledge(())

    def _know(self, name: str, copy: Copy, watermark: int) -> None:
        self._unreached[name] = watermark
        if watermark <= copy.flushed:
            del self._unreached[name]
        known = min(watermark, copy.flushed)
        if known > copy.watermark:
            copy.watermark = known
            self.context.effects.append(Known(name, known))

    def _take_starts(self, starts: Offsets) -> None:
        """Let logs begin where the leader's do, never beyond what is flushed here. What the leader
        has let go was confirmed, though the mark that says so may be on its way."""
        for name, start in starts.items():
            copy = self.context.copies.get(name)
            if copy is None or start <= copy.start:
                continue
            if start > copy.flushed:
                self._drop_link()
                return
            copy.start = start
            copy.watermark = max(copy.watermark, start)
            self.context.effects.append(Retire(name, start))

    def flushed(self, partition: str) -> None:
        if self.stage is Stage.JOINED:
            if partition in self._unreached:
                self._know(partition, self.context.copies[partition], self._unreached[partition])
            self._acknowledge((partition,))
        else:
            self._tell()

    def _acknowledge(self, moved: tuple[str, ...]) -> None:
        """Acknowledge what is flushed, and the mark before which everything is, new partitions
        included whose plan came before it: a follower that cannot make them is behind."""
        copies = self.context.copies
        mark = 0
        if self._next_mark is not None and not self._is_extending:
            number, ends = self._next_mark
            if all(copies[name].flushed >= end for name, end in ends.items()):
                mark, self._next_mark = number, None
        if mark:
            self._mark = mark
            if not self.context.whole:
                self._make_whole()
        if mark or moved:
            self._send_ack(moved)

    def _send_ack(self, moved: tuple[str, ...]) -> None:
        """Send an Ack. The leader counts on a copy from its first mark on, so the mark waits until
        a restart, too, would know that nothing is missing here."""
        assert self.link is not None
        ends = {name: self._acknowledged_end(name) for name in moved}
        self._is_mark_held = self.context.whole_journal != 0
        mark = 0 if self._is_mark_held else self._mark
        self.context.effects.append(Send(self.link, Ack(mark, ends)))

    def _acknowledged_end(self, partition: str) -> int:
        return self.context.copies[partition].flushed

    def _make_whole(self) -> None:
        """Note that this copy is whole: it has all that the leader had when it sent the mark, and
        so all that was confirmed before."""
        self.context.whole = True
        self.context.whole_journal = self.context.journal()
