"""A consumer group in one thread: real rebalance machines, real membership steps, a registry in
memory, a seeded scheduler, and checks after every move.

Between any two requests to the registry anything else may happen: another member moves, a watch
arrives (late), a session expires (before its member notices or later), a request or reply is lost,
members come and go, topics grow, brokers leave and return. Then the faults stop and the group must
settle: every partition delivered by exactly the member that the assignment names, no message ever
skipped. A failing seed replays exactly.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups import rebalance
from kafka2011.consumer.groups.assignment import assignment_of
from kafka2011.consumer.groups.committed_offsets import CommittedOffsets, Steps
from kafka2011.consumer.groups.membership import Membership
from kafka2011.consumer.groups.rebalance import Phase, State
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable, NodeExists
from kafka2011.coordination.paths import BrokerPartition, StaticSubscription, Subscription
from kafka2011.coordination.registry import SessionEvent
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper

GROUP = "g"


class Broken(AssertionError):
    """A promise of the group protocol did not hold; the text carries the history."""


@dataclass
class World:
    """The tree, the members, the topics, and what was processed of each partition."""

    seed: int
    kinds: tuple[type["Member"], ...] = ()
    zookeeper: InMemoryZooKeeper = field(default_factory=InMemoryZooKeeper)
    members: list["Member"] = field(default_factory=list)
    processed: dict[TopicPartition, int] = field(default_factory=dict)
    history: deque[str] = field(default_factory=lambda: deque(maxlen=400))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.kinds = self.kinds or (Member,)
        self.admin = self.zookeeper.client()
        self.admin.start()
        self._made = 0
        # An operator who deletes owner nodes under living owners breaks "one owner" until they
        # notice; from then on only settling and "nothing skipped" are promised.
        self.nodes_were_removed = False

    def note(self, text: str) -> None:
        self.history.append(text)

    def fail(self, text: str) -> None:
        lines = "\n".join(self.history)
        raise Broken(f"seed {self.seed}: {text}\nnodes: {self.zookeeper.paths()}\n{lines}")

    def set_topic(self, topic: str, counts: Mapping[int, int]) -> None:
        """Register brokers of a topic (broker id -> partitions); absent ones are taken away."""
        self.note(f"topic {topic}: {dict(counts)}")
        for name in self.admin.children(paths.topic_path(topic)):
            self.admin.delete(f"{paths.topic_path(topic)}/{name}")
        for broker_id, count in counts.items():
            self.admin.put(paths.topic_broker_path(topic, broker_id), paths.encode_number(count))

    def add_member(self, subscription: Subscription) -> "Member":
        self._made += 1
        kind = self.random.choice(self.kinds)
        # Ids whose order as text is not their order of joining.
        member = kind(self, f"{GROUP}_h{self.random.randrange(100)}-{self._made}", subscription)
        self.members.append(member)
        return member

    def topic_names(self) -> list[str]:
        return self.admin.children(paths.BROKER_TOPICS)

    def live(self) -> list["Member"]:
        return [member for member in self.members if not member.dead]

    def expected(self) -> dict[str, dict[TopicPartition, str]]:
        """What each live member should own, computed from the truth."""
        topics = self.topic_names()
        streams = {}
        for member in self.live():
            subscription = member.subscription
            if isinstance(subscription, StaticSubscription):
                streams[member.consumer_id] = dict(subscription.streams)
            else:
                streams[member.consumer_id] = dict.fromkeys(topics, subscription.stream_count)
        partitions = {topic: self.partitions(topic) for topic in topics}
        return {
            consumer_id: assignment_of(consumer_id, streams, partitions) for consumer_id in streams
        }

    def partitions(self, topic: str) -> list[BrokerPartition]:
        found = []
        for name in self.admin.children(paths.topic_path(topic)):
            stored = self.admin.get(f"{paths.topic_path(topic)}/{name}")
            assert stored is not None
            found += [BrokerPartition(int(name), n) for n in range(int(stored.value or b"0"))]
        return found


class Member:
    """One consumer: the machine, its membership, a pretended delivery, one queue of events."""

    def __init__(self, world: World, consumer_id: str, subscription: Subscription) -> None:
        self.world = world
        self.consumer_id = consumer_id
        self.subscription = subscription
        self.registry: InMemoryRegistry = world.zookeeper.client(deliver="by hand")
        self.registry.start()
        self.registry.add_session_listener(self._session_event)
        self.offsets = CommittedOffsets(self.registry, GROUP)
        self.membership = Membership(
            self.registry,
            GROUP,
            consumer_id,
            subscription,
            delivery=self,
            offsets=self.offsets,
            changed=lambda: self.events.append(rebalance.Changed()),
        )
        self.state = State(consumer_id)
        self.events: deque[rebalance.Event] = deque([rebalance.Joined()])
        self.actions: deque[rebalance.Action] = deque()
        self.steps: Steps[rebalance.Event | None] | None = None
        self.waiting_epoch: int | None = None
        self.dead = False
        self.delivering: dict[TopicPartition, str] = {}
        self.position: dict[TopicPartition, int] = {}  # next offset to commit

    # --- the pretended delivery ------------------------------------------------------------------

    def start(self, name: TopicPartition, thread: str, stored: int | None) -> None:
        world = self.world
        world.note(f"{self.consumer_id} delivers {name} from {stored}")
        if (stored or 0) > world.processed.get(name, 0):
            world.fail(f"{name} starts at {stored}, processed to {world.processed.get(name, 0)}")
        for other in world.members:
            if other is self or name not in other.delivering or world.nodes_were_removed:
                continue
            if self.session_lives and other.session_lives:
                world.fail(f"{name} is delivered by {self.consumer_id} and {other.consumer_id}")
        self.delivering[name] = thread
        self.position[name] = stored or 0

    def halt(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        positions = {}
        for name in names:
            if self.delivering.pop(name, None) is not None:
                positions[name] = self.position.pop(name)
        return positions

    def halt_all(self) -> None:
        self.delivering.clear()
        self.position.clear()

    @property
    def session_lives(self) -> bool:
        """Whether the server still has the session in which this member claimed."""
        return self.membership.session == self.registry._session

    def process_one(self) -> None:
        """Process the next message of some partition, if the session may live."""
        session = self.membership.session
        if not self.delivering or self.registry.lease_remaining_ms(session) == 0:
            return
        name = self.world.random.choice(sorted(self.delivering))
        start = self.position[name]
        if start > self.world.processed.get(name, 0):
            self.world.fail(f"{self.consumer_id} skips to {start} of {name}")
        self.position[name] = start + 1
        self.world.processed[name] = max(self.world.processed.get(name, 0), start + 1)

    def commit(self) -> None:
        """Begin a commit of one partition, unless the rebalance thread is in the middle of work."""
        if self.steps is None and self.delivering:
            name = self.world.random.choice(sorted(self.delivering))
            self.steps = self._commit_steps(name, self.delivering[name], self.position[name])

    def _commit_steps(
        self, name: TopicPartition, thread: str, offset: int
    ) -> Steps[rebalance.Event | None]:
        try:
            kept = yield from self.offsets.commit(name, thread, offset)
        except CoordinationError:
            return None
        return None if kept else rebalance.Disowned(frozenset([name]))

    # --- the executor, as the connector's rebalance thread ----------------------------------------

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.events.append(rebalance.SessionLost())
        elif event is SessionEvent.RECREATED:
            self.events.append(rebalance.Joined())

    def move(self) -> bool:
        """One step: between two requests, or one event. False when there is nothing to do."""
        if self.steps is not None:
            try:
                next(self.steps)
            except StopIteration as stop:
                self.steps = None
                if stop.value is not None:
                    self.events.append(stop.value)
            return True
        if self.actions:
            self._begin(self.actions.popleft())
            return True
        if self.events:
            event = self.events.popleft()
            self.state, actions = rebalance.step(self.state, event)
            self.world.note(f"{self.consumer_id} {event} -> {self.state.phase.name}")
            self.actions.extend(actions)
            return True
        return False

    def _begin(self, action: rebalance.Action) -> None:
        match action:
            case rebalance.Abandon():
                self.membership.abandon()
            case rebalance.Wait(epoch, _):
                self.waiting_epoch = epoch
            case _:
                self.steps = self._carry_out(action)

    def wait_over(self) -> bool:
        if self.waiting_epoch is None:
            return False
        self.events.append(rebalance.Waited(self.waiting_epoch))
        self.waiting_epoch = None
        return True

    def _carry_out(self, action: rebalance.Action) -> Steps[rebalance.Event | None]:
        try:
            match action:
                case rebalance.Register(epoch):
                    yield from self.membership.register()
                    return rebalance.Registered(epoch)
                case rebalance.ReadRegistry(epoch):
                    view = yield from self.membership.read()
                    return rebalance.Read(epoch, view.members, view.partitions)
                case rebalance.Release(epoch, claims):
                    yield from self.membership.release(claims)
                    return rebalance.Released(epoch, frozenset(claims))
                case rebalance.Claim(epoch, claims):
                    granted, error = yield from self.membership.claim(claims)
                    if error is not None:
                        return rebalance.Failed(epoch, granted)
                    return rebalance.Claimed(epoch, granted)
                case rebalance.Deregister():
                    yield from self.membership.deregister()
                    return None
        except CoordinationUnavailable as error:
            self.world.note(f"{self.consumer_id} {type(action).__name__} failed: {error}")
        except CoordinationError as error:
            self.world.note(f"{self.consumer_id} {type(action).__name__} refused: {error}")
        return rebalance.Failed(getattr(action, "epoch", -1))

    def kill(self) -> None:
        """SIGKILL: nothing more happens here; the server notices when it likes."""
        self.dead = True
        self.halt_all()
        self.registry.suspend()

    def bury(self) -> None:
        self.registry.close()


class OriginalMember(Member):
    """0.7.2's consumer (ZookeeperConsumerConnector): every rebalance commits and releases
    everything, claims everything or nothing, and gives up after four attempts until the next
    trigger. It deletes what it believes to own without looking."""

    ATTEMPTS = 4

    def __init__(self, world: World, consumer_id: str, subscription: Subscription) -> None:
        super().__init__(world, consumer_id, subscription)
        self.events.clear()
        self.triggered = True
        self.leaving = False
        self.work: Steps[None] | None = self._start()

    def move(self) -> bool:
        if self.waiting_epoch is not None:
            return False
        while self.events:  # session events and Left arrive in the queue of our own members
            self.leaving |= isinstance(self.events.popleft(), rebalance.Left)
        if self.work is None and self.leaving and self.state.phase is not Phase.LEFT:
            self.work = self._leave()
        if self.work is None and self.triggered and self.state.phase is not Phase.LEFT:
            self.work = self._rebalance()
        if self.work is None:
            return False
        try:
            next(self.work)
        except StopIteration:
            self.work = None
        return True

    def wait_over(self) -> bool:
        waiting, self.waiting_epoch = self.waiting_epoch, None
        return waiting is not None

    def commit(self) -> None:
        """Only at rebalances: its timer would write without looking, which is not the question."""

    @property
    def session_lives(self) -> bool:
        return True

    def process_one(self) -> None:
        self.membership._session = self.registry.session_id()
        super().process_one()

    def _start(self) -> Steps[None]:
        value = paths.encode_subscription(self.subscription)
        self.registry.create_ephemeral(paths.consumer_id_path(GROUP, self.consumer_id), value)
        yield
        self._watch(paths.consumer_ids_path(GROUP))
        self._watch(paths.BROKER_TOPICS)
        for topic in ("a", "b"):
            self._watch(paths.topic_path(topic))

    def _watch(self, path: str) -> None:
        def fired(_: list[str]) -> None:
            self.triggered = True

        self.registry.watch_children(path, fired)

    def _rebalance(self) -> Steps[None]:
        self.triggered = False
        for _ in range(self.ATTEMPTS):
            if (yield from self._attempt()):
                self.world.note(f"{self.consumer_id} (original) owns {sorted(self.delivering)}")
                self.state = State(
                    self.consumer_id, Phase.SETTLED, owned=dict(self.delivering), registered=True
                )
                return
            self.state = State(self.consumer_id, Phase.WAITING, registered=True)
            self.waiting_epoch = 0
            yield
        self.world.note(f"{self.consumer_id} (original) gives up")

    def _attempt(self) -> Steps[bool]:
        view = yield from self.membership.read()
        yield from self._release()
        wanted = assignment_of(self.consumer_id, view.members, view.partitions)
        made = []
        positions = {name: self.offsets.read(name) for name in sorted(wanted)}
        for name, thread in sorted(wanted.items()):
            path = paths.owner_path(GROUP, name.topic, BrokerPartition(*name[1:]))
            try:
                self.registry.create(path, thread.encode(), ephemeral=True)
            except NodeExists:
                for other in made:
                    self.registry.delete(other)
                    yield
                return False
            made.append(path)
            yield
        for name, thread in sorted(wanted.items()):
            self.start(name, thread, positions[name])
        return True

    def _release(self) -> Steps[None]:
        for name in sorted(self.delivering):
            partition = BrokerPartition(*name[1:])
            path = paths.offset_path(GROUP, name.topic, partition)
            self.registry.put(path, paths.encode_number(self.position[name]))
            yield
            self.halt([name])
            self.registry.delete(paths.owner_path(GROUP, name.topic, partition))
            yield

    def _leave(self) -> Steps[None]:
        yield from self._release()
        self.registry.delete(paths.consumer_id_path(GROUP, self.consumer_id))
        self.state = State(self.consumer_id, Phase.LEFT)


def run_simulation(
    seed: int,
    *,
    subscription_of: Callable[[random.Random], Subscription],
    member_count: int = 3,
    moves: int = 250,
    faults: bool = True,
    kinds: tuple[type[Member], ...] = (Member,),
) -> World:
    """One interleaving; raises Broken. Returns the settled world."""
    world = World(seed, kinds)
    rng = world.random
    topics = ("a", "b")
    for topic in topics:
        world.set_topic(topic, {broker: rng.randint(1, 3) for broker in rng.sample(range(12), 2)})
    for _ in range(member_count):
        world.add_member(subscription_of(rng))
    for _ in range(moves):
        _random_move(world, rng, subscription_of, topics, faults=faults)
    settle(world)
    return world


def _random_move(
    world: World,
    rng: random.Random,
    subscription_of: Callable[[random.Random], Subscription],
    topics: tuple[str, ...],
    *,
    faults: bool,
) -> None:
    live = world.live()
    if not live or (len(live) < 6 and rng.random() < 0.01):
        world.add_member(subscription_of(rng))
        return
    member = rng.choice(live)
    draw = rng.random()
    if draw < 0.60:
        member.move()
    elif draw < 0.72:
        member.registry.deliver_next()
    elif draw < 0.82:
        member.process_one()
    elif draw < 0.88:
        member.commit()
    elif draw < 0.92:
        member.wait_over()
    elif draw < 0.93:
        counts = {broker: rng.randint(1, 3) for broker in rng.sample(range(12), rng.randint(0, 3))}
        world.set_topic(rng.choice(topics), counts)
    elif draw < 0.94:
        member.events.append(rebalance.Left())
        member.dead = False
    elif faults:
        _random_fault(world, member, rng)
    _bury_those_who_left(world)


def _bury_those_who_left(world: World) -> None:
    for member in world.live():
        if member.state.phase is Phase.LEFT and not member.actions and member.steps is None:
            member.dead = True
            member.bury()


def _random_fault(world: World, member: Member, rng: random.Random) -> None:
    fault = rng.choice(
        [
            *("fail", "fail", "lose", "lose", "expire", "expire_late", "expire_in_client"),
            *("suspend", "resume", "kill", "bury", "remove_group", "end_old"),
        ]
    )
    world.note(f"fault {fault}: {member.consumer_id}")
    registry = member.registry
    if fault == "fail":
        registry.fail_next()
    elif fault == "lose":
        registry.lose_next_reply()
    elif fault == "expire":
        registry.expire()
    elif fault == "expire_in_client":
        registry.expire(server_keeps_nodes=True)
    elif fault == "end_old":
        registry.end_old_sessions()
    elif fault == "expire_late":
        registry.suspend()
        registry.end_session_on_server()
    elif fault == "suspend":
        registry.suspend()
    elif fault == "resume" and registry._suspended:
        registry.resume()
    elif fault == "kill" and len(world.live()) > 1:
        member.kill()
    elif fault == "bury":
        for dead in [found for found in world.members if found.dead]:
            dead.bury()
    elif fault == "remove_group" and world.seed % 4 == 0:
        world.nodes_were_removed = True
        world.admin.delete_recursive(paths.group_path(GROUP))


def settle(world: World, moves_max: int = 20_000) -> None:
    """Stop the faults and let all members finish; then check which owns what."""
    world.note("--- faults end ---")
    for member in world.members:
        member.registry._fail = ""
        if member.dead:
            member.bury()
        elif member.registry._suspended:
            member.registry.resume()
        member.registry.end_old_sessions()
    if not world.live():
        return
    for _ in range(moves_max):
        _bury_those_who_left(world)
        live = world.live()
        busy = [member for member in live if member.move() or member.registry.deliver_next()]
        if not busy and not [member for member in live if member.wait_over()]:
            break
    else:
        world.fail(f"not settled after {moves_max} moves")
    _check_settled(world)


def _check_settled(world: World) -> None:
    live = world.live()
    if any(member.move() or member.registry.deliver_next() for member in live):
        settle(world)  # a member that left was news
        return
    expected = world.expected()
    for member in live:
        share = expected[member.consumer_id]
        if member.state.phase is not Phase.SETTLED:
            world.fail(f"{member.consumer_id} is {member.state.phase.name}")
        if dict(member.state.owned) != share:
            world.fail(f"{member.consumer_id} owns {member.state.owned}, expected {share}")
        if member.delivering != share:
            world.fail(f"{member.consumer_id} delivers {member.delivering}, expected {share}")
        for name, thread in share.items():
            path = paths.owner_path(GROUP, name.topic, BrokerPartition(*name[1:]))
            stored = world.admin.get(path)
            if stored is None or stored.value != thread.encode():
                world.fail(f"the owner of {name} is {stored}, expected {thread}")
    owners = [path for path in world.zookeeper.paths() if f"/{GROUP}/owners/" in path]
    leaves = [path for path in owners if path.count("/") == 5]
    if len(leaves) != sum(map(len, expected.values())):
        world.fail(f"owner nodes {leaves}, expected {expected}")
