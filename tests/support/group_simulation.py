"""A consumer group in one thread: real rebalance machines, real membership steps, a registry in
memory, a seeded scheduler, and checks after every move.

Between any two requests to the registry anything else may happen: another member moves, a watch
arrives (late), a session expires (before its member notices or later), a request or reply is lost,
members come and go, topics grow, brokers leave and return. Then the faults stop and the group must
settle: every partition delivered by exactly the member that the assignment names, no message ever
skipped. A failing seed replays exactly.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups import rebalance
from kafka2011.consumer.groups.assignment import assignment_of
from kafka2011.consumer.groups.committed_offsets import CommittedOffsets, Steps
from kafka2011.consumer.groups.membership import Membership
from kafka2011.consumer.groups.rebalance import Phase, State
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import CoordinationError, NodeExists
from kafka2011.coordination.paths import BrokerPartition, StaticSubscription, Subscription
from kafka2011.coordination.registry import SessionEvent
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper

GROUP = "g"
TOPICS = ("a", "b")
SETTLING_MOVES_MAX = 20_000
IDLE = "idle"


class Broken(AssertionError):
    """A promise of the group protocol did not hold; the text carries the history."""


class World:
    """The tree, the members, the topics, and what was processed of each partition."""

    def __init__(
        self,
        seed: int,
        subscription_of: Callable[[random.Random], Subscription],
        kinds: tuple[type["Member"], ...],
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.subscription_of = subscription_of
        self.kinds = kinds
        self.zookeeper = InMemoryZooKeeper()
        self.admin = self.zookeeper.client()
        self.admin.start()
        self.members: list[Member] = []
        self.processed: Counter[TopicPartition] = Counter()
        self.history: deque[str] = deque(maxlen=400)
        # An operator who deletes owner nodes under living owners breaks "one owner" until they
        # notice; from then on only settling and "nothing skipped" are promised.
        self.nodes_were_removed = False

    def note(self, text: str) -> None:
        self.history.append(text)

    def fail(self, text: str) -> None:
        lines = "\n".join(self.history)
        raise Broken(f"seed {self.seed}: {text}\nnodes: {self.zookeeper.paths()}\n{lines}")

    def set_topic(self, topic: str, broker_count: int) -> None:
        """Register random brokers, each with 1 to 3 partitions; others are taken away."""
        brokers = self.random.sample(range(12), broker_count)
        counts = {broker_id: self.random.randint(1, 3) for broker_id in brokers}
        self.note(f"topic {topic}: {counts}")
        for name in self.admin.children(paths.topic_path(topic)):
            self.admin.delete(f"{paths.topic_path(topic)}/{name}")
        for broker_id, count in counts.items():
            self.admin.put(paths.topic_broker_path(topic, broker_id), paths.encode_number(count))

    def add_member(self) -> None:
        subscription = self.subscription_of(self.random)
        kind = self.random.choice(self.kinds)
        # Ids whose order as text is not their order of joining.
        consumer_id = f"{GROUP}_h{self.random.randrange(100)}-{len(self.members) + 1}"
        self.members.append(kind(self, consumer_id, subscription))

    def live(self) -> list["Member"]:
        return [member for member in self.members if not member.dead]

    def bury_those_who_left(self) -> None:
        for member in self.live():
            if member.state.phase is Phase.LEFT and not member.actions and member.steps is None:
                left_behind = self.zookeeper.nodes_of(member.registry)
                if left_behind:
                    self.fail(f"{member.consumer_id} has left, but not {left_behind}")
                member.dead = True
                member.registry.close()

    # --- chance ----------------------------------------------------------------------------------

    def move(self, *, faults: bool) -> None:
        """One member, or the world around it, makes a random move."""
        rng, live = self.random, self.live()
        if not live or (len(live) < 6 and rng.random() < 0.01):
            self.add_member()
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
            self.set_topic(rng.choice(TOPICS), rng.randint(0, 3))
        elif draw < 0.94:
            member.events.append(rebalance.Left())
        elif faults:
            self._fault(member)
        self.bury_those_who_left()

    def _fault(self, member: "Member") -> None:
        registry = member.registry
        faults: dict[str, Callable[[], object]] = {
            "fail": registry.fail_next,
            "lose": registry.lose_next_reply,
            "expire": registry.expire,
            "expire_late": member.expire_late,
            "expire_in_client": lambda: registry.expire(server_keeps_nodes=True),
            "suspend": registry.suspend,
            "bury": self._bury_the_killed,
            "end_old": registry.end_old_sessions,
        }
        if registry.is_suspended:
            faults["resume"] = registry.resume
        if len(self.live()) > 1:
            faults["kill"] = member.kill
        if self.seed % 4 == 0:
            faults["remove_group"] = self._remove_group
        name = self.random.choice([*faults, "fail", "lose"])
        self.note(f"fault {name}: {member.consumer_id}")
        faults[name]()

    def _bury_the_killed(self) -> None:
        for member in self.members:
            if member.dead:
                member.registry.close()

    def _remove_group(self) -> None:
        self.nodes_were_removed = True
        self.admin.delete_recursive(paths.group_path(GROUP))

    # --- the end ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Stop the faults and let all members finish; then check which owns what."""
        self.note("--- faults end ---")
        for member in self.members:
            member.registry.fail_no_more()
            if member.dead:
                member.registry.close()
            elif member.registry.is_suspended:
                member.registry.resume()
            member.registry.end_old_sessions()
        for _ in range(SETTLING_MOVES_MAX):
            self.bury_those_who_left()
            live = self.live()
            busy = [member for member in live if member.move() or member.registry.deliver_next()]
            if not busy and not [member for member in live if member.wait_over()]:
                break
        else:
            self.fail(f"not settled after {SETTLING_MOVES_MAX} moves")
        self._check_settled()

    def _expected(self) -> dict[str, dict[TopicPartition, str]]:
        """What each live member should own, computed from the truth."""
        topics = self.admin.children(paths.BROKER_TOPICS)
        streams = {}
        for member in self.live():
            wanted = member.subscription
            if isinstance(wanted, StaticSubscription):
                streams[member.consumer_id] = dict(wanted.streams)
            else:
                streams[member.consumer_id] = dict.fromkeys(topics, wanted.stream_count)
        partitions = {topic: cluster.partitions_of(self.admin, topic) for topic in topics}
        return {member: assignment_of(member, streams, partitions) for member in streams}

    def _check_settled(self) -> None:
        expected = self._expected()
        for member in self.live():
            share = expected[member.consumer_id]
            found = (member.state.phase, dict(member.state.owned), member.delivering)
            if found != (Phase.SETTLED, share, share):
                self.fail(f"{member.consumer_id}: phase, owned, delivered {found}, not {share}")
        wanted = {
            owner_path(name): thread.encode()
            for share in expected.values()
            for name, thread in share.items()
        }
        owners = {
            path: self.zookeeper.value(path)
            for path in self.zookeeper.paths()
            if path.startswith(f"/consumers/{GROUP}/owners/") and path.count("/") == 5
        }
        if owners != wanted:
            self.fail(f"owner nodes {owners}, expected {wanted}")


def run_simulation(
    seed: int,
    *,
    subscription_of: Callable[[random.Random], Subscription],
    member_count: int = 3,
    moves: int = 250,
    faults: bool = True,
    kinds: tuple[type["Member"], ...] | None = None,
) -> World:
    """One interleaving; raises Broken. Returns the settled world."""
    world = World(seed, subscription_of, kinds or (Member,))
    for topic in TOPICS:
        world.set_topic(topic, 2)
    for _ in range(member_count):
        world.add_member()
    for _ in range(moves):
        world.move(faults=faults)
    world.settle()
    return world


def owner_path(name: TopicPartition) -> str:
    return paths.owner_path(GROUP, name.topic, BrokerPartition(*name[1:]))


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
        if (stored or 0) > world.processed[name]:
            world.fail(f"{name} starts at {stored}, processed to {world.processed[name]}")
        others = [one for one in world.members if one is not self and name in one.delivering]
        owners = [one.consumer_id for one in (self, *others) if one.session_lives]
        if self.session_lives and len(owners) > 1 and not world.nodes_were_removed:
            world.fail(f"{name} is delivered by {owners}")
        self.delivering[name] = thread
        self.position[name] = stored or 0

    def halt(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        halted = [name for name in names if self.delivering.pop(name, None) is not None]
        return {name: self.position.pop(name) for name in halted}

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
        if start > self.world.processed[name]:
            self.world.fail(f"{self.consumer_id} skips to {start} of {name}")
        self.position[name] = start + 1
        self.world.processed[name] = max(self.world.processed[name], start + 1)

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
            self.events.append(rebalance.SessionEnded())
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
        elif self.actions:
            self._begin(self.actions.popleft())
        elif self.events:
            event = self.events.popleft()
            self.state, actions = rebalance.step(self.state, event)
            self.world.note(f"{self.consumer_id} {event} -> {self.state.phase.name}")
            self.actions.extend(actions)
        else:
            return False
        return True

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
                case rebalance.Deregister(epoch):
                    yield from self.membership.deregister()
                    return rebalance.Deregistered(epoch)
        except CoordinationError as error:
            self.world.note(f"{self.consumer_id} {type(action).__name__} failed: {error!r}")
        return rebalance.Failed(getattr(action, "epoch", -1))

    def kill(self) -> None:
        """SIGKILL: nothing more happens here; the server notices when it likes."""
        self.dead = True
        self.halt_all()
        self.registry.suspend()

    def expire_late(self) -> None:
        """The server ends the session; the member notices when it is connected again."""
        self.registry.suspend()
        self.registry.end_session_on_server()


class OriginalMember(Member):
    """0.7.2's consumer (ZookeeperConsumerConnector): every rebalance commits and releases
    everything, claims everything or nothing, and gives up after four attempts until the next
    trigger. It deletes what it believes to own without looking."""

    ATTEMPTS = 4

    def __init__(self, world: World, consumer_id: str, subscription: Subscription) -> None:
        super().__init__(world, consumer_id, subscription)
        self.events.clear()
        self.triggered = True
        self.life = self._life()

    def move(self) -> bool:
        return self.waiting_epoch is None and next(self.life, IDLE) != IDLE

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

    def _life(self) -> Generator[str | None]:
        """Yields IDLE while there is nothing to do, and None after each request."""
        own_path = paths.consumer_id_path(GROUP, self.consumer_id)
        self.registry.create_ephemeral(own_path, paths.encode_subscription(self.subscription))
        yield
        watched = [paths.consumer_ids_path(GROUP), paths.BROKER_TOPICS]
        for path in [*watched, *map(paths.topic_path, TOPICS)]:
            self.registry.watch_children(path, self._fired)
        while rebalance.Left() not in self.events:  # our own members' queue
            if self.triggered:
                yield from self._rebalance()
            else:
                yield IDLE
        yield from self._release()
        self.registry.delete(own_path)
        self.state = State(self.consumer_id, Phase.LEFT)

    def _fired(self, _: list[str]) -> None:
        self.triggered = True

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
        made: list[str] = []
        positions = {name: self.offsets.read(name) for name in sorted(wanted)}
        for name, thread in sorted(wanted.items()):
            path = owner_path(name)
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
            path = paths.offset_path(GROUP, name.topic, BrokerPartition(*name[1:]))
            self.registry.put(path, paths.encode_number(self.position[name]))
            yield
            self.halt([name])
            self.registry.delete(owner_path(name))
            yield
