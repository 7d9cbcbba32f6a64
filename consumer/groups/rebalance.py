"""How one member of a group comes to own its share: a state machine without IO.

`step(state, event)` returns the next state and the actions to carry out, in order; each action is
answered by an event that carries its epoch. `membership` carries out the registry's part,
`stream_assignment` the rest. One attempt is

    read the registry -> stop, commit and release what is not ours any more -> claim what is

and attempts follow until everything wanted is owned and nothing has changed since the reading.

`Unlike 0.7:` what stays ours is not released and claimed again, so that a member that joins does
not interrupt the whole group; other members need do nothing for that, so JVM members of the group
see no difference. It settles because each attempt starts from a fresh reading, releases what that
reading does not give us before it claims anything, and never waits while holding something that
another member wants. Once membership is stable all members compute the same disjoint shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.assignment import Members, assignment_of
from kafka2011.coordination.paths import BrokerPartition

Claims = Mapping[TopicPartition, str]  # partition -> thread id
Partitions = Mapping[str, tuple[BrokerPartition, ...]]


# What a member waits for until it is SETTLED, for its /healthz.
SHARE = "its share of the partitions; a group rebalances when a broker or a member has come or gone"


class Phase(Enum):
    OUTSIDE = auto()  # no session, or not started
    REGISTERING = auto()
    READING = auto()
    RELEASING = auto()
    CLAIMING = auto()
    WAITING = auto()  # a pause before the next attempt
    SETTLED = auto()
    LEAVING = auto()
    LEFT = auto()


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The member starts taking part, for the first time or in a new session."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A watch fired, or the reading may be out of date for another reason."""


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is gone, and with it registration and ownership."""


@dataclass(frozen=True, slots=True)
class Left:
    """The application has closed the consumer."""


@dataclass(frozen=True, slots=True)
class Disowned:
    """These partitions' owner nodes turned out not to be ours: removed, or another member's."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Registered:
    epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """What the registry holds: each member's streams per topic, and the topics' partitions."""

    epoch: int
    members: Members
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Released:
    """None of these is delivered any more, and none of their owner nodes is ours."""

    epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claims are made: `granted` are owned and delivered; others hold the rest at present."""

    epoch: int
    granted: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Deregistered:
    """Our registration node is deleted."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The registry was closed, and every node of ours went with its session."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The action could not be completed; what it did so far stands.

    `granted` are claims that succeeded before the failure.
    """

    epoch: int
    granted: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Waited:
    epoch: int


Event = (
    Joined
    | Changed
    | SessionEnded
    | Left
    | Disowned
    | Registered
    | Read
    | Released
    | Claimed
    | Deregistered
    | Closed
    | Failed
    | Waited
)

# --- actions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Create the registration node. Answer: Registered or Failed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ReadRegistry:
    """Set watches, then read. Answer: Read or Failed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """Stop delivering, commit what was processed, delete the owner nodes. A node that is not ours
    (any more) is left alone. Answer: Released or Failed."""

    epoch: int
    claims: Claims


@dataclass(frozen=True, slots=True)
class Claim:
    """Create the owner nodes and start delivering from the stored offsets, read after the node was
    created: the previous owner has committed by then. Answer: Claimed or Failed."""

    epoch: int
    claims: Claims


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause, longer with each attempt, and randomly shortened. Answer: Waited."""

    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop delivering everything at once, without commits: it is not ours any more. No answer."""


@dataclass(frozen=True, slots=True)
class Deregister:
    """Delete the registration node. Answer: Deregistered or Failed."""

    epoch: int


Action = Register | ReadRegistry | Release | Claim | Wait | Abandon | Deregister


# --- the machine ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """One member's view. `owned` is what it delivers; `doubtful` are owner nodes that may be ours
    without being delivered, after an action that failed half way. `changed` says that something
    happened since the last reading began. `epoch` numbers the sessions."""

    consumer_id: str
    phase: Phase = Phase.OUTSIDE
    epoch: int = 0
    owned: Claims = field(default_factory=dict)
    doubtful: Claims = field(default_factory=dict)
    wanted: Claims = field(default_factory=dict)
    changed: bool = False
    registered: bool = False
    attempt: int = 0


Step = tuple[State, list[Action]]


def step(state: State, event: Event) -> Step:
    """The next state, and the actions to carry out, in order."""
    if state.phase is Phase.LEFT:
        return state, []
    match event:
        case SessionEnded():
            return _lose_session(state)
        case Left():
            return _leave(state)
        case Joined():
            if state.phase is not Phase.OUTSIDE:
                return state, []
            return _register(replace(state, attempt=0))
        case Changed():
            return _look_again(state)
        case Closed():
            return (replace(state, phase=Phase.LEFT), []) if leaves(state) else (state, [])
        case Disowned(gone):
            lost = {name: thread for name, thread in state.owned.items() if name in gone}
            return _look_again(_doubt(state, lost)) if lost else (state, [])
    if event.epoch != state.epoch or state.phase is Phase.OUTSIDE:
        return state, []  # the answer to an action of a session that is gone
    match event:
        case Registered():
            return _read(replace(state, registered=True))
        case Read(_, members, partitions):
            return _compare(state, members, partitions)
        case Released(_, released):
            doubtful = {
                name: thread for name, thread in state.doubtful.items() if name not in released
            }
            return _after_release(replace(state, doubtful=doubtful))
        case Deregistered():
            return (replace(state, phase=Phase.LEFT), []) if leaves(state) else (state, [])
        case Claimed(_, granted):
            return _after_claim(_grant(state, granted))
        case Failed(_, granted):
            return _after_failure(state, granted)
        case Waited():
            if leaves(state):
                return state, [Release(state.epoch, state.doubtful)]
            return _try(state) if state.phase is Phase.WAITING else (state, [])
    raise AssertionError(f"no such event: {event!r}")


def leaves(state: State) -> bool:
    """Whether the application has closed the consumer, and some of its nodes may be left."""
    return state.phase is Phase.LEAVING


def _lose_session(state: State) -> Step:
    if leaves(state):
        return replace(state, owned={}), [Abandon()]
    # The event may come when the next session is already in use, and nodes made in that one must
    # not be forgotten. So everything that may be ours is checked again.
    outside = State(state.consumer_id, epoch=state.epoch + 1, doubtful=_held(state))
    return outside, [Abandon()]


def _held(state: State) -> Claims:
    """Every claim whose node may be ours. Doubtful claims are released before anything is claimed,
    so their thread is the right one where several name the same partition."""
    return {**state.wanted, **state.owned, **state.doubtful}


def _leave(state: State) -> Step:
    if leaves(state):
        return state, []
    held = _held(state)
    left = replace(
        state, phase=Phase.LEAVING, owned={}, doubtful=held, epoch=state.epoch + 1, attempt=0
    )
    return left, [Release(left.epoch, held)]


def _look_again(state: State) -> Step:
    if state.phase in (Phase.SETTLED, Phase.WAITING):
        return _try(state)
    return replace(state, changed=True), []


def _try(state: State) -> Step:
    """Begin an attempt: register first if that is missing."""
    return _read(state) if state.registered else _register(state)


def _register(state: State) -> Step:
    state = replace(state, phase=Phase.REGISTERING)
    return state, [Register(state.epoch)]


def _read(state: State) -> Step:
    state = replace(state, phase=Phase.READING, changed=False)
    return state, [ReadRegistry(state.epoch)]


def _compare(state: State, members: Members, partitions: Partitions) -> Step:
    if state.phase is not Phase.READING:
        return state, []
    if state.consumer_id not in members:
        # The group's nodes were deleted, maybe with our owner nodes: claim everything anew.
        state = replace(_doubt(state, state.owned), registered=False, wanted={})
    else:
        wanted = assignment_of(state.consumer_id, members, partitions)
        state = replace(state, wanted=wanted)
        unwanted = {
            name: thread for name, thread in state.owned.items() if wanted.get(name) != thread
        }
        state = _doubt(state, unwanted)
    return _after_release(state)


def _after_release(state: State) -> Step:
    if leaves(state):
        return state, [Deregister(state.epoch)]
    if state.doubtful:
        state = replace(state, phase=Phase.RELEASING)
        return state, [Release(state.epoch, state.doubtful)]
    if not state.registered:
        return _register(state)
    missing = {
        name: thread for name, thread in state.wanted.items() if state.owned.get(name) != thread
    }
    if not missing:
        return _settle(state)
    state = replace(state, phase=Phase.CLAIMING)
    return state, [Claim(state.epoch, missing)]


def _after_claim(state: State) -> Step:
    if state.phase is not Phase.CLAIMING:
        return state, []
    if all(state.owned.get(name) == thread for name, thread in state.wanted.items()):
        return _settle(state)
    if state.changed:
        return _read(state)
    return _pause(state)


def _settle(state: State) -> Step:
    if state.changed:
        return _read(state)
    return replace(state, phase=Phase.SETTLED, attempt=0), []


def _pause(state: State) -> Step:
    state = replace(state, phase=Phase.WAITING, attempt=state.attempt + 1)
    return state, [Wait(state.epoch, state.attempt)]


def _after_failure(state: State, granted: frozenset[TopicPartition]) -> Step:
    if leaves(state):
        # Tried until it succeeds or the registry is closed: a session that lives on, because the
        # application uses it for more than this member, would keep the nodes.
        state = replace(state, attempt=state.attempt + 1)
        return state, [Wait(state.epoch, state.attempt)]
    if state.phase is Phase.CLAIMING:
        state = _grant(state, granted)
        state = _doubt(
            state,
            {name: thread for name, thread in state.wanted.items() if name not in state.owned},
        )
    if state.phase is Phase.REGISTERING:
        state = replace(state, registered=False)
    return _pause(state)


def _grant(state: State, granted: frozenset[TopicPartition]) -> State:
    won = {name: thread for name, thread in state.wanted.items() if name in granted}
    return replace(state, owned={**state.owned, **won})


def _doubt(state: State, claims: Claims) -> State:
    """Move claims from owned to doubtful: they must be released before anything else."""
    kept = {name: thread for name, thread in state.owned.items() if name not in claims}
    return replace(state, owned=kept, doubtful={**state.doubtful, **claims})
