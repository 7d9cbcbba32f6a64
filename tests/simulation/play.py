"""Schedules told in a few words: `play.ship("a", "b")` brings b all data that a has sent.

A play begins in a world where `a` leads epoch 1 and all others have joined, unless said otherwise.
"""

from collections.abc import Callable

from kafka2011.broker.replication.follower import Follower, Stage
from kafka2011.broker.replication.frames import Data
from kafka2011.broker.replication.machine import Replica
from tests.simulation.hosts import Host
from tests.simulation.walk import turn, unrest
from tests.simulation.world import World

LOG = "t-0"
STEPS_MAX = 200


class Play:
    def __init__(
        self, replicas: int = 3, min_insync: int = 1, machine: type[Replica] = Replica
    ) -> None:
        self.world = World(replicas, min_insync, machine)
        self.do("start", "a")
        self.lead("a", begins=True)
        for name in self.world.names[1:]:
            self.do("start", name)
        self.rest()

    def do(self, *action: object) -> bool:
        return self.world.do(action)

    def must(self, *action: object) -> None:
        assert self.do(*action), action

    def until(self, is_done: Callable[[], object], *actions: tuple[object, ...]) -> None:
        """Do the actions in turn until `is_done()`."""
        for _ in range(STEPS_MAX):
            if is_done():
                return
            for action in actions:
                self.do(*action)
        raise AssertionError(f"not after {STEPS_MAX} rounds of {actions}: {self.state}")

    # --- what there is -------------------------------------------------------------------------

    @property
    def state(self) -> str:
        registry = self.world.registry
        return f"{registry.state} at {registry.version}, {unrest(self.world)}"

    @property
    def isr(self) -> str:
        """The names of the in-sync hosts, by their present directories; ? for other directories."""
        return self._names(self.world.registry.state.isr)

    @property
    def eligible(self) -> str:
        return self._names(self.world.registry.state.eligible)

    def _names(self, directories: frozenset[str]) -> str:
        names = {host.disk.directory: host.name for host in self.world.hosts.values()}
        return "".join(sorted(names.get(directory, "?") for directory in directories))

    def known(self, name: str) -> frozenset[str]:
        """The in-sync set as the leader `name` knows it; empty while it asks for another."""
        leader = self.machine(name).leads
        return leader.known.isr if leader and not leader.asked else frozenset()

    def host(self, name: str) -> Host:
        return self.world.hosts[name]

    def machine(self, name: str) -> Replica:
        machine = self.host(name).machine
        assert machine is not None
        return machine

    def log(self, name: str) -> list[int]:
        """The numbers of the messages, in order."""
        return [entry.number for entry in self.host(name).disk.logs[LOG].entries]

    def quarantined(self, name: str) -> list[int]:
        parts = self.host(name).disk.logs[LOG].quarantine
        return [entry.number for part in parts for entry in part]

    @property
    def confirmed(self) -> list[int]:
        return [entry.number for entry in self.world.judge.confirmed[LOG]]

    @property
    def leaders(self) -> str:
        """The names of the hosts that serve clients."""
        return "".join(host.name for host in self.world.hosts.values() if host.is_open)

    # --- acts ----------------------------------------------------------------------------------

    def put(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self.must("put", name, LOG)

    def ship(self, sender: str, receiver: str) -> None:
        """All data that is on its way arrives, and is written; a mark behind it does not."""
        while any(
            item is not None and isinstance(item[0], Data)
            for end in self.world.arriving(sender, receiver)
            for item in end.queue
        ):
            self.must("frame", sender, receiver)

    def read(self, receiver: str, sender: str) -> None:
        """Everything on its way from `sender` arrives."""
        while self.do("frame", sender, receiver):
            pass

    def sync(self, *names: str) -> None:
        for name in names:
            self.do("flush", name, LOG)

    def full(self, leader: str) -> None:
        """Have one message confirmed, and known as such by every host."""
        others = [name for name in self.world.names if self.host(name).runs and name != leader]
        self.put(leader)
        for name in others:
            self.ship(leader, name)
        self.sync(leader, *others)
        for name in others:
            self.read(leader, name)
        for name in others:
            self.read(name, leader)

    def join(self, name: str, leader: str) -> None:
        """Have `name` join, until the leader has read Ready; what it then sends is on its way."""
        self.until(
            lambda: self._has_joined(name, leader),
            ("watch", name),
            ("ask", name),
            ("dial", name),
            ("frame", name, leader),
            ("frame", leader, name),
            ("flush", name, LOG),
            ("flush", name, "t-1"),
            ("cut", name),
            ("journal", name),
            ("tick", name, 260),
        )
        self.read(leader, name)

    @property
    def talk(self) -> list[tuple[object, ...]]:
        """Actions that bring frames from every host to every other."""
        names = self.world.names
        pairs = [(one, other) for one in names for other in names if one != other]
        return [("frame", *pair) for pair in pairs * 3]

    def _has_joined(self, name: str, leader: str) -> bool:
        role = self.machine(name).role
        if not isinstance(role, Follower) or role.stage is not Stage.JOINED:
            return False
        return role.leader == self.host(leader).disk.directory

    def lead(self, name: str, *present: str, begins: bool = False) -> None:
        """`name` waits too long for a leader, is answered by those present, and serves."""
        if not begins:
            self.must("tick", name, 16_000)
        others = [h for h in self.world.hosts.values() if h.name not in (name, *present) and h.runs]
        for host in others:
            self.must("pause", host.name)
        self.until(
            lambda: self.host(name).is_open and self.world.registry.address == self._address(name),
            ("canvass", name),
            ("ask", name),
            ("flush", name, LOG),
            ("flush", name, "t-1"),
            ("journal", name),
            ("tick", name, 260),
        )
        for host in others:
            self.must("go_on", host.name)

    def _address(self, name: str) -> tuple[str, int]:
        return name, self.host(name).run

    def kill(self, *names: str) -> None:
        for name in names:
            self.must("crash", name)
            self.must("expire", name)

    def power(self, name: str) -> None:
        self.must("power", name, 0)
        self.must("expire", name)

    def rounds(self, count: int = 100, *without: str) -> None:
        """Let time pass for every host but `without`."""
        for _ in range(count):
            for name in self.world.names:
                if name not in without:
                    turn(self.world, name)

    def rest(self) -> None:
        """Go on until there is nothing left to do."""
        for _ in range(100):
            if unrest(self.world) is None:
                return
            self.rounds(1)
        raise AssertionError(self.state)
