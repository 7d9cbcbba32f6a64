"""One replica as a state machine: `step(now_ms, event)` returns what is to be done, in order.

    FOLLOWER ──► CANDIDATE ──► LEADER        a leader that is deposed, or steps back,
        ▲            │            │          is a follower again
        └────────────┴────────────┘

What a role knows goes with it: acknowledgements, links and marks of one leadership cannot turn up
in the next. What outlives a role is in the context; what outlives the process is in the journal
and the logs, whose contents the constructor is given.

The machine is not thread-safe. The same events give the same effects, always.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.broker.replication.candidate import Candidate
from kafka2011.broker.replication.context import Context, Role, Timing, Turn
from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.effects import Damaged, Effect
from kafka2011.broker.replication.events import (
    Appended,
    BarrierAsked,
    BeginAnew,
    Canvassed,
    Closed,
    Connected,
    Drained,
    Event,
    Flushed,
    HandOver,
    Journalled,
    LogFailed,
    LogMade,
    LogsCut,
    LookAgain,
    NoRoom,
    Received,
    Refused,
    Retired,
    SessionRenewed,
    StateRead,
    Tick,
    Unanswered,
    Written,
)
from kafka2011.broker.replication.follower import Follower
from kafka2011.broker.replication.leader import Answer, Leader
from kafka2011.broker.replication.set_state import Directory


@dataclass(frozen=True, slots=True)
class Canvassing:
    """A member's answer to a candidate."""

    accepted: int
    ends: Mapping[str, int]
    watermarks: Mapping[str, int]


class Replica:
    """A process that keeps one copy of a broker's partitions."""

    follower: type[Follower] = Follower
    candidate: type[Candidate] = Candidate
    leader: type[Leader] = Leader

    def __init__(
        self,
        name: str,
        directory: Directory,
        copies: Mapping[str, Copy],
        *,
        accepted: int,
        whole: bool = True,
        timing: Timing | None = None,
    ) -> None:
        """`copies` are the logs as recovery left them: all flushed, lineages cut to their ends.
        `accepted` and `whole` are the journal's. A directory that is older than its last run is
        not whole, whatever its journal says."""
        self.context = Context(
            name,
            directory,
            dict(copies),
            accepted=accepted,
            whole=whole,
            timing=timing or Timing(),
        )
        self.role: Role = self.follower(self.context)

    @property
    def leads(self) -> Leader | None:
        """The leadership, from the takeover's write on; None for other roles."""
        return self.role if isinstance(self.role, Leader) else None

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event and return its effects; `now_ms` is of a clock that never goes back."""
        context = self.context
        context.now_ms = now_ms
        context.effects = []
        self._dispatch(event)
        self._turn()
        while not context.is_asking:
            self.role.act()
            if self._turn():
                continue
            if not context.is_asking and context.wants_to_look:
                context.look_now()
            break
        return context.effects

    def _turn(self) -> bool:
        turn = self.context.turn
        if turn is None:
            return False
        while turn is not None:
            self.context.turn = None
            self.role.end()
            if turn is Turn.LEAD:
                self.role = self.leader(self.context)
            elif turn is Turn.CANVASS:
                self.role = self.candidate(self.context)
            else:
                self.role = self.follower(self.context)
            self.role.begin()
            turn = self.context.turn
        return True

    def _dispatch(self, event: Event) -> None:
        role = self.role
        match event:
            case Received(link, frame):
                role.received(link, frame)
            case Flushed(partition, end):
                self._flushed(partition, end)
            case Appended(partition, end):
                self._appended(partition, end)
            case Tick():
                if self.context.now_ms - self.context.read_ms >= self.context.timing.look_ms:
                    self.context.look()
                role.tick()
            case LookAgain(epoch):
                self.context.look()
                role.heard_of(epoch)
            case StateRead() | Written() | Refused() | Unanswered():
                self._answered(event)
            case Journalled(number):
                self.context.journalled(number)
                role.journalled(number)
            case LogsCut():
                role.logs_cut()
            case BarrierAsked():
                role.barrier_asked(event)
            case Connected(link):
                role.connected(link)
            case Closed(link, refused):
                role.closed(link, refused)
            case Canvassed():
                role.canvassed(event)
            case SessionRenewed():
                self.context.look()
                role.session_renewed()
            case HandOver():
                role.hand_over()
            case Drained():
                role.drained()
            case BeginAnew():
                role.begin_anew()
            case LogMade(partition):
                role.log_made(partition)
            case NoRoom(partition, end):
                self._no_room(partition, end)
            case Retired(partition, start):
                self.context.copies[partition].start = start
                role.retired(partition)
            case LogFailed(partition):
                self.context.failed = True
                self.context.effects.append(Damaged(f"a write or flush of {partition} failed"))
                role.log_failed()

    def _answered(self, event: StateRead | Written | Refused | Unanswered) -> None:
        context = self.context
        if event.request != context.request or not context.is_asking:
            return
        asker, context.asker = context.asker, None
        context.is_asking = False
        if isinstance(event, StateRead):
            self._read(event)
        elif asker is self.role:
            self.role.answered(event)
        else:
            context.look_first()

    def _read(self, event: StateRead) -> None:
        """Take a reading, unless it is older than what is known (ZooKeeper's servers may lag), or
        its epoch is below the accepted one (a restored ZooKeeper may show that)."""
        context = self.context
        context.read_ms = context.now_ms
        if event.version < context.version or event.state.epoch < context.accepted:
            context.pass_over(event.state.epoch, event.version)
            return
        context.take_notice()
        context.version, context.state, context.live = event.version, event.state, event.live
        context.is_stale = False
        self.role.state_read()

    def _appended(self, partition: str, end: int) -> None:
        copy = self.context.copies[partition]
        copy.written = end
        self.context.unflushed_since_ms.setdefault(partition, self.context.now_ms)
        self.role.appended(partition)

    def _flushed(self, partition: str, end: int) -> None:
        copy = self.context.copies[partition]
        copy.flushed = end
        if end == copy.written:
            self.context.unflushed_since_ms.pop(partition, None)
        else:
            self.context.unflushed_since_ms[partition] = self.context.now_ms
        self.role.flushed(partition)

    def _no_room(self, partition: str, end: int) -> None:
        """Take back what was counted as written from `end` on."""
        copy = self.context.copies.get(partition)
        if copy is not None:
            copy.written = max(copy.flushed, min(copy.written, end))
            if copy.written == copy.flushed:
                self.context.unflushed_since_ms.pop(partition, None)
        self.context.wait_for_room()
        self.role.no_room()

    # --- questions: they change nothing --------------------------------------------------------

    def canvassed(self) -> Canvassing | None:
        """The answer to a candidate, which then waits for this replica once it leads; None when
        this copy must not be counted on, or its disk hangs."""
        context = self.context
        if not context.is_whole or context.failed or context.disk_hangs:
            return None
        copies = context.copies.items()
        return Canvassing(
            context.accepted,
            {name: copy.flushed for name, copy in copies},
            {name: copy.watermark for name, copy in copies},
        )

    def fetch(self, partition: str, offset: int) -> Answer:
        """How a fetch from `offset` on is answered."""
        leader = self.leads
        return leader.fetch(partition, offset) if leader else Answer.CLOSED

    def latest(self, partition: str) -> int | None:
        """The end that readers are shown; None while it is unknown, or another replica leads."""
        leader = self.leads
        return leader.latest(partition) if leader else None

    def retirable(self, partition: str) -> int | None:
        """Up to where a leader's log may lose its oldest messages; None: none now."""
        leader = self.leads
        return leader.retirable(partition) if leader else None

    @property
    def unconfirmed_bytes(self) -> int:
        """The bytes of a leader that its set is too small to confirm; 0 while it can confirm."""
        leader = self.leads
        if leader is None or leader.known.can_confirm:
            return 0
        return sum(copy.written - copy.watermark for copy in self.context.copies.values())

    @property
    def takes_produces(self) -> bool:
        leader = self.leads
        return leader is not None and leader.takes_produces
