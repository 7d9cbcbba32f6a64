"""Where does the paper's coordination through ZooKeeper end? How long a rebalance of a large group
takes, and how many requests it costs.

    python -m benchmarks.group_scale [--quick] [--json]

Real code on simulated time: each member is the group consumer's state machine, its membership steps
and its range assignment; the tree is the one that the registry's contract tests check. A request
takes one round trip, and the server carries out one after the other, so that many members wait for
each other; a watch arrives half a round trip after the change. Deliveries cost nothing, so this is
the least that a real group would take.

Three moments: all members start at once, one more joins, one dies (its session has just ended).
"""

import argparse
import heapq
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.rebalance import Phase
from kafka2011.coordination import paths
from kafka2011.coordination.paths import StaticSubscription, Subscription
from tests.support.group_simulation import Member, World

ROUND_TRIP_S = 0.001
SERVICE_S = 0.00005  # 20,000 requests a second: one ZooKeeper server of today, on a local network
FIRST_PAUSE_S, LAST_PAUSE_S = 0.050, 2.0  # the rebalancer's, and rebalance.backoff.ms
TOPIC = "a"
# Members, brokers, partitions a broker.
SHAPES = ((8, 4, 4), (32, 8, 8), (64, 16, 8), (128, 32, 8), (256, 64, 8), (512, 128, 8))
QUICK_SHAPES = SHAPES[:2]


@dataclass(frozen=True)
class Rebalance:
    """`seconds` are simulated, from the moment to the last member that settled."""

    moment: str
    members: int
    partitions: int
    seconds: float
    requests: int
    attempts: int
    released: int
    real_seconds: float


class Clockwork:
    """Lets the members of a world act in the order of simulated time, one request at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, TimedMember]] = []
        self.now_s = 0.0
        self._server_free_s = 0.0

    def wake(self, member: "TimedMember", at_s: float) -> None:
        """Let the member act at that time, if it would not earlier."""
        if at_s < member.acts_s:
            member.acts_s = at_s
            heapq.heappush(self._due, (at_s, next(self._numbers), member))

    def run(self) -> None:
        """Until no member has anything to do or to wait for."""
        zookeeper = self._world.zookeeper
        while self._due:
            at_s, _, member = heapq.heappop(self._due)
            if at_s != member.acts_s or member.dead:
                continue  # it was woken earlier than this
            member.acts_s = float("inf")
            self.now_s = at_s
            before = zookeeper.operation_count
            changes = zookeeper._change_count
            is_busy = member.act(at_s)
            ended_s = self._answered_s(at_s, zookeeper.operation_count - before)
            if is_busy:
                self.wake(member, ended_s)
            elif member.waiting_until_s is not None:
                self.wake(member, max(ended_s, member.waiting_until_s))
            if zookeeper._change_count != changes:
                self.deliver_watches(ended_s)

    def _answered_s(self, asked_s: float, requests: int) -> float:
        """When the last of these is answered, each sent when the one before was. The server is not
        kept from others' requests by the pauses between them."""
        if not requests:
            return asked_s
        arrives_s = asked_s + ROUND_TRIP_S / 2
        self._server_free_s = max(self._server_free_s, arrives_s) + requests * SERVICE_S
        alone_s = arrives_s + (requests - 1) * ROUND_TRIP_S + requests * SERVICE_S
        return max(self._server_free_s, alone_s) + ROUND_TRIP_S / 2

    def deliver_watches(self, changed_s: float) -> None:
        for member in self._world.members:
            if isinstance(member, TimedMember) and member.registry._pending:
                self.wake(member, changed_s + ROUND_TRIP_S / 2)


class TimedMember(Member):
    """A member that acts when its last request is answered, a watch arrives or a pause is over."""

    def __init__(self, world: World, consumer_id: str, subscription: Subscription) -> None:
        super().__init__(world, consumer_id, subscription)
        self.acts_s = float("inf")
        self.waiting_until_s: float | None = None
        self.attempts = 0
        self.released = 0

    def act(self, now_s: float) -> bool:
        """One move; whether there is more to do at once."""
        if self.waiting_until_s is not None and now_s >= self.waiting_until_s:
            self.waiting_until_s = None
            self.wait_over()
        if self.move():
            if self.waiting_epoch is not None and self.waiting_until_s is None:
                doublings = min(self.state.attempt - 1, 16)
                pause_s = min(FIRST_PAUSE_S * 2**doublings, LAST_PAUSE_S)
                self.waiting_until_s = now_s + pause_s * self.world.random.uniform(0.5, 1.0)
                self.attempts += 1
            return True
        return self.registry.deliver_next()

    def halt(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        halted = super().halt(names)
        self.released += len(halted)
        return halted

    def start(self, name: TopicPartition, thread: str, stored: int | None) -> None:
        """Without the simulation's look at all other members, which grows with their square."""
        self.delivering[name] = thread
        self.position[name] = stored or 0


class Group:
    """One topic's partitions and the members that share them."""

    def __init__(self, members: int, brokers: int, partitions_per_broker: int, seed: int) -> None:
        self._world = World(seed, lambda _: StaticSubscription({TOPIC: 1}), (TimedMember,))
        self._clockwork = Clockwork(self._world)
        self._partitions = brokers * partitions_per_broker
        for broker_id in range(brokers):
            path = paths.topic_broker_path(TOPIC, broker_id)
            self._world.admin.put(path, paths.encode_number(partitions_per_broker))
        self._initial_members = members

    def moments(self) -> Iterator[Rebalance]:
        yield self._measured("all start", lambda: self._add(self._initial_members))
        yield self._measured("one joins", lambda: self._add(1))
        yield self._measured("one dies", self._kill_one)

    def _add(self, count: int) -> None:
        for _ in range(count):
            self._world.add_member()
            self._clockwork.wake(self._members()[-1], self._clockwork.now_s)

    def _kill_one(self) -> None:
        member = self._world.random.choice(self._members())
        member.kill()
        member.registry.end_session_on_server()
        self._clockwork.deliver_watches(self._clockwork.now_s)

    def _members(self) -> list[TimedMember]:
        return [one for one in self._world.live() if isinstance(one, TimedMember)]

    def _measured(self, moment: str, begin: Callable[[], None]) -> Rebalance:
        zookeeper, began_s, real_s = self._world.zookeeper, self._clockwork.now_s, time.monotonic()
        requests = zookeeper.operation_count
        before = {one: (one.attempts, one.released) for one in self._members()}
        begin()
        self._clockwork.run()
        self._check_settled()
        members = self._members()
        counts = [before.get(one, (0, 0)) for one in members]
        return Rebalance(
            moment,
            len(members),
            self._partitions,
            self._clockwork.now_s - began_s,
            zookeeper.operation_count - requests,
            sum(one.attempts for one in members) - sum(attempts for attempts, _ in counts),
            sum(one.released for one in members) - sum(released for _, released in counts),
            time.monotonic() - real_s,
        )

    def _check_settled(self) -> None:
        owned = [name for one in self._members() for name in one.delivering]
        unsettled = [one for one in self._members() if one.state.phase is not Phase.SETTLED]
        assert not unsettled, f"{len(unsettled)} members have not settled"
        assert len(owned) == len(set(owned)) == self._partitions, f"{len(owned)} are owned"


def table(found: list[Rebalance]) -> Table:
    shown = Table(header_style="bold", box=None)
    headings = ("members", "partitions", "moment", "settled after", "requests", "pauses", "moved")
    for heading in headings:
        shown.add_column(heading, justify="left" if heading == "moment" else "right")
    for one in found:
        shown.add_row(
            f"{one.members:,}",
            f"{one.partitions:,}",
            one.moment,
            f"{one.seconds:,.2f} s",
            f"{one.requests:,}",
            f"{one.attempts:,}",
            f"{one.released:,}",
        )
    return shown


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument(
        "--quick", action="store_true", help="the two smallest groups alone; all take five minutes"
    )
    words.add_argument("--json", action="store_true", help="the results as JSON, no table")
    words.add_argument("--seed", type=int, default=1)
    given = words.parse_args()
    found = []
    for shape in QUICK_SHAPES if given.quick else SHAPES:
        for one in Group(*shape, seed=given.seed).moments():
            found.append(one)
            if not given.json:
                print(
                    f"{one.members} members, {one.moment}: {one.real_seconds:.1f} s",
                    file=sys.stderr,
                )
    if given.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
