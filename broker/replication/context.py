"""What the roles of a replica share: its copies, what it has read of the state, and what is to be
done. At most one request to the registry is under way at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.effects import (
    Close,
    Effect,
    Journal,
    ReadState,
    StateOlder,
    WriteState,
)
from kafka2011.broker.replication.events import (
    BarrierAsked,
    Canvassed,
    Refused,
    Unanswered,
    Written,
)
from kafka2011.broker.replication.frames import Frame
from kafka2011.broker.replication.set_state import Directory, SetState


@dataclass(frozen=True, slots=True)
class Timing:
    """Time limits, in milliseconds. No value can lose data: a short one costs a takeover."""

    look_ms: int = 1_000  # between readings of the state
    mark_ms: int = 250
    # A leader waits this long for a member that is behind, and for its own flush, ...
    lag_max_ms: int = 10_000
    # ... which is less than followers wait for a silent leader: when the link between two healthy
    # replicas breaks, the leader wins.
    silence_ms: int = 15_000
    gone_ms: int = 2_000  # a member whose link broke
    reconnect_ms: int = 5_000  # a link on which nothing comes
    refused_ms: int = 1_000  # a leader whose port refuses
    session_ms: int = 6_000  # a leader without a session, although its frames arrive
    canvass_ms: int = 1_000
    # Between the end of the old address in ZooKeeper and the new one. 0.7.2's producer compares
    # sets of ids: if an id goes and returns between two looks, its dead address stays for ever.
    gap_ms: int = 2_000
    handover_ms: int = 5_000
    rest_ms: int = 10_000  # after a leader has stepped back by itself, before it leads again
    # A follower whose disk is full tries again after `room_ms`, then after twice as long each time.
    room_ms: int = 1_000
    room_max_ms: int = 30_000


class Turn(Enum):
    """The change of role that a step ends with."""

    FOLLOW = auto()
    CANVASS = auto()
    LEAD = auto()


class Context:
    """One replica's memory that outlives its roles."""

    def __init__(
        self,
        name: str,
        directory: Directory,
        copies: dict[str, Copy],
        *,
        accepted: int,
        whole: bool,
        timing: Timing,
    ) -> None:
        self.name = name
        self.directory = directory
        self.copies = copies
        self.accepted = accepted
        self.whole = whole
        # False for a new directory: its data come from no leader of this set, until it leads.
        self.has_joined = accepted > 0
        self.timing = timing

        self.now_ms = 0
        self.effects: list[Effect] = []
        self.turn: Turn | None = None
        self.failed = False  # whether a log failed in this run
        self.rests_until_ms = 0
        self.no_room_until_ms = 0  # when to try again
        self._room_wait_ms = 0
        self.stepped_back_in: int | None = None  # the epoch; until another has taken over
        self.unflushed_since_ms: dict[str, int] = {}
        self._unjournalled_since_ms: dict[int, int] = {}  # by the number of the write

        # The newest reading of the state.
        self.version = -1
        self.state: SetState | None = None
        self.live: frozenset[Directory] = frozenset()
        self.read_ms = 0

        self.request = 0
        self.is_asking = False
        self.asker: object = None
        self.must_look = True
        self.is_stale = True
        self._older_since_ms: int | None = None  # all readings since then were passed over
        self._has_told_older = False
        self.journal_number = 0
        self.damage_journal = 0  # the write that says this copy is not whole; 0 once durable
        self.whole_journal = 0  # the same for the write that says it is whole again
        self.links = 0

    # --- the registry --------------------------------------------------------------------------

    def ask(self, asker: object, make: Callable[[int], Effect]) -> None:
        """Begin a request; the answer goes to `asker` if that is still the role."""
        assert not self.is_asking
        self.request += 1
        self.is_asking = True
        self.asker = asker
        self.effects.append(make(self.request))

    def look(self) -> None:
        """Read the state when nothing else is to be asked."""
        self.must_look = True

    def look_first(self) -> None:
        """Read the state before anything else is asked: a write over the known version would fail,
        or would not settle what it has to."""
        self.is_stale = True

    @property
    def wants_to_look(self) -> bool:
        """Whether to read the state now. After a reading that was passed over the next one, which
        will be older as well, waits for its time, or for a change."""
        return self.must_look or (self.is_stale and self._older_since_ms is None)

    def pass_over(self, epoch: int, version: int) -> None:
        """Take no notice of a reading that is older than what is known; say so once it is no server
        of ZooKeeper that lags."""
        if self._older_since_ms is None:
            self._older_since_ms = self.now_ms
        lasts_ms = self.now_ms - self._older_since_ms
        if lasts_ms >= self.timing.silence_ms and not self._has_told_older:
            self._has_told_older = True
            known = self.state.epoch if self.state is not None else 0
            newest = max(known, self.accepted), max(self.version, 0)
            self.effects.append(StateOlder((epoch, version), newest))

    def take_notice(self) -> None:
        """Note that a reading was not passed over."""
        self._older_since_ms = None
        self._has_told_older = False

    def look_now(self) -> None:
        self.must_look = False
        self.ask(None, ReadState)

    def write(self, asker: object, version: int, state: SetState) -> None:
        self.ask(asker, lambda request: WriteState(request, version, state))

    def new_link(self) -> int:
        """A number for a link that this replica asks for: below 0, used once."""
        self.links -= 1
        return self.links

    # --- disk ----------------------------------------------------------------------------------

    def wait_for_room(self) -> None:
        """Have nothing more copied here for a while, twice as long each time in a row."""
        timing = self.timing
        if self.now_ms >= self.no_room_until_ms + timing.room_max_ms:
            self._room_wait_ms = 0
        if self.now_ms >= self.no_room_until_ms:
            self._room_wait_ms = min(
                max(timing.room_ms, 2 * self._room_wait_ms), timing.room_max_ms
            )
            self.no_room_until_ms = self.now_ms + self._room_wait_ms

    def journal(self) -> int:
        """Write what must survive a restart; return the number of the Journalled to wait for."""
        self.journal_number += 1
        lineages = {name: copy.lineage for name, copy in self.copies.items()}
        self.effects.append(Journal(self.journal_number, self.accepted, lineages, self.whole))
        self._unjournalled_since_ms[self.journal_number] = self.now_ms
        return self.journal_number

    def journalled(self, number: int) -> None:
        """Note that the write `number`, and so every earlier one, is durable."""
        for done in [write for write in self._unjournalled_since_ms if write <= number]:
            del self._unjournalled_since_ms[done]
        if number >= self.damage_journal:
            self.damage_journal = 0
        if number >= self.whole_journal:
            self.whole_journal = 0

    def note_damage(self) -> None:
        """Note that this copy must not be counted on, durably before any of it goes: a restart in
        between would take what is left for everything."""
        self.whole = False
        self.whole_journal = 0
        self.damage_journal = self.journal()

    @property
    def is_flushed(self) -> bool:
        return all(copy.flushed == copy.written for copy in self.copies.values())

    @property
    def flush_age_ms(self) -> int:
        """How long the oldest unfinished flush has been under way; 0 when there is none."""
        return self.now_ms - min(self.unflushed_since_ms.values(), default=self.now_ms)

    @property
    def disk_hangs(self) -> bool:
        """Whether a flush or a journal has been under way for longer than a leader waits for it."""
        now_ms = self.now_ms
        journal_age_ms = now_ms - min(self._unjournalled_since_ms.values(), default=now_ms)
        return max(self.flush_age_ms, journal_age_ms) > self.timing.lag_max_ms

    @property
    def is_whole(self) -> bool:
        """Whether this copy may be counted on, even after a restart."""
        return self.whole and not self.whole_journal

    @property
    def may_lead(self) -> bool:
        """Whether this replica is able to lead, the state aside."""
        return (
            self.is_whole
            and not self.failed
            and self.now_ms >= self.rests_until_ms
            and not self.disk_hangs
        )


class Role:
    """The calls that every role gets; a role ignores what it does not wait for."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def tick(self) -> None: ...

    def state_read(self) -> None:
        """Called when the context has a reading that is not older than the last one."""

    def heard_of(self, epoch: int) -> None:
        """Called when this epoch is known to have, or have had, a leader."""

    def answered(self, answer: Written | Refused | Unanswered) -> None:
        """Called with the answer to this role's request."""

    def act(self) -> None:
        """Called after every event while no request is under way: the place to begin one."""

    def connected(self, link: int) -> None: ...

    def closed(self, link: int, refused: bool) -> None: ...

    def received(self, link: int, frame: Frame) -> None:
        """Close the link: only a follower and a leader have links."""
        del frame
        self.context.effects.append(Close(link))

    def canvassed(self, answer: Canvassed) -> None: ...

    def appended(self, partition: str) -> None: ...

    def flushed(self, partition: str) -> None: ...

    def log_made(self, partition: str) -> None: ...

    def log_failed(self) -> None: ...

    def no_room(self) -> None: ...

    def retired(self, partition: str) -> None: ...

    def journalled(self, number: int) -> None: ...

    def logs_cut(self) -> None: ...

    def barrier_asked(self, asked: BarrierAsked) -> None: ...

    def session_renewed(self) -> None: ...

    def hand_over(self) -> None: ...

    def drained(self) -> None: ...

    def begin_anew(self) -> None:
        """Ignored, except by a follower: what a leader has may exist nowhere else."""
